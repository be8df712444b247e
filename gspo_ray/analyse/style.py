"""How every figure here looks: one font size, few lines, colours that a colour-blind reader can tell apart."""

from __future__ import annotations

from typing import Any

from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

# Okabe & Ito (2008), apart in lightness too
BLUE, ORANGE, GREEN, VERMILION, SKY, PURPLE = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7"
GREY, INK = "#8A8A8A", "#222222"

STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 8.0,
    "axes.labelsize": 9.5,
    "axes.edgecolor": "#666666",
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "#E2E2E2",
    "grid.linewidth": 0.7,
    "text.color": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 9.0,
    "ytick.labelsize": 9.0,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "lines.solid_capstyle": "round",
}


def styled() -> Any:
    """Context in which a figure is made and saved; the process's own settings stay as they are."""
    return rc_context(STYLE)


def new_figure(width: float, height: float, *, row_gap: float = 0.04) -> Figure:
    """Inches. An own canvas: no pyplot state, safe in any thread."""
    figure = Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(h_pad=row_gap))
    FigureCanvasAgg(figure)
    return figure
