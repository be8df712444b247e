"""Figures of `lab candidates`, `lab compare` and `lab noise`, drawn from their reports."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.ticker import MultipleLocator, PercentFormatter

from gspo_ray.lab.candidate_report import GOLDEN, PEERS, REQUIRED_ACCURACY, is_required
from gspo_ray.lab.style import BLUE, GREY, ORANGE, RED, SERIES, tidy
from gspo_ray.lab.style import GOLDEN as GOLDEN_MARKER


def draw_candidates(figure: Any, report: dict[str, Any]) -> None:
    curve, ends = figure.subplots(1, 2, width_ratios=[3, 2])
    for one, colour in zip(report["runs"], SERIES * len(report["runs"]), strict=False):
        steps = [0, *(row["step"] for row in one["history"])]
        accuracy = [one["baseline"]["accuracy"], *(row["accuracy"] for row in one["history"])]
        curve.plot(steps, accuracy, "o-", ms=4, color=colour, label=f"seed {one['seed']}")
        golden = GOLDEN.get((one["seed"], report["steps"], report["examples"]), {})
        if is_required(report) and golden:
            marks = ([0, report["steps"]], [golden["baseline accuracy"], golden["final accuracy"]])
            curve.scatter(*marks, label="published, seed 42", **GOLDEN_MARKER)
    bars = {"before": report["mean"]["baseline"]["accuracy"], "GSPO, ours": report["mean"]["final"]["accuracy"]}
    if is_required(report):
        curve.axhline(REQUIRED_ACCURACY, color=RED, lw=1, ls="--", label=f"required of the mean: {REQUIRED_ACCURACY:g}")
        bars |= PEERS
    colours = [GREY, BLUE, *[ORANGE] * (len(bars) - 2)]
    ends.bar(list(bars), list(bars.values()), color=colours, width=0.65)
    for place, value in enumerate(bars.values()):
        ends.annotate(f"{value:.3f}", (place, value), ha="center", va="bottom", fontsize=9)
    for axes in (curve, ends):
        axes.set_ylim(0, 1)
        axes.yaxis.set_major_formatter(PercentFormatter(xmax=1.0))
    curve.legend(frameon=False, fontsize=9, loc="lower right")
    tidy(curve, title="accuracy on the validation questions", x="step", y="accuracy")
    peers = "; orange: published, seed 42" if len(bars) > 2 else ""
    tidy(ends, title=f"mean of the seeds{peers}", x="", y="")


def draw_compare(figure: Any, report: dict[str, Any]) -> None:
    direction, size, cut = figure.subplots(1, 3, sharey=True)
    rows = list(report["settings"].values())
    places = np.arange(len(rows))
    colours = [BLUE if row["variant"] != "grpo" else ORANGE for row in rows]
    for axes, key in ((direction, "cosine"), (size, "relative_error")):
        values = [row[key] for row in rows]
        axes.barh(places, [value or 0.0 for value in values], color=colours, height=0.62)
        for place, value in zip(places, values, strict=True):
            axes.annotate(" -" if value is None else f" {value:.3f}", (value or 0.0, place), va="center", fontsize=9)
        _room_for_labels(axes, [value or 0.0 for value in values])
    for shift, key, colour, label in (
        (-0.2, "cut_sequences", BLUE, "sequences with a cut token"),
        (0.2, "cut_tokens", GREY, "tokens"),
    ):
        values = [row[key] for row in rows]
        cut.barh(places + shift, values, color=colour, height=0.36, label=label)
        for place, value in zip(places + shift, values, strict=True):
            cut.annotate(f" {value:.1%}", (value, place), va="center", fontsize=8)
    _room_for_labels(cut, [row["cut_sequences"] for row in rows] + [row["cut_tokens"] for row in rows])
    cut.xaxis.set_major_formatter(PercentFormatter(xmax=1.0))
    cut.legend(frameon=False, fontsize=9, loc="upper center", bbox_to_anchor=(0.5, -0.06), ncols=2)
    direction.set_yticks(places, [row["label"] for row in rows])
    direction.invert_yaxis()
    tidy(direction, title="cosine with GSPO as published", x="", y="", grid="x")
    tidy(size, title="relative error against it", x="", y="", grid="x")
    tidy(cut, title="share that the clip cuts", x="", y="", grid="x")
    figure.supxlabel(f"rollouts {report['rollouts']}; current log-probs: {report['change']}", fontsize=8, color=GREY)


def _room_for_labels(axes: Any, values: list[float]) -> None:
    axes.set_xlim(1.2 * min([0.0, *values]), 1.2 * max([0.01, *values]))


def draw_noise(figure: Any, report: dict[str, Any]) -> None:
    axes = figure.subplots()
    for noise, colour in zip(report["noises"], SERIES * len(report["noises"]), strict=False):
        cells = [cell for cell in report["cells"] if cell["noise"] == noise]
        lengths = [cell["length"] for cell in cells]
        axes.plot(lengths, [cell["closed_form"] for cell in cells], color=colour, label=f"token noise {noise:g}")
        axes.scatter(lengths, [cell["simulated"] for cell in cells], color=colour, s=18, zorder=3)
    published = report["published"]
    if published:
        marks = ([row["length"] for row in published], [row["share"] for row in published])
        axes.scatter(*marks, label="published", **GOLDEN_MARKER)
    if report["measured"]:
        rows = report["measured"]["lengths"] or report["measured"]["steps"]
        known = [row for row in rows if row["outside"] is not None and row["mean_length"]]
        marks = ([row["mean_length"] for row in known], [row["outside"] for row in known])
        axes.scatter(*marks, marker="*", s=110, color=RED, zorder=6, label="measured in the run")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_ylim(-0.02, 1.02)
    axes.yaxis.set_major_formatter(PercentFormatter(xmax=1.0))
    axes.yaxis.set_major_locator(MultipleLocator(0.1))
    axes.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))
    title = "lines: closed form; points: simulated; independent Gaussian noise, no update"
    tidy(axes, title=title, x="tokens of the sequence", y="share outside the band")
