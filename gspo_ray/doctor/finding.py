"""What one check found: how bad it is, in words, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, NamedTuple, Self


class Level(StrEnum):
    """From best to worst."""

    SKIP = "skip"
    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    level: Level
    found: str
    fix: str = ""
    """Empty where there is nothing to mend, or where `found` says it."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, tree: dict[str, Any]) -> Self:
        return cls(**{**tree, "level": Level(tree["level"])})


class Problem(NamedTuple):
    level: Level
    found: str
    fix: str


def judged(check: str, found: str, problems: Sequence[Problem]) -> Finding:
    """`found` alone when there is no problem; else the problems before it, as bad as the worst of them."""
    if not problems:
        return Finding(check, Level.PASS, found)
    worst = max((problem.level for problem in problems), key=list(Level).index)
    texts = [problem.found for problem in problems] + ([found] if found else [])
    return Finding(check, worst, "; ".join(texts), " ".join(dict.fromkeys(problem.fix for problem in problems)))
