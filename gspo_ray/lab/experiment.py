"""What an experiment hands over, and how it reaches a person: lines on the screen, a JSON file, a figure."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from gspo_ray.errors import ConfigError
from gspo_ray.lab.golden import Check

DPI = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The first row holds the titles; all rows are equally long."""

    title: str
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    name: str  # of the files
    title: str
    report: dict[str, Any]  # what the JSON file holds, next to `checks`
    checks: Sequence[Check]
    tables: Sequence[Table] = ()
    notes: Sequence[str] = ()
    size_inches: tuple[float, float]
    draw: Callable[[Any, dict[str, Any]], None]  # into a matplotlib Figure, from `report`

    @property
    def missed(self) -> list[Check]:
        return [check for check in self.checks if check.agrees is False]


def one_thread() -> None:
    """For the whole process: on tensors of a few numbers threads only wait for each other."""
    torch.set_num_threads(1)


def output_folder(path: str | Path) -> Path:
    """The folder, made if need be. Raises ConfigError when it cannot be."""
    folder = Path(path).expanduser()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--output {path}: no folder can be made there ({error.strerror})") from error
    return folder


def publish(experiment: Experiment, folder: Path) -> list[Path]:
    """Writes `<name>.json` and `<name>.png`, prints what they hold, and returns their paths."""
    data = folder / f"{experiment.name}.json"
    checks = [check.to_json() for check in experiment.checks]
    text = json.dumps({**experiment.report, "checks": checks}, indent=2, allow_nan=False, ensure_ascii=False)
    data.write_text(text + "\n", encoding="utf-8")
    picture = folder / f"{experiment.name}.png"
    _draw(experiment, picture)
    print("\n".join(describe(experiment)))
    print(f"\nwritten: {data}, {picture}")
    return [data, picture]


def describe(experiment: Experiment) -> list[str]:
    """Plain lines, whatever the width of the terminal."""
    lines = [experiment.title]
    for table in experiment.tables:
        lines += ["", table.title, *_aligned(table.rows)]
    if experiment.checks:
        rows = [["what", "golden", "ours", "ours - golden", "", "rule"]]
        rows += [
            [
                check.name,
                f"{check.golden:.10g}",
                f"{check.ours:.10g}",
                f"{check.error:+.1e}",
                {True: "ok", False: "MISSED", None: ""}[check.agrees],
                check.rule,
            ]
            for check in experiment.checks
        ]
        lines += ["", "golden values beside ours", *_aligned(rows, words=(0, 5))]
    if experiment.notes:
        lines += ["", *experiment.notes]
    return lines


def _aligned(rows: Sequence[Sequence[str]], words: Sequence[int] = (0,)) -> list[str]:
    """Columns of words to the left, those of numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  "
        + "  ".join(
            cell.ljust(width) if i in words else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _draw(experiment: Experiment, path: Path) -> None:
    figure = Figure(figsize=experiment.size_inches, dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)  # an own canvas: no pyplot state
    figure.suptitle(experiment.title, fontsize=13, fontweight="bold", x=0.01, ha="left")
    experiment.draw(figure, experiment.report)
    figure.savefig(path)
