"""Group-relative advantages (GSPO paper, eq. 6; the same as GRPO's)."""

from __future__ import annotations

import math
from collections.abc import Sequence

STD_EPS = 1e-8


def group_advantages(rewards_PG: Sequence[Sequence[float]]) -> list[list[float]]:
    """A_i = (r_i - mean r) / (std r + 1e-8) within each group; std with N - 1 in the divisor.

    Equal rewards give exactly 0.0, not a rounding residue divided by 1e-8. Raises ValueError for a reward that
    is not finite: one of them would turn its whole group into NaN.
    """
    return [_one_group(rewards_G) for rewards_G in rewards_PG]


def _one_group(rewards_G: Sequence[float]) -> list[float]:
    if not all(math.isfinite(reward) for reward in rewards_G):
        raise ValueError(f"rewards must be finite, got {list(rewards_G)}")
    if len(set(rewards_G)) <= 1:
        return [0.0] * len(rewards_G)
    mean = math.fsum(rewards_G) / len(rewards_G)
    variance = math.fsum((reward - mean) ** 2 for reward in rewards_G) / (len(rewards_G) - 1)
    return [(reward - mean) / (math.sqrt(variance) + STD_EPS) for reward in rewards_G]
