"""The figure of a study: (a) accuracy of base and checkpoints, (b) format and length along the steps."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, PercentFormatter

from gspo_ray.analyse.study import Model, Study
from gspo_ray.analyse.style import BLUE, GREEN, INK, ORANGE, VERMILION, new_figure, styled
from gspo_ray.evaluation.verdict import metric_label

MIN_WIDTH, MAX_WIDTH, HEIGHT = 11.0, 16.0, 4.9  # inches
BAR = 0.38  # of the distance between two models
_MOST_LABELLED = 12  # models; beyond that numbers in bars and all ticks would run into each other


def plot_progress(study: Study, out_png: Path, *, title: str, dpi: int) -> None:
    """Bars and lines with 95 % intervals; circles are single runs of a model that was evaluated several times."""
    with styled():
        figure = new_figure(min(MAX_WIDTH, max(MIN_WIDTH, 5.0 + 0.62 * len(study.models))), HEIGHT)
        left, right = figure.subplots(1, 2, width_ratios=[1.3, 1.0])
        _draw_accuracy(left, study)
        _draw_output(right, study)
        if title:
            figure.suptitle(title, fontsize=12, fontweight="bold", x=0.01, ha="left")
        note = textwrap.fill(_footnote(study), round(14.5 * figure.get_figwidth()))
        figure.supxlabel(note, fontsize=8, x=0.01, ha="left", color="#555555", linespacing=1.4)
        figure.savefig(out_png, dpi=dpi)


def _draw_accuracy(axes: Any, study: Study) -> None:
    n, top = study.samples_per_problem, study.base.result.top_metric
    series = [("average", BLUE, "white", -BAR / 2), (top, ORANGE, INK, BAR / 2)]
    if n == 1:  # avg@1 is all there is
        series = [("average", BLUE, "white", 0.0)]
    handles = []
    for metric, colour, ink, offset in series:
        means = [model.result.means[metric] for model in study.models]
        places = [place + offset for place in range(len(means))]
        bars = axes.bar(places, means, width=BAR, color=colour)
        if metric == "average" and study.best is not None:
            best = bars[study.models.index(study.best)]
            best.set_hatch("////")
            best.set_edgecolor("white")
        for bar, model, mean in zip(bars, study.models, means, strict=True):
            place = bar.get_x() + BAR / 2
            _draw_interval(axes, place, model, metric)
            _draw_runs(axes, place, model, metric, colour)
            if len(study.models) <= _MOST_LABELLED and mean > 0.06:
                style = {"ha": "center", "va": "bottom", "fontsize": 7.5, "color": ink, "fontweight": "bold"}
                box = {"facecolor": colour, "edgecolor": "none", "pad": 0.8}
                axes.text(place, 0.012, f"{100 * mean:.1f}", bbox=box, **style)
        _draw_spread(axes, study.base, metric, colour)
        handles.append(Patch(color=colour, label=metric_label(metric, n) + " (any)" * (metric == top != "average")))
    if study.best is not None:
        handles.append(Patch(facecolor=BLUE, edgecolor="white", hatch="////", label="best checkpoint"))
    axes.set_ylabel("share solved")
    axes.set_ylim(0.0, 1.08)
    axes.yaxis.set_major_formatter(PercentFormatter(xmax=1.0, decimals=0))
    every = math.ceil(len(study.models) / (2 * _MOST_LABELLED))
    ticks = range(0, len(study.models), every)
    axes.set_xticks(ticks, [_tick(study.models[place]) for place in ticks])
    axes.set_xlim(-0.6, len(study.models) - 0.4)
    axes.set_xlabel("training step")
    axes.tick_params(axis="x", length=0)
    _title(axes, "(a) Accuracy", handles)


def _draw_output(axes: Any, study: Study) -> None:
    places, ticks = _steps(study.models)
    twin = axes.twinx()
    twin.grid(visible=False)
    twin.spines["right"].set_visible(True)
    apart = 0.006 * (places[-1] - places[0])  # so that two intervals at one step do not lie on each other
    for side, metric, colour, marker, line, shift in (
        (axes, "format", GREEN, "o", "-", -apart),
        (twin, "tokens", VERMILION, "s", "--", apart),
    ):
        at = [place + shift for place in places]
        means = [model.result.means[metric] for model in study.models]
        label = metric_label(metric, study.samples_per_problem)
        side.plot(at, means, color=colour, marker=marker, ms=5, lw=2.0, ls=line, label=label, zorder=3)
        for place, model in zip(at, study.models, strict=True):
            _draw_interval(side, place, model, metric, colour=colour)
            _draw_runs(side, place, model, metric, colour)
    axes.set_ylabel("format rate", color=GREEN)
    axes.set_ylim(0.0, 1.08)
    axes.yaxis.set_major_formatter(PercentFormatter(xmax=1.0, decimals=0))
    twin.set_ylabel("mean completion tokens", color=VERMILION)
    highest = max(_highest(model, "tokens") for model in study.models)
    twin.set_ylim(0.0, 1.08 * _round_up(highest))
    twin.yaxis.set_major_formatter(FuncFormatter(lambda tokens, _: f"{tokens:,.0f}"))
    axes.set_xticks(places, ticks)
    axes.set_xlabel("training step")
    _title(axes, "(b) Output", [*axes.get_lines()[:1], *twin.get_lines()[:1]])


def _title(axes: Any, title: str, handles: Sequence[Any]) -> None:
    """The legend stands above the plot, where nothing is drawn."""
    axes.set_title(title, pad=26)
    axes.legend(handles=handles, loc="lower left", bbox_to_anchor=(-0.01, 0.995), ncols=len(handles), borderaxespad=0.3)


def _draw_interval(axes: Any, place: float, model: Model, metric: str, *, colour: str = INK) -> None:
    estimate = model.result.estimate(metric)
    if estimate.is_known:
        below, above = max(0.0, estimate.value - estimate.low), max(0.0, estimate.high - estimate.value)
        style = {"ecolor": colour, "elinewidth": 1.0, "capsize": 2.5, "zorder": 4, "alpha": 0.75}
        axes.errorbar([place], [estimate.value], yerr=[[below], [above]], fmt="none", **style)


def _draw_runs(axes: Any, place: float, model: Model, metric: str, colour: str) -> None:
    if len(model.runs) > 1:
        values = [run.means[metric] for run in model.runs]
        axes.plot([place] * len(values), values, "o", ms=4.0, mfc="white", mec=colour, mew=1.1, zorder=5)


def _draw_spread(axes: Any, base: Model, metric: str, colour: str) -> None:
    """Between the lowest and the highest run of the base: what moves without training."""
    values = [run.means[metric] for run in base.runs]
    axes.axhspan(min(values), max(values), color=colour, alpha=0.16, lw=0, zorder=0.5)
    axes.axhline(base.result.means[metric], color=colour, lw=0.9, ls=":", zorder=0.6)


def _steps(models: Sequence[Model]) -> tuple[list[float], list[str]]:
    """True distances between steps where all are known; the base is step 0."""
    steps = [0 if model.result.is_base else model.result.step for model in models]
    places = [float(step) for step in steps if step is not None]
    if len(places) < len(models) or len(set(places)) < len(places):
        places = [float(place) for place in range(len(models))]
    ticks = [_tick(model) for model in models]
    return places, [tick if index % math.ceil(len(ticks) / 12) == 0 else "" for index, tick in enumerate(ticks)]


def _tick(model: Model) -> str:
    return model.label.removeprefix("Step ")


def _highest(model: Model, metric: str) -> float:
    estimate = model.result.estimate(metric)
    return max(estimate.value, *(run.means[metric] for run in model.runs), estimate.high if estimate.is_known else 0.0)


def _round_up(tokens: float) -> float:
    """To the next 1000, or the next round number below that."""
    unit = 1000.0 if tokens > 1000 else 10.0 ** math.floor(math.log10(tokens))
    return unit * math.ceil(tokens / unit)


def _footnote(study: Study) -> str:
    n, base = study.samples_per_problem, study.base
    problems = sorted({model.result.num_problems for model in study.models})
    count = str(problems[0]) if len(problems) == 1 else f"{problems[0]} to {problems[-1]}"
    text = f"{count} problems, {n} sample{'s' * (n > 1)} each. Error bars: 95 % intervals over problems"
    text += " (bootstrap). " if study.has_records else " (Wilson on the number of problems: no problem records). "
    if len(base.runs) > 1:
        text += f"Base: mean of {len(base.runs)} evaluations (circles); the band is their spread. "
    return text + f"Hatched: {study.best_rule}; a mark, not a claim." * (study.best is not None)
