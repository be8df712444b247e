"""What the problems are like: kinds of answers, scripts of the questions, prompt lengths in tokens."""

from __future__ import annotations

import bisect
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from gspo_ray.prepare.records import Record

INT64_MAX = 2**63 - 1
LENGTH_EDGES = (32, 64, 128, 256, 512, 1024, 2048, 4096)  # tokens; a bar holds lengths up to its edge

_INTEGER = re.compile(r"[+-]?\d+")
_KINDS = (
    ("integer", _INTEGER),
    ("decimal", re.compile(r"[+-]?\d*\.\d+|[+-]?\d+\.")),
    ("fraction", re.compile(r"[+-]?\d+/\d+|[+-]?\\[dt]?frac\{?[+-]?\d+\}?\{?\d+\}?")),
    ("LaTeX expression", re.compile(r".*[\\^_{}].*", re.DOTALL)),
    ("number with more", re.compile(r".*\d.*", re.DOTALL)),
)
_SCRIPTS = (  # the first that occurs
    ("Japanese", re.compile(r"[\u3040-\u30ff]")),
    ("Korean", re.compile(r"[\uac00-\ud7af]")),
    ("Chinese", re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")),
    ("Cyrillic", re.compile(r"[\u0400-\u04ff]")),
    ("Arabic", re.compile(r"[\u0600-\u06ff]")),
    ("Latin", re.compile(r"[A-Za-z\u00c0-\u024f]")),
)


def answer_kind(answer: str) -> str:
    return next((name for name, pattern in _KINDS if pattern.fullmatch(answer)), "words")


def script_of(question: str) -> str:
    """The script beside formulas: by it languages are told apart as far as characters can."""
    return next((name for name, pattern in _SCRIPTS if pattern.search(question)), "no letters")


def describe_answers(records: Iterable[Record]) -> dict[str, Any]:
    """Counts by kind, and of integers the negative ones, those beyond int64, the smallest and the largest as text."""
    kinds: Counter[str] = Counter()
    integers: list[int] = []
    for record in records:
        kind = answer_kind(record.answer)
        kinds[kind] += 1
        if kind == "integer" and len(record.answer) <= 4000:  # Python refuses to read more than 4300 digits
            integers.append(int(record.answer))
    return {
        "kinds": dict(kinds.most_common()),
        "negative_integers": sum(value < 0 for value in integers),
        "integers_beyond_int64": sum(not -INT64_MAX - 1 <= value <= INT64_MAX for value in integers),
        "smallest_integer": str(min(integers)) if integers else None,
        "largest_integer": str(max(integers)) if integers else None,
    }


def describe_scripts(records: Iterable[Record]) -> dict[str, int]:
    return dict(Counter(script_of(record.question) for record in records).most_common())


def describe_lengths(lengths: Sequence[int]) -> dict[str, Any]:
    """Percentiles (nearest rank) and a histogram of prompt lengths in tokens; `lengths` is not empty."""
    ordered = sorted(lengths)

    def percentile(share: float) -> int:
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    bars = Counter(bisect.bisect_left(LENGTH_EDGES, length) for length in ordered)
    names = [*(f"<= {edge}" for edge in LENGTH_EDGES), f"> {LENGTH_EDGES[-1]}"]
    return {
        "min": ordered[0],
        "median": percentile(0.5),
        "p90": percentile(0.9),
        "p99": percentile(0.99),
        "max": ordered[-1],
        "histogram": {name: bars[index] for index, name in enumerate(names) if bars[index]},
    }
