"""`gspo-ray verify`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gspo_ray.cli.arguments import refuse_rest
from gspo_ray.errors import ConfigError
from gspo_ray.reward.extract import STYLES

HELP = "judge a file of recorded answers: agreement with its labels, timeouts, what cannot be read"
EPILOG = (
    "FILE holds one JSON object a line. Which answers are right, and why, is in gspo_ray/reward/ANSWERS.md. "
    "Example: gspo-ray verify solutions.jsonl --label correct --style answer_line --json report.json"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="JSONL")
    parser.add_argument("--gold", default="gold", metavar="COLUMN", help="gold answers (default: gold)")
    parser.add_argument("--completion", default="completion", metavar="COLUMN", help="default: completion")
    parser.add_argument("--label", metavar="COLUMN", help="true/false, 1/0, correct/wrong: was it right?")
    parser.add_argument(
        "--style",
        choices=STYLES,
        default="boxed",
        help="where the answer stands: the last \\boxed{} (default), the last line Answer: or A:, the last line ####, "
        "the whole text, any of them (a box, else the last formula, else the text)",
    )
    parser.add_argument("--limit", type=int, metavar="N", help="only the first N rows")
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="verifier processes (default: 2)")
    parser.add_argument(
        "--timeout", type=float, default=5.0, metavar="S", help="seconds an answer may take (default: 5)"
    )
    parser.add_argument("--memory", type=int, default=2048, metavar="MIB", help="of a process (default: 2048)")
    parser.add_argument("--examples", type=int, default=10, metavar="N", help="items shown of each list (default: 10)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the whole report there")


def run(args: argparse.Namespace, rest: Sequence[str]) -> int:
    refuse_rest(rest)
    for flag, value, least in (
        ("--workers", args.workers, 1),
        ("--limit", args.limit, 1),
        ("--examples", args.examples, 0),
        ("--memory", args.memory, 256),
    ):
        if value is not None and value < least:
            raise ConfigError(f"{flag} is {value}; it must be at least {least}")
    if args.timeout <= 0:
        raise ConfigError(f"--timeout is {args.timeout:g}; it must be above 0")
    from rich.console import Console

    from gspo_ray.audit.records import Columns, read_records
    from gspo_ray.audit.render import render

    records = read_records(args.file, Columns(args.gold, args.completion, args.label), limit=args.limit)
    report = {"file": str(args.file), **_judge(records, args)}
    render(report, Console(), num_examples=args.examples)
    if args.json is not None:
        _write(report, args.json)
    return 0


def _judge(records: Sequence[Any], args: argparse.Namespace) -> dict[str, Any]:
    """With a progress bar on the terminal's other stream, so that the report can be piped."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from gspo_ray.audit.run import Settings, audit

    settings = Settings(args.style, args.workers, args.timeout, args.memory)
    columns = (TextColumn("judging"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("judging", total=len(records))
        return audit(records, settings, on_done=lambda index: progress.advance(task))


def _write(report: dict[str, Any], path: Path) -> None:
    try:
        path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--json {path}: cannot be written ({error.strerror})") from error
