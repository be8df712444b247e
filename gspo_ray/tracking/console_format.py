"""How numbers look on one line: the columns of a step, bars, sparklines, durations."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

PHASES = ("rollout", "reward", "train", "sync")
MISSING = "-"
GAP = "  "
Values = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the step line; on a narrow terminal those with the lowest `keep` go first."""

    title: str
    width: int
    show: Callable[[Values], str]
    keep: int
    style: str = ""


def step_columns(total_steps: int) -> list[Column]:
    """All columns, left to right. `console/left_s` is the console's own estimate, not a metric."""
    digits = len(str(total_steps))
    return [
        Column("step", 2 * digits + 1, lambda v: f"{v['step']:>{digits}.0f}/{total_steps}", 99, "bold"),
        Column(
            "reward", 14, lambda v: f"{number(v.get('reward/mean'), 3):>5} {bar(v.get('reward/mean'))}", 98, "green"
        ),
        Column("no-ans", 6, lambda v: share(v.get("outcome/no_answer_frac")), 4),
        Column("cut", 4, lambda v: share(v.get("completion/truncated_frac")), 6),
        Column("flat", 4, lambda v: share(v.get("groups/degenerate_frac")), 9),
        Column("tokens", 7, lambda v: count(v.get("completion/tokens")), 2),
        Column("len", 5, lambda v: number(v.get("completion/len_mean"), 1), 8),
        Column("clip", 4, lambda v: share(v.get("gspo/clip_frac")), 7),
        Column("ratio±", 7, lambda v: tiny(v.get("gspo/ratio_std")), 1),
        Column("gap±", 7, lambda v: tiny(v.get("mismatch/seq_log_ratio_std")), 5),
        Column("grad", 5, lambda v: number(v.get("learner/grad_norm"), 2), 3),
        Column("seconds", 7, lambda v: number(v.get("time/step_s"), 1), 97),
        Column("= roll+rew+train+sync", 21, phase_seconds, 5),
        Column("left", 6, lambda v: duration(v.get("console/left_s")), 4),
    ]


LEGEND = (
    "no-ans: no \\boxed{} answer; cut: stopped by max_tokens; flat: groups with all rewards equal (no gradient);",
    "len: mean tokens; clip: sequences whose gradient is cut; ratio±: spread of the sequence ratio;",
    "gap±: spread of its logarithm between learner and sampler before the update",
)


def fit(columns: Sequence[Column], width: int | None) -> list[Column]:
    """The columns that fit into `width` characters (None: all)."""
    kept = list(columns)
    while width is not None and len(kept) > 1 and sum(c.width + len(GAP) for c in kept) - len(GAP) > width:
        kept.remove(min(kept, key=lambda column: column.keep))
    return kept


def align(cell: str, column: Column) -> str:
    """Numbers to the right; the wordy last columns and the bar to the left."""
    return f"{cell:<{column.width}}" if column.title.startswith(("=", "reward")) else f"{cell:>{column.width}}"


def number(value: float | None, digits: int) -> str:
    return MISSING if value is None or math.isnan(value) else f"{value:.{digits}f}"


def share(value: float | None) -> str:
    return MISSING if value is None or math.isnan(value) else f"{100 * value:.0f}%"


def tiny(value: float | None) -> str:
    """Numbers of the size of the clip band: 3.1e-04, but 0 when it is exactly zero."""
    if value is None or math.isnan(value):
        return MISSING
    return "0" if value == 0 else f"{value:.1e}"


def count(value: float | None) -> str:
    if value is None or math.isnan(value):
        return MISSING
    for limit, unit in ((1e6, "M"), (1e4, "k")):
        if value >= limit:
            return f"{value / (1e6 if unit == 'M' else 1e3):.1f}{unit}"
    return f"{value:.0f}"


def duration(seconds: float | None) -> str:
    """42s, 7m05s, 3h20m."""
    if seconds is None or not math.isfinite(seconds):
        return MISSING
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


def phase_seconds(values: Values) -> str:
    """12.0+0.3+10.6+1.2 in the order of PHASES."""
    seconds = [values.get(f"time/{phase}_s") for phase in PHASES]
    if all(value is None for value in seconds):
        return MISSING
    return "+".join(MISSING if s is None else number(s, 1 if s < 100 else 0) for s in seconds)


def bar(value: float | None, width: int = 8) -> str:
    """A share between 0 and 1 as blocks."""
    if value is None or math.isnan(value):
        return " " * width
    full = round(min(max(value, 0.0), 1.0) * width)
    return "█" * full + "·" * (width - full)


def sparkline(values: Sequence[float], width: int = 40) -> str:
    """The course of a number between 0 and 1 (or its own range when it leaves that), at most `width` characters."""
    shown = [v for v in values if math.isfinite(v)]
    if not shown:
        return ""
    if len(shown) > width:
        edges = [round(i * len(shown) / width) for i in range(width + 1)]
        shown = [math.fsum(shown[a:b]) / (b - a) for a, b in pairwise(edges)]
    low, high = min(0.0, *shown), max(1.0, *shown)
    return "".join("▁▂▃▄▅▆▇█"[round((v - low) / (high - low) * 7)] for v in shown)


def one_line(text: str, limit: int) -> str:
    """Model text on one line: white space collapsed, control characters removed, the middle left out if too long."""
    clean = "".join(c if not unicodedata.category(c).startswith("C") else " " for c in text)
    clean = " ".join(clean.split())
    if len(clean) <= limit:
        return clean
    head = (limit - 5) * 3 // 5
    return f"{clean[:head]} ... {clean[-(limit - 5 - head) :]}"
