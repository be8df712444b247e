"""Gold answers that no answer can be compared with, found before a run instead of as reward 0 during it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from gspo_ray.reward.extract import gold_answer
from gspo_ray.reward.plain import read_number
from gspo_ray.reward.tidy import tidy
from gspo_ray.reward.workers import VerifierPool

_CHUNK = 100  # golds between two looks at the clock


@dataclass(frozen=True, slots=True)
class GoldFault:
    first: int  # index of the first problem with this gold answer
    gold: str
    reason: str
    num_problems: int  # that have it


@dataclass(frozen=True, slots=True)
class GoldReport:
    num_golds: int
    num_checked: int  # fewer when the time was up
    faults: tuple[GoldFault, ...]

    @property
    def message(self) -> str:
        """One line; "" when there is nothing to say.

        Example: "2 of 7473 gold answers cannot be read: 'see figure' (row 12: a placeholder), ..."
        """
        lines = []
        if self.faults:
            first = ", ".join(
                f"{fault.gold[:60]!r} (row {fault.first + 1}: {fault.reason})" for fault in self.faults[:3]
            )
            more = ", ..." if len(self.faults) > 3 else ""
            count = sum(fault.num_problems for fault in self.faults)
            lines.append(f"{count} of {self.num_golds} gold answers cannot be read: {first}{more}")
        if self.num_checked < self.num_golds:
            lines.append(f"{self.num_golds - self.num_checked} gold answers were not looked at (time limit)")
        return "; ".join(lines)


def check_golds(
    golds: Sequence[str],
    *,
    num_workers: int = 1,
    timeout_s: float = 5.0,
    memory_limit_mib: int = 2048,
    budget_s: float = 60.0,
) -> GoldReport:
    """Look at every gold answer once, `budget_s` seconds at most; plain numbers cost microseconds and no process.

    A gold answer whose reading overruns `timeout_s` or the memory limit is at fault too: it would cost every completion
    of its group as much. Raises RewardError when a verifier process cannot start.
    """
    rows: dict[str, list[int]] = {}
    for index, gold in enumerate(golds):
        rows.setdefault(gold, []).append(index)
    hard = [gold for gold in rows if read_number(gold) is None and read_number(tidy(gold_answer(gold))) is None]
    reasons = _reasons(hard, num_workers, timeout_s, memory_limit_mib, budget_s) if hard else {}
    faults = (GoldFault(rows[gold][0], gold, reason, len(rows[gold])) for gold, reason in reasons.items() if reason)
    unchecked = sum(len(rows[gold]) for gold in hard if gold not in reasons)
    return GoldReport(len(golds), len(golds) - unchecked, tuple(sorted(faults, key=lambda fault: fault.first)))


def _reasons(
    golds: Sequence[str], num_workers: int, timeout_s: float, memory_limit_mib: int, budget_s: float
) -> dict[str, str]:
    reasons: dict[str, str] = {}
    deadline = time.monotonic() + budget_s
    with VerifierPool(num_workers, timeout_s=timeout_s, memory_limit_mib=memory_limit_mib) as pool:
        for start in range(0, len(golds), _CHUNK):
            chunk = golds[start : start + _CHUNK]
            reasons |= zip(chunk, pool.gold_faults(chunk), strict=True)
            if time.monotonic() > deadline:
                break
    return reasons
