"""What actors build on their own node. Module-level functions, so that a partial of them pickles by name."""

from __future__ import annotations

import os
import platform
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gspo_ray.config import RunConfig
from gspo_ray.errors import ModelError
from gspo_ray.models import resolve_model
from gspo_ray.seeding import derive_seed

if TYPE_CHECKING:  # vllm, transformers and peft are imported where they run
    from gspo_ray.actors.learner_actor import LearnerFactory
    from gspo_ray.actors.rollout_actor import EngineFactory
    from gspo_ray.learner.distributed import Seat
    from gspo_ray.learner.learner import LoraLearner
    from gspo_ray.rollout.engine_vllm import VllmEngine


def vllm_engine_factories(config: RunConfig) -> list[EngineFactory]:
    folder = _drivers_folder(config)
    return [partial(_vllm_engine, config, folder, number) for number in range(config.rollout.num_engines)]


def learner_factory(config: RunConfig) -> LearnerFactory:
    return partial(_learner, config, _drivers_folder(config))


def _drivers_folder(config: RunConfig) -> Path | None:
    """What a relative model.path means where the driver runs; actors work in other folders."""
    path = Path(config.model.path)
    return path.resolve() if path.is_dir() else None


def _model_here(config: RunConfig, drivers_folder: Path | None) -> str:
    """Each node has its own copy of the model: own cache, own home folder, or the same path as the driver's.

    Raises ModelError with the name of the node.
    """
    path = config.model.path
    if drivers_folder is not None and drivers_folder.is_dir() and not Path(path).is_dir():
        path = str(drivers_folder)
    try:
        return resolve_model(path, config.model.revision)
    except ModelError as error:
        raise ModelError(f"{error} (On node {platform.node()}: nodes share no disk, each needs the model.)") from error


def _vllm_engine(config: RunConfig, drivers_folder: Path | None, number: int) -> VllmEngine:
    from gspo_ray.rollout.engine_vllm import VllmEngine

    return VllmEngine(
        _model_here(config, drivers_folder),
        revision=config.model.revision,
        dtype=config.model.dtype,
        device=config.cluster.device,
        max_model_len=config.max_model_len,
        lora_rank=config.model.lora.rank,
        engine=config.rollout.engine,
        engine_id=f"engine-{number}",
        # Requests carry seeds of their own; engines must still not start from one state.
        seed=derive_seed(config.seed, "engine", number),
    )


def _learner(config: RunConfig, drivers_folder: Path | None, seat: Seat | None) -> LoraLearner:
    import torch

    from gspo_ray.learner.distributed import ALONE, join
    from gspo_ray.learner.learner import LoraLearner

    if config.cluster.device == "cpu":
        torch.set_num_threads(min(config.learner.cpu_threads, os.cpu_count() or 1))
    return LoraLearner(
        _model_here(config, drivers_folder),
        model=config.model,
        algo=config.algo,
        learner=config.learner,
        temperature=config.rollout.temperature,
        max_tokens=config.rollout.max_tokens,
        total_steps=config.steps,
        device=config.cluster.device,
        seed=derive_seed(config.seed, "lora"),
        ranks=ALONE if seat is None else join(seat, device=config.cluster.device, in_step=config.learner.shard_base),
    )
