"""How the figures look."""

from __future__ import annotations

from typing import Any

BLUE, ORANGE, GREEN, PURPLE, RED, GREY = "#1f5fa8", "#e0862a", "#3f8f4a", "#8a5a99", "#b8403c", "#8a929b"
SERIES = (BLUE, ORANGE, GREEN, PURPLE, RED, GREY, "#2a9d9d", "#6b4f2a", "#c9579a")
GOLDEN = {"marker": "D", "s": 34, "facecolors": "none", "edgecolors": "#222222", "linewidths": 1.2, "zorder": 5}


def tidy(axes: Any, *, title: str, x: str, y: str, grid: str = "y") -> None:
    axes.set_title(title, fontsize=11, loc="left")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(axis=grid, color="#dddddd", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
