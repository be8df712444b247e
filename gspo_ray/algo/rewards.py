"""From what the verifier paid to the rewards that are compared: length penalties, missing verdicts, masks."""

from __future__ import annotations

from collections.abc import Sequence

from gspo_ray.algo.advantages import Reward
from gspo_ray.types import Finish, Group, Outcome


def judged_rewards(group: Group) -> list[Reward]:
    """[G]; None where the verifier itself failed (Outcome.ERROR): a fault of ours is not a wrong answer."""
    return [None if verdict.outcome is Outcome.ERROR else verdict.reward for verdict in group.verdicts]


def soft_length_penalty(length: int, *, max_tokens: int, buffer: int) -> float:
    """DAPO's soft overlong punishment (arXiv:2503.14476, eq. 13): 0 up to max_tokens - buffer, then down to -1.

    A completion that ends exactly at `max_tokens` gets -1, whether it was cut off or ended there.
    """
    return min(0.0, max(-1.0, (max_tokens - buffer - length) / buffer))


def penalised(rewards_G: Sequence[Reward], group: Group, *, max_tokens: int, buffer: int) -> list[Reward]:
    """Rewards plus the length penalty of each completion; None stays None."""
    return [
        None
        if reward is None
        else reward + soft_length_penalty(len(completion.token_ids), max_tokens=max_tokens, buffer=buffer)
        for reward, completion in zip(rewards_G, group.completions, strict=True)
    ]


def counted(group: Group, *, mask_truncated: bool) -> list[bool]:
    """[G]; False for a completion that enters neither the loss nor its divisor.

    That is one that was never judged and, with `mask_truncated`, one that `max_tokens` cut off. Both have been
    sampled all the same: lengths and shares are measured over all completions.
    """
    return [
        verdict.outcome is not Outcome.ERROR and not (mask_truncated and completion.finish is Finish.LENGTH)
        for verdict, completion in zip(group.verdicts, group.completions, strict=True)
    ]
