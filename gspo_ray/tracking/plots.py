"""The figure of a run: is the reward rising, and where do the seconds go."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from gspo_ray.tracking.local import read_metrics

SIZE_INCHES = (12.0, 7.0)
DPI = 100  # 1200 x 700 pixels
MAX_MARKED_STEPS = 60
PHASE_COLOURS = {"rollout": "#4c78a8", "reward": "#f2a541", "train": "#59a14f", "sync": "#b07aa1"}
LIGHT_SERIES = {
    "groups/degenerate_frac": ("groups with all rewards equal", "#9aa5b1", "--"),
    "outcome/no_answer_frac": ("completions without an answer", "#e0a3a3", ":"),
}


def plot_rewards(metrics_jsonl: Path, out_png: Path, title: str) -> None:
    """Draw reward and seconds by phase against the step into `out_png` (1200 x 700)."""
    records = read_metrics(metrics_jsonl)
    steps = [record["step"] for record in records]
    figure = Figure(figsize=SIZE_INCHES, dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)  # an own canvas: no pyplot state, safe in any thread
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[3, 2])
    figure.suptitle(title, fontsize=15, fontweight="bold", x=0.01, ha="left")
    _draw_reward(upper, steps, records)
    _draw_seconds(lower, steps, records)
    if not records:
        upper.text(0.5, 0.5, "no step was logged", ha="center", va="center", transform=upper.transAxes, fontsize=14)
    figure.align_ylabels()
    figure.savefig(out_png)


def _draw_reward(axes: Any, steps: list[int], records: list[dict[str, Any]]) -> None:
    rewards = _series(records, "reward/mean")
    marker = "o" if len(steps) <= MAX_MARKED_STEPS else ""
    axes.plot(steps, rewards, color="#1f5fa8", lw=2.4, marker=marker, ms=5, label="mean reward", zorder=3)
    for name, (label, colour, line) in LIGHT_SERIES.items():
        values = _series(records, name)
        if any(value > 0 for value in values):  # false for NaN
            axes.plot(steps, values, color=colour, linestyle=line, linewidth=1.6, label=label)
    known = [(step, reward) for step, reward in zip(steps, rewards, strict=True) if math.isfinite(reward)]
    for step, reward in {known[0], known[-1]} if known else set():
        offset = (0, 9) if reward < 0.93 else (0, -18)
        axes.annotate(f"{reward:.2f}", (step, reward), textcoords="offset points", xytext=offset, ha="center")
    finite = [reward for _, reward in known]
    axes.set_ylim(min([0.0, *finite]) - 0.03, max([1.0, *finite]) + 0.03)
    if max([1.0, *finite]) <= 1.0 and min([0.0, *finite]) >= 0.0:
        axes.yaxis.set_major_formatter(PercentFormatter(xmax=1.0))
    axes.set_ylabel("reward, share")
    _tidy(axes)


def _draw_seconds(axes: Any, steps: list[int], records: list[dict[str, Any]]) -> None:
    bottom = [0.0] * len(steps)
    for phase, colour in PHASE_COLOURS.items():
        seconds = [value if math.isfinite(value) else 0.0 for value in _series(records, f"time/{phase}_s")]
        axes.bar(steps, seconds, bottom=bottom, width=0.85, color=colour, label=phase)
        bottom = [below + own for below, own in zip(bottom, seconds, strict=True)]
    axes.set_ylabel("seconds")
    axes.set_xlabel("step")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    _tidy(axes)


def _tidy(axes: Any) -> None:
    axes.grid(axis="y", color="#dddddd", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=4, frameon=False, borderaxespad=0.2)


def _series(records: list[dict[str, Any]], name: str) -> list[float]:
    return [math.nan if record.get(name) is None else float(record[name]) for record in records]
