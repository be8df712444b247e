"""`gspo-ray analyse`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from gspo_ray.cli.arguments import refuse_rest
from gspo_ray.errors import ConfigError, DataError

HELP = "figures, table and words from evaluations, or the curves of a run"
EPILOG = (
    "Result files or folders of them, the base model's among them, give progress.png, progress.md and progress.csv "
    "in --output. A run folder gives curves.png in that folder, or in --output."
)
METRICS_FILE = "metrics.jsonl"  # what makes a folder a run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="result files, folders of them, or one run")
    parser.add_argument("--output", type=Path, metavar="DIR", help="folder for what is written (default: analysis)")
    parser.add_argument("--title", default="", help="above the figure")
    parser.add_argument("--dpi", type=int, default=300, help="dots per inch of the figure (default: 300)")


def run(args: argparse.Namespace, rest: Sequence[str]) -> int:
    refuse_rest(rest)
    if args.dpi < 1:
        raise ConfigError(f"--dpi is {args.dpi}, but a figure needs at least 1")
    runs = [path for path in args.paths if (path / METRICS_FILE).exists()]
    if runs and len(args.paths) > 1:
        raise ConfigError(
            f"{runs[0]} is the folder of a run: analyse it alone, and result files in a call of their own"
        )
    try:
        return _curves(runs[0], args) if runs else _study(args)
    except OSError as error:
        raise DataError(f"{error.filename}: {error.strerror}. Check --output.") from error


def _study(args: argparse.Namespace) -> int:
    from gspo_ray.analyse.progress import plot_progress
    from gspo_ray.analyse.report import study_report
    from gspo_ray.analyse.study import read_study
    from gspo_ray.analyse.table import csv_table

    study = read_study(args.paths)
    output = args.output or Path("analysis")
    output.mkdir(parents=True, exist_ok=True)
    report = study_report(study, title=args.title)
    plot_progress(study, output / "progress.png", title=args.title, dpi=args.dpi)
    (output / "progress.md").write_text(report, encoding="utf-8")
    (output / "progress.csv").write_text(csv_table(study), encoding="utf-8")
    print(report)
    print(f"written: {output}/progress.png, progress.md, progress.csv")
    return 0


def _curves(run_dir: Path, args: argparse.Namespace) -> int:
    from gspo_ray.analyse.curves import plot_curves

    output = args.output or run_dir
    output.mkdir(parents=True, exist_ok=True)
    figure = output / "curves.png"
    plot_curves(run_dir / METRICS_FILE, figure, title=args.title or run_dir.resolve().name, dpi=args.dpi)
    print(f"written: {figure}")
    return 0
