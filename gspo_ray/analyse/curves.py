"""The curves of a run as one figure: reward, groups, lengths, clip, mismatch, KL, gradient, seconds by phase.

A panel is drawn when the run logged one of its series; nothing is assumed about which metrics exist.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.ticker import MaxNLocator, PercentFormatter
from numpy.typing import NDArray

from gspo_ray.analyse.style import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, new_figure, styled
from gspo_ray.errors import DataError
from gspo_ray.evaluation.fields import read_objects

PANEL_WIDTH, PANEL_HEIGHT, COLUMNS = 5.2, 2.5, 2  # inches
SMOOTHED_FROM = 60  # steps; a longer run is drawn as its running mean over the pale raw values
MARKED_UP_TO = 40  # steps


@dataclass(frozen=True, slots=True)
class Series:
    metric: str
    label: str
    colour: str
    line: str = "-"
    is_main: bool = False  # drawn thicker


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    unit: str
    series: tuple[Series, ...]
    is_share: bool = False  # in percent, up to 100 %
    is_small: bool = False  # a share whose axis ends above the largest value
    is_log: bool = False  # where all values are above 0
    is_stacked: bool = False
    is_sparse: bool = False  # not every step has a number; the line goes on over the others
    band: tuple[str, str] | None = None  # metrics around the first series


PANELS = (
    Panel(
        "Reward",
        "share of completions",
        (
            Series("reward/mean", "mean reward", BLUE, is_main=True),
            Series("outcome/no_answer_frac", "no answer", VERMILION, ":"),
            Series("completion/truncated_frac", "truncated", ORANGE, "--"),
        ),
        is_share=True,
    ),
    Panel(
        "Evaluation",
        "share solved",
        (
            Series("eval/average", "avg@n", BLUE, is_main=True),
            Series("eval/pass_at_n", "pass@n", ORANGE, "--"),
            Series("eval/majority", "maj@n", GREEN, ":"),
        ),
        is_share=True,
        is_sparse=True,
        band=("eval/average_low", "eval/average_high"),
    ),
    Panel(
        "Groups",
        "share of groups",
        (
            Series("groups/effective_frac", "with a gradient", BLUE, is_main=True),
            Series("groups/all_right_frac", "all right", GREEN, "--"),
            Series("groups/all_wrong_frac", "all wrong", VERMILION, ":"),
            Series("groups/degenerate_frac", "all equal", GREY, "-."),
        ),
        is_share=True,
    ),
    Panel(
        "Completion length",
        "tokens",
        (
            Series("completion/len_mean", "mean", BLUE, is_main=True),
            Series("completion/len_p50", "median", SKY, "--"),
            Series("completion/len_p95", "p95", ORANGE, "-."),
            Series("completion/len_max", "longest", GREY, ":"),
        ),
    ),
    Panel(
        "Clip",
        "share of sequences",
        (
            Series("gspo/clip_frac", "gradient cut", BLUE, is_main=True),
            Series("gspo/clip_frac_low", "low end", VERMILION, ":"),
            Series("gspo/clip_frac_high", "high end", GREEN, "--"),
            Series("mismatch/clip_frac", "mismatch alone", GREY, "-."),
        ),
        is_share=True,
        is_small=True,
    ),
    Panel(
        "Mismatch of sampler and learner",
        "|log-ratio|",
        (
            Series("mismatch/seq_log_ratio_std", "sequence, std", BLUE, is_main=True),
            Series("mismatch/seq_log_ratio_max", "sequence, largest", VERMILION, ":"),
            Series("mismatch/token_abs_diff_mean", "token, mean", GREEN, "--"),
        ),
        is_log=True,
    ),
    Panel(
        "KL to the reference",
        "nats a token",
        (Series("kl/k3", "k3", BLUE, is_main=True), Series("kl/k1", "k1", GREY, "--")),
    ),
    Panel(
        "Gradient norm",
        "before clipping",
        (Series("learner/grad_norm", "mean over updates", BLUE, is_main=True),),
    ),
    Panel(
        "Time by phase",
        "seconds",
        (
            Series("time/rollout_s", "rollout", BLUE),
            Series("time/reward_s", "reward", ORANGE),
            Series("time/train_s", "train", GREEN),
            Series("time/sync_s", "sync", PURPLE),
        ),
        is_stacked=True,
    ),
)

Floats = NDArray[np.float64]


def read_curves(metrics_jsonl: Path) -> tuple[Floats, dict[str, Floats]]:
    """Steps [S] and every metric [S], NaN where a step has no number. Raises DataError with file and line."""
    records = list(read_objects(metrics_jsonl))
    if not records:
        raise DataError(f"{metrics_jsonl}: no step was logged")
    steps = np.array([record.whole("step") for record in records], dtype=np.float64)
    names = {name for record in records for name in record.data if "/" in name}
    curves = {}
    for name in sorted(names):
        numbers = [math.nan if record.data.get(name) is None else record.number(name) for record in records]
        curves[name] = np.array(numbers)
    return steps, curves


def plot_curves(metrics_jsonl: Path, out_png: Path, *, title: str, dpi: int) -> None:
    """Raises DataError when the file has none of the metrics of `PANELS`."""
    steps, curves = read_curves(metrics_jsonl)
    known = {name for name, values in curves.items() if np.isfinite(values).any()}
    panels = [panel for panel in PANELS if any(series.metric in known for series in panel.series)]
    if not panels:
        raise DataError(f"{metrics_jsonl}: none of the metrics that are drawn is in it")
    rows = math.ceil(len(panels) / COLUMNS)
    with styled():
        figure = new_figure(PANEL_WIDTH * COLUMNS, PANEL_HEIGHT * rows + 0.7, row_gap=0.08)
        grid = figure.subplots(rows, COLUMNS, squeeze=False)
        window = _window(len(steps))
        for axes, panel in zip(grid.flat, panels, strict=False):
            _draw(axes, panel, steps, {name: curves[name] for name in known}, window)
        for axes in grid.flat[len(panels) :]:
            axes.set_axis_off()
        for axes in grid.flat[max(0, len(panels) - COLUMNS) : len(panels)]:
            axes.set_xlabel("step")
        figure.suptitle(title, fontsize=12, fontweight="bold", x=0.01, ha="left")
        figure.align_ylabels()
        figure.supxlabel(_note(panels, curves, window), fontsize=8, x=0.01, ha="left", color="#555555")
        figure.savefig(out_png, dpi=dpi)


def _note(panels: Sequence[Panel], curves: dict[str, Floats], window: int) -> str:
    dense = [panel for panel in panels if not panel.is_sparse]
    drawn = [curves[series.metric] for panel in dense for series in panel.series if series.metric in curves]
    has_band = any(panel.band and panel.band[0] in curves for panel in panels)
    note = f"Thick: mean of {window} steps, centred; pale: single steps. " * (window > 1)
    note += "Shaded: 95 % interval. " * has_band
    return note + "A gap: no number at that step (no update)." * any(np.isnan(values).any() for values in drawn)


def _draw(axes: Any, panel: Panel, steps: Floats, curves: dict[str, Floats], window: int) -> None:
    drawn = [series for series in panel.series if series.metric in curves]
    if panel.is_stacked:
        _stack(axes, drawn, steps, curves, window)
    else:
        if panel.band and all(name in curves for name in panel.band):
            low, high = (curves[name] for name in panel.band)
            there = np.isfinite(low) & np.isfinite(high)
            axes.fill_between(steps[there], low[there], high[there], color=drawn[0].colour, alpha=0.15, lw=0)
        for series in drawn:
            there = np.isfinite(curves[series.metric]) if panel.is_sparse else np.full(len(steps), True)
            _line(axes, series, steps[there], curves[series.metric][there], 1 if panel.is_sparse else window)
    axes.set_title(panel.title, pad=22)
    axes.set_ylabel(panel.unit)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    margin = max(0.6, 0.015 * (steps.max() - steps.min()))
    axes.set_xlim(steps.min() - margin, steps.max() + margin)
    values = np.concatenate([curves[series.metric] for series in drawn])
    values = values[np.isfinite(values)]
    if panel.is_share and values.min() >= 0 and values.max() <= 1:
        top = max(0.1, 1.2 * values.max()) if panel.is_small else 1.04
        axes.set_ylim(-0.02 * top, top)
        axes.yaxis.set_major_formatter(PercentFormatter(xmax=1.0, decimals=0))
    elif panel.is_log and values.min() > 0 and values.max() > 10 * values.min():
        axes.set_yscale("log")
    elif values.min() >= 0:
        axes.set_ylim(bottom=0)
    place = {"loc": "lower left", "bbox_to_anchor": (-0.01, 0.99), "borderaxespad": 0.3}
    legend = axes.legend(ncols=4, columnspacing=1.2, handlelength=1.8, **place)
    legend.set_in_layout(False)  # a long one must not narrow the panel


def _line(axes: Any, series: Series, steps: Floats, values: Floats, window: int) -> None:
    width = 2.2 if series.is_main else 1.5
    if window > 1:
        axes.plot(steps, values, color=series.colour, lw=0.7, alpha=0.3)
    marker = "o" if len(steps) <= MARKED_UP_TO and series.is_main else ""
    smooth = running_mean(values, window)
    axes.plot(steps, smooth, color=series.colour, ls=series.line, lw=width, marker=marker, ms=3.5, label=series.label)


def _stack(axes: Any, drawn: Sequence[Series], steps: Floats, curves: dict[str, Floats], window: int) -> None:
    layers = [running_mean(np.nan_to_num(curves[series.metric]), window) for series in drawn]
    if window > 1:
        axes.stackplot(steps, layers, colors=[s.colour for s in drawn], labels=[s.label for s in drawn], lw=0)
        return
    bottom = np.zeros(len(steps))
    for series, layer in zip(drawn, layers, strict=True):
        axes.bar(steps, layer, bottom=bottom, width=0.85, color=series.colour, label=series.label)
        bottom += layer


def running_mean(values: Floats, window: int) -> Floats:
    """Centred, over what there is at the ends and between gaps; a gap stays a gap."""
    if window <= 1:
        return values
    known = np.isfinite(values)
    kernel = np.ones(window)
    total = np.convolve(np.where(known, values, 0.0), kernel, mode="same")
    count = np.convolve(known.astype(np.float64), kernel, mode="same")
    return np.where(known, total / np.maximum(count, 1.0), math.nan)


def _window(num_steps: int) -> int:
    """An odd number of steps, a twentieth of the run."""
    return 1 if num_steps < SMOOTHED_FROM else 2 * (num_steps // 40) + 1
