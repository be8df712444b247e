"""Group-relative advantages (GSPO paper, eq. 6; the same as GRPO's) and the variants that the field uses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, get_args

STD_EPS = 1e-8

AdvantageKind = Literal["sample", "population", "mean_only", "leave_one_out", "batch"]
Reward = float | None  # None: never judged (the verifier failed, not the answer)


def group_advantages(rewards_PG: Sequence[Sequence[Reward]], *, kind: AdvantageKind = "sample") -> list[list[float]]:
    """How much better a completion is than its siblings; equal rewards give exactly 0.0, not a rounding residue.

    sample         (r_i - mean r) / (std r + 1e-8), std with N - 1 in the divisor
    population     the same, std with N in the divisor
    mean_only      r_i - mean r (Dr. GRPO, arXiv:2503.20783)
    leave_one_out  r_i - mean of the others (RLOO, arXiv:2402.14740)
    batch          (r_i - mean r) / (std r + 1e-8) over all groups together; problems are compared with each other

    A reward of None counts nowhere: its completion gets 0.0, and so does a group with fewer than two rewards.
    Raises ValueError for a reward that is not finite: one of them would turn its whole group into NaN.
    """
    if kind not in get_args(AdvantageKind):
        raise ValueError(f"unknown kind of advantage {kind!r}, known are {', '.join(get_args(AdvantageKind))}")
    if kind == "batch":
        flat = iter(_compare([reward for rewards_G in rewards_PG for reward in rewards_G], kind))
        return [[next(flat) for _ in rewards_G] for rewards_G in rewards_PG]
    return [_compare(rewards_G, kind) for rewards_G in rewards_PG]


def is_degenerate(rewards_G: Sequence[Reward]) -> bool:
    """All rewards equal, or fewer than two of them: nothing to learn from comparing."""
    return len({reward for reward in rewards_G if reward is not None}) <= 1


def _compare(rewards_G: Sequence[Reward], kind: AdvantageKind) -> list[float]:
    judged = [reward for reward in rewards_G if reward is not None]
    if not all(math.isfinite(reward) for reward in judged):
        raise ValueError(f"rewards must be finite, got {list(rewards_G)}")
    if is_degenerate(rewards_G):
        return [0.0] * len(rewards_G)
    count, mean = len(judged), math.fsum(judged) / len(judged)
    scale = 1.0
    if kind in ("sample", "population", "batch"):
        variance = math.fsum((reward - mean) ** 2 for reward in judged) / (count if kind == "population" else count - 1)
        scale = 1 / (math.sqrt(variance) + STD_EPS)
    elif kind == "leave_one_out":  # r_i - (count * mean - r_i) / (count - 1)
        scale = count / (count - 1)
    return [0.0 if reward is None else (reward - mean) * scale for reward in rewards_G]
