"""Figures of `lab objective`, `lab update` and `lab online`, drawn from their reports."""

from __future__ import annotations

from typing import Any

from matplotlib.ticker import MaxNLocator

from gspo_ray.lab.style import BLUE, GOLDEN, GREEN, GREY, ORANGE, RED, tidy


def draw_objective(figure: Any, report: dict[str, Any]) -> None:
    clip, tokens, length = figure.subplots(1, 3)
    _draw_clip(clip, report)
    _draw_cancellation(tokens, report["cancellation"])
    rows = report["length_normalization"]
    lengths = [row["length"] for row in rows]
    length.loglog(lengths, [row["raw_ratio"] for row in rows], "o-", color=RED, label="product of the token ratios")
    length.loglog(lengths, [row["gspo_ratio"] for row in rows], "o-", color=BLUE, label="GSPO: its n-th root")
    length.legend(frameon=False, fontsize=9)
    tidy(length, title="every token ratio is 1.01", x="tokens", y="ratio of the sequence")


def _draw_clip(axes: Any, report: dict[str, Any]) -> None:
    low, high = 1 - report["epsilon"], 1 + report["epsilon"]
    ends = (0.4, 1.6)
    # min(s A, clip(s) A) is straight between these points
    axes.plot([ends[0], high, ends[1]], [ends[0], high, high], color=BLUE, lw=2, label="A = +1")
    axes.plot([ends[0], low, ends[1]], [-low, -low, -ends[1]], color=ORANGE, lw=2, label="A = -1")
    axes.axvspan(low, high, color="#eeeeee", zorder=0, label="inside the band")
    rows = report["clipping"]
    axes.scatter([row["ratio"] for row in rows], [row["value"] for row in rows], label="computed corners", **GOLDEN)
    for row in rows:
        slope = row["gradient"][0]
        text = "gradient 0" if slope == 0 else f"{slope:+.2f} a token"
        x, y, align = (0, 8, "center") if slope == 0 else (9, -10, "left") if slope > 0 else (-8, -12, "right")
        where = (x, y if row["advantage"] > 0 or slope else -16)
        axes.annotate(
            text, (row["ratio"], row["value"]), fontsize=8, ha=align, xytext=where, textcoords="offset points"
        )
    axes.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(0.0, 0.52))
    tidy(axes, title="the clip is one-sided by the sign of A", x="sequence ratio s", y="objective")


def _draw_cancellation(axes: Any, rows: list[dict[str, Any]]) -> None:
    variants = list(dict.fromkeys(row["variant"] for row in rows))
    colours = {("A", 1, 0): BLUE, ("A", 1, 1): "#8fb3dd", ("A", -1, 0): ORANGE, ("A", -1, 1): "#f0c391"}
    for offset, (advantage, token) in enumerate([(1, 0), (1, 1), (-1, 0), (-1, 1)]):
        values = [row["gradient"][token] for row in rows if row["advantage"] == advantage]
        places = [place + (offset - 1.5) * 0.2 for place in range(len(variants))]
        label = f"A = {advantage:+d}, token with ratio {0.5 if token == 0 else 2:g}"
        axes.bar(places, values, width=0.18, color=colours["A", advantage, token], label=label)
        for place, value in zip(places, values, strict=True):
            if value == 0:
                axes.annotate("0", (place, 0), ha="center", va="bottom", fontsize=9)
    axes.axhline(0, color=GREY, lw=0.8)
    axes.set_xticks(range(len(variants)), variants)
    axes.set_ylim(top=1.05)
    axes.legend(frameon=False, fontsize=8, loc="upper left")
    tidy(axes, title="token ratios 0.5 and 2: who keeps a gradient", x="", y="gradient of a token")


def draw_update(figure: Any, report: dict[str, Any]) -> None:
    reward, ratios, objective = figure.subplots(1, 3)
    history = report["history"]
    steps = [row["step"] for row in history]
    reward.plot(steps, [row["exact_expected_reward"] for row in history], "o-", color=BLUE)
    tidy(reward, title="expected reward, exact", x="SGD step", y="reward")
    ratios.axhspan(1 - report["epsilon"], 1 + report["epsilon"], color="#eeeeee", label="inside the band")
    for row, colour in ((0, ORANGE), (1, GREY), (3, BLUE)):
        name = "01 and 10" if row == 1 else "".join(map(str, report["responses"][row]))
        label = f"answer {name}, A = {report['advantages'][row]:+.2f}"
        ratios.plot(steps, [point["ratios"][row] for point in history], "o-", color=colour, label=label)
    ratios.margins(y=0.5)  # room for the legend
    ratios.legend(frameon=False, fontsize=9, loc="upper left")
    tidy(ratios, title="ratios: outside the band the gradient is 0", x="SGD step", y="sequence ratio")
    objective.plot(steps, [row["objective"] for row in history], "o-", color=GREEN)
    tidy(objective, title="clipped objective", x="SGD step", y="objective")
    for axes in (reward, ratios, objective):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def draw_online(figure: Any, report: dict[str, Any]) -> None:
    reward, kl = figure.subplots(1, 2)
    betas = list(dict.fromkeys(one["beta"] for one in report["runs"]))
    colours = [BLUE, ORANGE, GREEN, RED, GREY]
    for one in report["runs"]:
        index = betas.index(one["beta"])
        colour, first = colours[index % len(colours)], one is _first(report["runs"], one["beta"])
        label = f"beta {one['beta']:g}, each seed" if first else None
        rounds = [0, *(row["round"] for row in one["history"])]
        exact = [0.5, *(row["exact_reward_after_update"] for row in one["history"])]
        reward.plot(rounds, exact, color=colour, lw=1.8, label=label)
        kls = [0.0, *(row["exact_reference_kl_after_update"] for row in one["history"])]
        kl.plot(rounds, kls, color=colour, lw=1.8, label=label)
        drawn = [row["sampled_reference_kl_before_update"] for row in one["history"]]
        kl.scatter(rounds[:-1], drawn, color=colour, s=9, label=f"k3 from the samples, beta {one['beta']:g}" * first)
    reward.set_ylim(0.45, 1.02)
    reward.axhline(1.0, color=GREY, lw=0.8)
    for axes in (reward, kl):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend(frameon=False, fontsize=9)
    tidy(reward, title="expected reward, exact", x="round", y="reward")
    tidy(kl, title="KL to the initial policy, exact", x="round", y="nats")


def _first(runs: list[dict[str, Any]], beta: float) -> dict[str, Any]:
    return next(one for one in runs if one["beta"] == beta)
