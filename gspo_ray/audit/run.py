"""Judge the records and count: what `gspo-ray verify` reports, as plain data."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gspo_ray.audit.records import Record
from gspo_ray.reward.extract import ExtractionStyle, gold_answer
from gspo_ray.reward.pool import Examined
from gspo_ray.reward.shape import kind_of
from gspo_ray.reward.tidy import tidy
from gspo_ray.reward.workers import VerifierPool
from gspo_ray.types import Outcome

OUTCOMES = tuple(outcome.value for outcome in Outcome)


@dataclass(frozen=True, slots=True)
class Settings:
    style: ExtractionStyle
    num_workers: int
    timeout_s: float
    memory_limit_mib: int
    num_slowest: int = 5


def audit(
    records: Sequence[Record], settings: Settings, on_done: Callable[[int], None] = lambda index: None
) -> dict[str, Any]:
    """JSON-able report. `on_done(index)` is called after each record, from several threads."""
    with VerifierPool(
        settings.num_workers,
        timeout_s=settings.timeout_s,
        memory_limit_mib=settings.memory_limit_mib,
        style=settings.style,
    ) as pool:
        started = time.monotonic()
        examined = pool.examine([(record.completion, record.gold) for record in records], on_done)
        seconds = time.monotonic() - started
    pairs = list(zip(records, examined, strict=True))
    return {
        "style": settings.style,
        "num_workers": settings.num_workers,
        "timeout_s": settings.timeout_s,
        "num_items": len(records),
        "seconds": seconds,
        "outcomes": {name: sum(e.verdict.outcome.value == name for e in examined) for name in OUTCOMES},
        "labels": _labels(pairs),
        "string_match": _string_match(pairs),
        "kinds": _kinds(pairs),
        "reasons": dict(Counter(e.reason for e in examined if e.reason).most_common()),
        "disagreements": [_item(record, e) for record, e in pairs if _agrees(record, e) is False],
        "not_judged": [_item(r, e) for r, e in pairs if e.verdict.outcome in (Outcome.TIMEOUT, Outcome.ERROR)],
        "slowest": [
            _item(record, e)
            for record, e in sorted(pairs, key=lambda pair: -pair[1].verdict.seconds)[: settings.num_slowest]
        ],
    }


def _labels(pairs: Sequence[tuple[Record, Examined]]) -> dict[str, Any] | None:
    """Agreement, and for each label what was found; None for a file without labels."""
    if any(record.label is None for record, _ in pairs):
        return None
    found = Counter((record.label, e.verdict.outcome.value) for record, e in pairs)
    return {
        "num_agreeing": sum(bool(_agrees(record, e)) for record, e in pairs),
        "confusion": {
            name: {outcome: found[label, outcome] for outcome in OUTCOMES}
            for name, label in (("right", True), ("wrong", False))
        },
    }


def _agrees(record: Record, examined: Examined) -> bool | None:
    return None if record.label is None else record.label is (examined.verdict.outcome is Outcome.CORRECT)


def _string_match(pairs: Sequence[tuple[Record, Examined]]) -> dict[str, Any]:
    """Comparing the extracted answer and the gold answer letter by letter, against the verifier."""
    counts = {"same_correct": 0, "same_not_correct": 0, "different_correct": 0, "different_not_correct": 0}
    examples = []
    for record, e in pairs:
        same = e.verdict.extracted is not None and e.verdict.extracted.strip() == record.gold.strip()
        correct = e.verdict.outcome is Outcome.CORRECT
        counts[f"{'same' if same else 'different'}_{'correct' if correct else 'not_correct'}"] += 1
        if same != correct:
            examples.append(_item(record, e))
    return {**counts, "disagreements": examples}


def _kinds(pairs: Sequence[tuple[Record, Examined]]) -> list[dict[str, Any]]:
    """By the type of the gold answer, the most frequent first."""
    kinds = {gold: kind_of(tidy(gold_answer(gold))) for gold in {record.gold for record, _ in pairs}}
    tables: dict[str, Counter[str]] = {}
    for record, e in pairs:
        table = tables.setdefault(kinds[record.gold], Counter())
        table.update([e.verdict.outcome.value, "num_items", *(["num_agreeing"] if _agrees(record, e) else [])])
    names = ("num_items", "num_agreeing", *OUTCOMES)
    rows = [{"kind": kind, **{name: table[name] for name in names}} for kind, table in tables.items()]
    return sorted(rows, key=lambda row: (-row["num_items"], row["kind"]))


def _item(record: Record, examined: Examined) -> dict[str, Any]:
    return {
        "line": record.line,
        "name": record.name,
        "gold": record.gold,
        "extracted": examined.verdict.extracted,
        "label": record.label,
        "outcome": examined.verdict.outcome.value,
        "reason": examined.reason,
        "seconds": round(examined.verdict.seconds, 4),
    }
