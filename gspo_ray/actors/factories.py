"""What actors build on their own node. Module-level functions, so that a partial of them pickles by name."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gspo_ray.config import RunConfig
from gspo_ray.models import resolve_model
from gspo_ray.seeding import derive_seed

if TYPE_CHECKING:  # vllm, transformers and peft are imported where they run
    from gspo_ray.actors.learner_actor import LearnerFactory
    from gspo_ray.actors.rollout_actor import EngineFactory
    from gspo_ray.learner.distributed import Seat
    from gspo_ray.learner.learner import LoraLearner
    from gspo_ray.rollout.engine_vllm import VllmEngine


def vllm_engine_factories(config: RunConfig) -> list[EngineFactory]:
    config = _with_absolute_path(config)
    return [partial(_vllm_engine, config, number) for number in range(config.rollout.num_engines)]


def learner_factory(config: RunConfig) -> LearnerFactory:
    return partial(_learner, _with_absolute_path(config))


def _with_absolute_path(config: RunConfig) -> RunConfig:
    """Actors work in other folders than the driver: a relative model folder would not be found there."""
    path = Path(config.model.path).expanduser()
    if not path.is_dir():
        return config
    return config.model_copy(update={"model": config.model.model_copy(update={"path": str(path.resolve())})})


def _vllm_engine(config: RunConfig, number: int) -> VllmEngine:
    from gspo_ray.rollout.engine_vllm import VllmEngine

    return VllmEngine(
        resolve_model(config.model.path, config.model.revision),
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


def _learner(config: RunConfig, seat: Seat | None) -> LoraLearner:
    import torch

    from gspo_ray.learner.distributed import ALONE, join
    from gspo_ray.learner.learner import LoraLearner

    if config.cluster.device == "cpu":
        torch.set_num_threads(min(config.learner.cpu_threads, os.cpu_count() or 1))
    return LoraLearner(
        resolve_model(config.model.path, config.model.revision),
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
