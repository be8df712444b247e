"""A value that is known from elsewhere beside the one that our code gives."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """`agrees` is None for a value that is shown for orientation: it was measured under other conditions."""

    name: str
    golden: float
    ours: float
    agrees: bool | None
    rule: str  # what agreeing means here

    @property
    def error(self) -> float:
        return self.ours - self.golden

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "error": self.error}


def equal(name: str, golden: float, ours: float, *, within: float) -> Check:
    """`within` is an absolute difference: half a unit of the last published digit, or a rounding error."""
    agrees = math.isclose(ours, golden, rel_tol=0, abs_tol=within)
    return Check(name=name, golden=golden, ours=ours, agrees=agrees, rule=f"within {within:.2g}")


def at_least(name: str, golden: float, ours: float) -> Check:
    return Check(name=name, golden=golden, ours=ours, agrees=ours >= golden, rule="at least")


def in_spread(name: str, golden: float, ours: float, *, low: float, high: float, of: str) -> Check:
    """For a number whose exact conditions are not published: `low` and `high` bound ours over many repetitions."""
    return Check(
        name=name, golden=golden, ours=ours, agrees=low <= golden <= high, rule=f"in {low:.2f} to {high:.2f}, {of}"
    )


def shown(name: str, golden: float, ours: float, *, why: str) -> Check:
    return Check(name=name, golden=golden, ours=ours, agrees=None, rule=why)
