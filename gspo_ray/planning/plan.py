"""All of it together: what `gspo-ray plan` shows and `gspo-ray train` says in short."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import partial

from gspo_ray.algo.batch import unjudged_batch
from gspo_ray.config import RunConfig
from gspo_ray.errors import ConfigError
from gspo_ray.planning.fit import fits, memory_problems
from gspo_ray.planning.gpus import Gpu, gpu_named
from gspo_ray.planning.lengths import Lengths, full_micro_batch, longest_row
from gspo_ray.planning.memory import GIB, EngineMemory, LearnerMemory, engine_memory, learner_memory
from gspo_ray.planning.noise import RatioNoise, ratio_noise
from gspo_ray.planning.policy import policy_without_weights
from gspo_ray.planning.problems import Problem, find_problems
from gspo_ray.planning.rehearsal import rehearse, scorer_of
from gspo_ray.planning.shape import ModelShape, model_shape
from gspo_ray.planning.steptime import StepTime, step_time

MOST_FOR_BALANCE = 16  # engines to one learner rank, or the other way round


@dataclass(frozen=True, slots=True, kw_only=True)
class OnGpu:
    """The run on GPUs of one type."""

    engine: EngineMemory
    time: StepTime
    fits: bool
    num_gpus: int
    per_step: float | None  # money; None: no price is known
    to_the_end: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    engines: int
    ranks: int
    time: StepTime


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    config: RunConfig
    shape: ModelShape
    lengths: Lengths
    shares_prompts: bool
    learner: LearnerMemory
    cpu_engine: EngineMemory | None  # on the CPU, where there is nothing below
    gpu: str | None
    gpu_chosen: str  # in words: by whom
    gpu_known: bool  # not only picked from the table
    gpus: dict[str, Gpu]
    by_gpu: dict[str, OnGpu]
    fastest: Split | None  # of the GPUs asked for
    balanced: Split | None  # rollout and learner about equally long, the smaller side one
    noise: RatioNoise
    problems: list[Problem]

    @property
    def works(self) -> bool:
        return not any(problem.fatal for problem in self.problems)


def make_plan(
    config: RunConfig,
    model_path: str,
    lengths: Lengths,
    gpus: dict[str, Gpu],
    *,
    gpu: str | None = None,
    token_noise: float | None = None,
) -> Plan:
    """`model_path` as resolve_model returns it, or any folder with a config.json. Raises ModelError and ConfigError."""
    on_gpu = config.cluster.device == "cuda"
    shape, shares_prompts, learner = _learner(config, model_path, lengths)
    by_gpu, name, chosen, known = {}, None, "", False
    if on_gpu:
        by_gpu = {key: _on(one, config, shape, learner, lengths, shares_prompts) for key, one in gpus.items()}
        name, chosen, known = _choose(config, gpu, by_gpu)
    noise = ratio_noise(
        config.algo,
        tokens=lengths.completion,
        dtype=config.model.dtype,
        device=config.cluster.device,
        token_noise=token_noise,
    )
    problems = find_problems(config, model_path, shape, noise)
    fastest = balanced = None
    if name is not None:
        checkpointed = config.learner.model_copy(update={"gradient_checkpointing": True})
        other = partial(_learner, config.model_copy(update={"learner": checkpointed}), model_path, lengths)
        here = by_gpu[name]
        problems += memory_problems(config, learner, here.engine, name, gpus, with_checkpointing=lambda: other()[2])
        time = partial(step_time, config, shape, here.engine, lengths, gpus[name], shares_prompts=shares_prompts)
        fastest, balanced = _splits(config, time)
    return Plan(
        config=config,
        shape=shape,
        lengths=lengths,
        shares_prompts=shares_prompts,
        learner=learner,
        cpu_engine=None if on_gpu else engine_memory(shape, config, lengths, gpu_bytes=None),
        gpu=name,
        gpu_chosen=chosen,
        gpu_known=known,
        gpus=gpus,
        by_gpu=by_gpu,
        fastest=fastest,
        balanced=balanced,
        noise=noise,
        problems=problems,
    )


def _learner(config: RunConfig, model_path: str, lengths: Lengths) -> tuple[ModelShape, bool, LearnerMemory]:
    device, learner = config.cluster.device, config.learner
    policy = policy_without_weights(model_path, config.model, gradient_checkpointing=learner.gradient_checkpointing)
    shape = model_shape(policy)
    way = scorer_of(policy)
    part = unjudged_batch(
        full_micro_batch(
            lengths,
            group_size=config.rollout.group_size,
            max_tokens=learner.micro_batch_tokens,
            longest=longest_row(config),
            shares_prompts=way.shares_prompts,
        )
    )
    memory = learner_memory(
        shape,
        rehearse(policy, way, part, device=device),
        learner,
        tokens=way.tokens(part),
        dtype=config.model.dtype,
        device=device,
    )
    return shape, way.shares_prompts, memory


def _on(
    gpu: Gpu, config: RunConfig, shape: ModelShape, learner: LearnerMemory, lengths: Lengths, shares_prompts: bool
) -> OnGpu:
    engine = engine_memory(shape, config, lengths, gpu_bytes=int(gpu.memory_gib * GIB))
    time = step_time(config, shape, engine, lengths, gpu, shares_prompts=shares_prompts)
    number = 1 if config.cluster.colocate else config.engine_gpus + config.learner.num_ranks
    per_step = None if gpu.price_per_hour is None else number * gpu.price_per_hour * time.total / 3600
    return OnGpu(
        engine=engine,
        time=time,
        fits=fits(config, learner, engine, gpu),
        num_gpus=number,
        per_step=per_step,
        to_the_end=None if per_step is None else config.steps * per_step,
    )


def _choose(config: RunConfig, asked: str | None, by_gpu: dict[str, OnGpu]) -> tuple[str, str, bool]:
    """A type, why, and whether the run will have it. Raises ConfigError for one that nobody knows."""
    known = ", ".join(by_gpu)
    for text, why in ((asked, "--gpu"), (config.cluster.accelerator_type, "cluster.accelerator_type")):
        if text is not None:
            name = gpu_named(text, by_gpu)
            if name is None:
                raise ConfigError(f"{why} {text!r} is none of {known}. Describe it in a file: --gpus FILE")
            return name, why, True
    if (name := gpu_named(_gpu_here(), by_gpu)) is not None:
        return name, "the GPU of this machine", True
    fitting = [key for key, one in by_gpu.items() if one.fits]
    if fitting:
        cheapest = min(fitting, key=lambda key: math.inf if (cost := by_gpu[key].per_step) is None else cost)
        return cheapest, "the cheapest of the table that fits; another with --gpu", False
    return max(by_gpu, key=lambda key: by_gpu[key].engine.budget), "the largest of the table", False


def _gpu_here() -> str:
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else ""


def _splits(config: RunConfig, time: partial[StepTime]) -> tuple[Split | None, Split | None]:
    if config.cluster.colocate:
        return None, None
    tp, least = config.rollout.engine.tensor_parallel_size, 2 if config.learner.shard_base else 1
    total = config.engine_gpus + config.learner.num_ranks

    def split(engines: int, ranks: int) -> Split:
        return Split(engines=engines, ranks=ranks, time=time(num_engines=engines, num_ranks=ranks))

    possible = [split((total - ranks) // tp, ranks) for ranks in range(least, total - tp + 1)]
    one_to_many = itertools.chain(
        ((engines, least) for engines in range(1, MOST_FOR_BALANCE + 1)),
        ((1, ranks) for ranks in range(least + 1, MOST_FOR_BALANCE + 1)),
    )
    balanced = min(
        itertools.starmap(split, one_to_many),
        key=lambda one: abs(math.log(one.time.rollout / one.time.learner)),
    )
    return min(possible, key=lambda one: one.time.total, default=None), balanced
