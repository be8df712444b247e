"""How long prompts and answers are: the one thing that no config says. Given, or assumed and said so."""

from __future__ import annotations

from dataclasses import dataclass

from gspo_ray.config import RunConfig

Group = tuple[list[int], list[list[int]]]
"""Token ids of a prompt, and of each of its completions."""

USUAL_PROMPT = 200  # tokens of a problem with its request


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Tokens."""

    prompt: int  # mean
    completion: int  # mean
    longest: int  # completion
    assumed: bool


def assumed_lengths(config: RunConfig, *, prompt: int | None = None, completion: int | None = None) -> Lengths:
    """Not given: prompts of USUAL_PROMPT tokens, answers of half of rollout.max_tokens."""
    longest = config.rollout.max_tokens
    return Lengths(
        prompt=prompt or min(USUAL_PROMPT, config.data.max_prompt_tokens),
        completion=min(completion or (longest + 1) // 2, longest),
        longest=longest,
        assumed=prompt is None or completion is None,
    )


def longest_row(config: RunConfig) -> int:
    """Tokens of the longest sequence that the learner can get."""
    return config.data.max_prompt_tokens + config.rollout.max_tokens


def full_micro_batch(
    lengths: Lengths, *, group_size: int, max_tokens: int, longest: int, shares_prompts: bool
) -> list[Group]:
    """The largest micro-batch to expect: `max_tokens` tokens of mean sequences, or the longest row, which always goes
    through whole. All ids are 0."""
    if max_tokens < longest:
        return [([0] * lengths.prompt, [[0] * (longest - lengths.prompt)])]
    groups: list[Group] = []
    room = max_tokens
    while True:
        starts = not groups or len(groups[-1][1]) == group_size
        cost = lengths.prompt if starts or not shares_prompts else 0
        length = min(lengths.completion, room - cost)
        if length < 1 or (not shares_prompts and length < lengths.completion and groups):
            return groups
        if starts:
            groups.append(([0] * lengths.prompt, []))
        groups[-1][1].append([0] * length)
        room -= cost + length
