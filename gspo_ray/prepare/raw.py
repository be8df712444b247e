"""One pass over the raw rows, with a progress bar; what cannot be used is counted by reason and line."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from gspo_ray.data.columns import schema_names
from gspo_ray.data.rows import Row, file_kind, read_rows
from gspo_ray.errors import DataError
from gspo_ray.prepare.catalogue import Dataset
from gspo_ray.prepare.dedup import Deduplicator
from gspo_ray.prepare.records import Split

_NUMBERS_KEPT = 100  # of one reason
_REASONS_KEPT = 50
_OTHER = "another reason"
_REPORT_EVERY = 1000  # rows between updates of the bar


@dataclass(slots=True)
class Invalid:
    """Rows of one reason."""

    rows: int = 0
    numbers: list[int] = field(default_factory=list)  # of the first ones, in `unit`s from 1


@dataclass(slots=True)
class RawPass:
    unit: str  # "line" of a JSONL file, "row" of a Parquet file
    rows: int = 0
    invalid: dict[str, Invalid] = field(default_factory=dict)
    questions: Deduplicator = field(default_factory=Deduplicator)

    @property
    def num_invalid(self) -> int:
        return sum(item.rows for item in self.invalid.values())

    def refuse(self, number: int, error: DataError, where: str) -> None:
        # Messages are "<where>: <what is wrong>. <What to do about it>"; the middle is the reason.
        reason = re.split(r"\.(?= [A-Z])", str(error).removeprefix(f"{where}: "))[0].rstrip(".")
        if reason not in self.invalid and len(self.invalid) >= _REASONS_KEPT:
            reason = _OTHER
        item = self.invalid.setdefault(reason, Invalid())
        item.rows += 1
        if len(item.numbers) < _NUMBERS_KEPT:
            item.numbers.append(number)


def read_raw(path: Path, dataset: Dataset, split: Split, progress: Progress) -> RawPass:
    """Raises DataError when the file cannot be read, has no rows, or none that can be used."""
    result = RawPass("row" if file_kind(path) == "parquet" else "line")

    def bad_line(number: int, error: DataError) -> None:
        result.rows += 1
        result.refuse(number, error, f"{path}:{number}")

    rows = _with_bar(read_rows(path, optional=dataset.columns, on_bad_line=bad_line), path, progress)
    for row in rows:
        result.rows += 1
        try:
            record = dataset.read(row, split)
        except DataError as error:
            result.refuse(row.number, error, row.where)
        else:
            result.questions.add(record, row.number)
    if not len(result.questions) and not result.questions.conflicts:
        if not result.rows:
            raise DataError(f"{path} has no rows. Name the right file: --raw FILE")
        reason, item = max(result.invalid.items(), key=lambda pair: pair[1].rows)
        raise DataError(
            f"{path}: none of {result.rows:,} rows can be read as {dataset.name}. {item.rows:,} of them, the first in "
            f"{result.unit} {item.numbers[0]}: {reason}.{_columns(path)} Name the right file; for one of your own: "
            "gspo-ray prepare jsonl --question COLUMN --answer COLUMN --raw FILE"
        )
    return result


def progress_bar() -> Progress:
    """Gone when it is done; nothing where the output is no terminal."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        transient=True,
        disable=not sys.stdout.isatty(),
    )


def _with_bar(rows: Iterator[Row], path: Path, progress: Progress) -> Iterator[Row]:
    task = progress.add_task(f"reading {path.name}", total=_count_rows(path))
    for count, row in enumerate(rows, start=1):
        yield row
        if count % _REPORT_EVERY == 0:
            progress.update(task, completed=count)
    progress.remove_task(task)


def _columns(path: Path) -> str:
    """Of a Parquet file, of which only the columns asked for were read."""
    if file_kind(path) != "parquet":
        return ""
    import pyarrow.parquet as pq

    return f" Columns there: {', '.join(schema_names(pq.read_schema(path)))}."


def _count_rows(path: Path) -> int | None:
    """Cheaply; None when the file is damaged, which reading it will say better."""
    if file_kind(path) == "parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            return pq.read_metadata(path).num_rows
        except (pa.ArrowException, OSError):
            return None
    with path.open("rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
