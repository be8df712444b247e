"""What cannot work, and what an expert would question, each with the way to mend it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from gspo_ray.advice import advise
from gspo_ray.config import RunConfig, engine_lora_rank
from gspo_ray.errors import ModelError
from gspo_ray.learner.support import check_model
from gspo_ray.models import context_length
from gspo_ray.planning.lengths import longest_row
from gspo_ray.planning.memory import BATCHED_TOKENS
from gspo_ray.planning.noise import TOLERATED, RatioNoise
from gspo_ray.planning.shape import ModelShape


@dataclass(frozen=True, slots=True)
class Problem:
    text: str  # what is wrong, and the fix
    fatal: bool


def find_problems(config: RunConfig, model_path: str, shape: ModelShape, noise: RatioNoise) -> list[Problem]:
    """Of the config and the model, whatever the GPU. What contradicts itself within the config is refused before."""
    found = [Problem(text, fatal=True) for text in _impossible(config, model_path, shape)]
    questions = [*_slow(config), *_noisy(config, noise), *advise(config)]
    return found + [Problem(text, fatal=False) for text in questions]


def _impossible(config: RunConfig, model_path: str, shape: ModelShape) -> Iterator[str]:
    engine, longest = config.rollout.engine, config.max_model_len
    try:
        check_model(
            model_path,
            config.model.revision,
            config.model.lora.target_modules,
            architecture=engine.architecture,
            device=config.cluster.device,
        )
    except ModelError as error:
        yield str(error)
    context = context_length(model_path, config.model.revision)
    if context is not None and longest > context:
        yield (
            f"data.max_prompt_tokens + max_tokens = {longest} tokens, but the model has a context of {context}. "
            f"Lower rollout.max_tokens (or eval.max_tokens, the larger of them) by {longest - context}."
        )
    ranks = engine.tensor_parallel_size
    if shape.heads % ranks:
        fitting = [str(number) for number in (2, 4, 8) if shape.heads % number == 0] or ["1"]
        yield (
            f"rollout.engine.tensor_parallel_size={ranks} does not divide the model's {shape.heads} attention heads: "
            f"vLLM refuses it. Use {' or '.join(fitting)}."
        )
    elif max(ranks, shape.kv_heads) % min(ranks, shape.kv_heads):
        yield (
            f"rollout.engine.tensor_parallel_size={ranks} and the model's {shape.kv_heads} key-value heads: one must "
            "divide the other. Use a power of two."
        )
    batched = BATCHED_TOKENS if config.cluster.device == "cuda" else max(longest, 4096)
    if engine.max_num_seqs > batched:
        yield (
            f"rollout.engine.max_num_seqs={engine.max_num_seqs} is more than the {batched} tokens that the engine "
            f"computes at once: vLLM refuses it. Lower it to {batched}."
        )


def _slow(config: RunConfig) -> Iterator[str]:
    engine, group, problems = config.rollout.engine, config.rollout.group_size, config.data.problems_per_step
    rank = config.model.lora.rank
    fullest = math.ceil(problems / config.rollout.num_engines) * group
    if engine.max_num_seqs < group:
        yield (
            f"rollout.engine.max_num_seqs={engine.max_num_seqs} is less than rollout.group_size={group}: the "
            f"completions of one prompt wait for each other. Raise it to {group} or more."
        )
    elif engine.max_num_seqs < fullest:
        yield (
            f"an engine gets up to {fullest} completions a step and decodes rollout.engine.max_num_seqs="
            f"{engine.max_num_seqs} at a time. Raise it to {fullest} if the KV cache holds them."
        )
    if config.rollout.num_engines > problems:
        yield (
            f"rollout.num_engines={config.rollout.num_engines}, but a step has {problems} groups "
            "(data.problems_per_step), and a group stays on one engine: the rest would idle. Lower the first."
        )
    if config.learner.micro_batch_tokens < longest_row(config):
        yield (
            f"learner.micro_batch_tokens={config.learner.micro_batch_tokens} is less than the longest row "
            f"({longest_row(config)} tokens), which goes through whole: memory is planned for that row."
        )
    if (room := engine_lora_rank(rank)) != rank:
        yield f"model.lora.rank={rank}: the engine makes room for {room}, the next rank that vLLM takes."


def _noisy(config: RunConfig, noise: RatioNoise) -> Iterator[str]:
    if noise.outside <= TOLERATED or not noise.in_the_ratio:
        return
    yield (
        f"algo.old_logprobs=sampler: noise of {noise.token_noise:g} a token puts {noise.outside:.0%} of the sequences "
        f"of {noise.tokens:.0f} tokens outside the clip band with no update at all. Use algo.old_logprobs=learner."
    )
