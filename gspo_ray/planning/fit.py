"""Does it fit the GPU, and if not, what would."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gspo_ray.config import RunConfig
from gspo_ray.planning.gpus import Gpu
from gspo_ray.planning.lengths import longest_row
from gspo_ray.planning.memory import GIB, EngineMemory, LearnerMemory
from gspo_ray.planning.problems import Problem

ROUND_TOKENS = 1024


def learner_limit(config: RunConfig, gpu: Gpu) -> float:
    """Bytes that a learner rank may take of its GPU."""
    share = 1 - config.rollout.engine.gpu_memory_utilization if config.cluster.colocate else 1.0
    return share * gpu.memory_gib * GIB


def fits(config: RunConfig, learner: LearnerMemory, engine: EngineMemory, gpu: Gpu) -> bool:
    return learner.total <= learner_limit(config, gpu) and engine.longest_fit >= 1


def memory_problems(
    config: RunConfig,
    learner: LearnerMemory,
    engine: EngineMemory,
    name: str,
    gpus: dict[str, Gpu],
    *,
    with_checkpointing: Callable[[], LearnerMemory],
) -> list[Problem]:
    limit = learner_limit(config, gpus[name])
    found = []
    if learner.total > limit:
        fixes = list(_learner_fixes(config, learner, limit, with_checkpointing))
        larger = [other for other, gpu in gpus.items() if learner.total <= learner_limit(config, gpu)]
        fixes += [f"take a larger GPU ({', '.join(larger)})"] if larger else []
        text = f"the learner needs {_gib(learner.total)} GiB of a GPU and gets {_gib(limit)} on {name}"
        found.append(Problem(f"{text}. {_or(fixes)}", fatal=True))
    if engine.longest_fit < 1:
        fixes = list(_engine_fixes(config, engine))
        text = (
            f"an engine gets {_gib(engine.budget)} GiB on {name}; weights, adapters and workspace leave "
            f"{_gib(max(0, engine.kv_room))} for the KV cache, and one sequence of {config.max_model_len} tokens "
            f"needs {_gib(engine.longest)}"
        )
        found.append(Problem(f"{text}. {_or(fixes)}", fatal=True))
    return found


def _learner_fixes(
    config: RunConfig, learner: LearnerMemory, limit: float, with_checkpointing: Callable[[], LearnerMemory]
) -> Iterator[str]:
    if not config.learner.gradient_checkpointing:
        other = with_checkpointing()
        if other.total <= limit:
            yield f"set learner.gradient_checkpointing=true ({_gib(other.total)} GiB)"
    fixed = learner.total - learner.activations - learner.passing
    tokens = int((limit - fixed) / (learner.activations + learner.passing) * learner.tokens)
    tokens = tokens // ROUND_TOKENS * ROUND_TOKENS
    if longest_row(config) <= tokens < learner.tokens:
        yield f"set learner.micro_batch_tokens={tokens}"
    elif fixed < limit:
        yield "shorten the longest row (rollout.max_tokens, data.max_prompt_tokens)"
    if learner.weights > limit / 2 and not config.learner.shard_base:
        yield "spread the weights: learner.shard_base=true with learner.num_ranks=2 or more"


def _engine_fixes(config: RunConfig, engine: EngineMemory) -> Iterator[str]:
    options = config.rollout.engine
    if engine.kv_room > 0:
        yield "lower rollout.max_tokens or data.max_prompt_tokens"
    if options.gpu_memory_utilization < 0.9 and not config.cluster.colocate:
        yield "raise rollout.engine.gpu_memory_utilization to 0.9"
    yield f"set rollout.engine.tensor_parallel_size={2 * options.tensor_parallel_size}"
    yield "take a larger GPU"


def _or(fixes: list[str]) -> str:
    if not fixes:
        return "Take a larger GPU or a smaller model."
    text = ", or ".join(fixes)
    return f"{text[0].upper()}{text[1:]}."


def _gib(size: float) -> str:
    return f"{size / GIB:.1f}"
