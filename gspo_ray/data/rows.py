"""Rows of a JSONL or Parquet file, each with the place that an error message names."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gspo_ray.data.columns import missing_column, schema_names
from gspo_ray.errors import DataError

BATCH_ROWS = 1024  # Parquet rows decoded at a time: bounds memory, and what max_problems reads in vain

READ_BYTES = 1 << 20  # of a Parquet file at a time

FileKind = Literal["jsonl", "parquet"]


class NumberText(str):
    """A JSON number as it was written: 2209...424 and 27.0 must survive the way to an answer string."""


@dataclass(frozen=True, slots=True)
class Row:
    index: int  # data row, from 0; blank lines do not count
    number: int  # line of a JSONL file, row of a Parquet file, from 1
    where: str  # "train.jsonl:13" or "train.parquet, row 13"
    fields: dict[str, Any]


OnBadLine = Callable[[int, DataError], None]  # line number, and what is wrong with it


def file_kind(path: Path) -> FileKind:
    """What the file is, by its first bytes and never by its name. Raises DataError when it cannot be read."""
    if not path.exists():
        raise DataError(f"{path}: no such file. Set data.path to an existing file (relative to {Path.cwd()}).")
    if path.is_dir():
        raise DataError(f"{path} is a folder. Set data.path to one .jsonl or .parquet file.")
    try:
        with path.open("rb") as file:
            head = file.read(4)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}). Check its permissions.") from error
    if head[:2] == b"\x1f\x8b":
        raise DataError(f"{path} is compressed with gzip. Unpack it (gunzip) and set data.path to the result.")
    return "parquet" if head == b"PAR1" else "jsonl"


def read_rows(
    path: Path, *, required: Sequence[str] = (), optional: Sequence[str] = (), on_bad_line: OnBadLine | None = None
) -> Iterator[Row]:
    """All rows in file order. Of a Parquet file only the named columns (dotted names too) are read.

    A line that is no JSON object raises DataError; with `on_bad_line` it is handed there and reading goes on.
    """
    if file_kind(path) == "parquet":
        return _read_parquet(path, required, optional)
    return _read_jsonl(path, on_bad_line)


def _read_jsonl(path: Path, on_bad_line: OnBadLine | None) -> Iterator[Row]:
    index = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):  # bytes: only \n ends a line, U+2028 in a question does not
            if not line.strip():
                continue
            where = f"{path}:{number}"
            try:
                fields = _parse_line(line, where)
            except DataError as error:
                if on_bad_line is None:
                    raise
                on_bad_line(number, error)
            else:
                yield Row(index, number, where, fields)
            index += 1


def _parse_line(line: bytes, where: str) -> dict[str, Any]:
    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no JSON number")

    try:
        text = line.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{where}: not UTF-8 text (byte {error.start + 1} of the line is 0x{line[error.start]:02x}). "
            "Expected JSON lines, one object a line: convert it to UTF-8, or check that data.path is the right file."
        ) from None
    try:
        value = json.loads(text, parse_int=NumberText, parse_float=NumberText, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{where}: not valid JSON ({error}). Mend or remove the line; every line must hold one whole object, "
            "so an indented file or a JSON array has to be rewritten first."
        ) from None
    if not isinstance(value, dict):
        kind = "number" if isinstance(value, NumberText) else type(value).__name__
        raise DataError(
            f'{where}: the row is a {kind}, not an object. Write it as {{"question": ..., "answer": ...}}, '
            "one object a line (a JSON array of rows has to be split into lines)."
        )
    return value


def _read_parquet(path: Path, required: Sequence[str], optional: Sequence[str]) -> Iterator[Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    done = 0
    try:
        # By default Arrow holds a whole row group in memory: 350 MB of the official DAPO file.
        with pq.ParquetFile(path, pre_buffer=False, buffer_size=READ_BYTES) as file:
            names = schema_names(file.schema_arrow)
            for name in required:
                if name not in names:
                    raise missing_column(name, names, where=str(path))
            wanted = [name for name in (*required, *optional) if name in names]
            for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=wanted):
                for fields in batch.to_pylist():
                    yield Row(done, done + 1, f"{path}, row {done + 1}", fields)
                    done += 1
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{path}: not a readable Parquet file, after {done} rows ({error}). It may be cut short: copy it again."
        ) from error
