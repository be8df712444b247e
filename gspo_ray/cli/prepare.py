"""`gspo-ray prepare`."""

from __future__ import annotations

import argparse
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gspo_ray.cli.arguments import refuse_rest
from gspo_ray.errors import ConfigError
from gspo_ray.prepare.catalogue import DATASETS, JSONL, any_file

if TYPE_CHECKING:
    from gspo_ray.prepare.request import Request

HELP = "turn a raw data set into files to train on and to be judged on, with a report"
EPILOG = (
    "Evaluation sets that were prepared in folders beside --out are compared with the training problems. "
    "An interrupted run leaves nothing behind; the same command starts it again, downloads go on where they stopped."
)
NAMES = (*DATASETS, JSONL)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dataset", choices=NAMES, metavar="DATASET", help=", ".join(NAMES))
    parser.add_argument("--raw", type=Path, metavar="FILE", help="local JSONL or Parquet file; without it from the hub")
    parser.add_argument("--revision", help="commit on the hub (default: the pinned one)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for the result (default: data/DATASET)")
    parser.add_argument("--split", choices=("train", "test"), help="train: train and dev; test: to be judged on")
    parser.add_argument("--dev-size", type=int, default=50, metavar="N", help="problems held out (default: 50)")
    parser.add_argument("--seed", type=int, default=42, metavar="N", help="of the split (default: 42)")
    parser.add_argument("--model", help="measure prompt lengths with this model: smollm2-135m or a folder")
    parser.add_argument(
        "--against",
        type=Path,
        nargs="+",
        action="extend",
        default=[],
        metavar="FILE",
        help="more evaluation sets to compare with: JSONL with a column question, problem or input",
    )
    parser.add_argument("--drop-contaminated", action="store_true", help="leave out what evaluation sets contain")
    parser.add_argument("--force", action="store_true", help="replace what is there")
    only = parser.add_argument_group("only for jsonl (JSONL or Parquet with columns of any name)")
    only.add_argument("--name", help="what evaluations call the data (default: name of --out)")
    only.add_argument("--question", metavar="COLUMN", help="default: question; a.b is b within a")
    only.add_argument("--answer", metavar="COLUMN", help="default: answer")
    only.add_argument("--id", metavar="COLUMN", help="default: NAME-<row from 0>")
    only.add_argument("--licence", help="to be written into the manifest")


def run(args: argparse.Namespace, rest: Sequence[str]) -> int:
    refuse_rest(rest)
    from rich.console import Console

    from gspo_ray.prepare.pipeline import prepare
    from gspo_ray.prepare.raw import progress_bar
    from gspo_ray.prepare.summary import summary
    from gspo_ray.prepare.tokens import prompt_counter

    request = _request(args)
    console = Console()
    try:
        with _stopped_by_signals(), progress_bar() as progress:
            done = prepare(request, progress, token_counter=prompt_counter)
    except _Stopped as stop:
        kept = "" if request.raw else "; what was loaded from the hub is kept"
        text = f"Stopped: nothing was written to {request.out}. The same command starts again{kept}."
        console.print(text, soft_wrap=True, highlight=False, markup=False)
        return 128 + stop.signal
    for line in summary(request, done):
        console.print(line, soft_wrap=True, highlight=False, markup=False)
    return 0


def _request(args: argparse.Namespace) -> Request:
    from gspo_ray.prepare.request import Request

    out = args.out or Path("data") / args.dataset
    own = {"name": args.name, "question": args.question, "answer": args.answer, "id": args.id, "licence": args.licence}
    columns: dict[str, str | None] = {}
    if args.dataset == JSONL:
        if args.raw is None:
            raise ConfigError("prepare jsonl reads a local file: --raw FILE")
        columns = {"question": args.question or "question", "answer": args.answer or "answer", "id": args.id}
        dataset = any_file(
            args.name or out.absolute().name,
            question=columns["question"] or "",
            answer=columns["answer"] or "",
            id_column=args.id,
            split=args.split or "train",
            licence=args.licence or "not stated",
        )
    else:
        given = [f"--{name}" for name, value in own.items() if value is not None]
        if given:
            raise ConfigError(f"{given[0]} belongs to `prepare jsonl`; the columns of {args.dataset} are known")
        dataset = DATASETS[args.dataset]
    if args.raw is not None and args.revision is not None:
        raise ConfigError("--revision is a commit on the hub, but --raw names a local file: give one of them")
    return Request(
        dataset=dataset,
        entry=args.dataset,
        split=args.split or dataset.split,
        out=out,
        raw=args.raw,
        revision=args.revision,
        columns=columns,
        dev_size=args.dev_size,
        seed=args.seed,
        model=args.model,
        against=tuple(args.against),
        drop_contaminated=args.drop_contaminated,
        force=args.force,
    )


class _Stopped(BaseException):
    """By a signal. Not an Exception: nothing on the way may take it for a fault of the data."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.signal = number


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """SIGINT and SIGTERM end the work at once, in order: temporary files go."""

    def stop(number: int, frame: Any) -> None:
        raise _Stopped(number)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
