"""The rows of a JSONL file to audit. Errors name the file, the line and the flag that mends it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gspo_ray.errors import DataError

_RIGHT = ("true", "correct", "right", "yes", "1", "1.0")
_WRONG = ("false", "wrong", "incorrect", "no", "0", "0.0", "-1", "-1.0")


@dataclass(frozen=True, slots=True)
class Columns:
    gold: str
    completion: str
    label: str | None  # None: the file has none


@dataclass(frozen=True, slots=True)
class Record:
    line: int  # from 1
    name: str  # column "id" where there is one
    gold: str
    completion: str
    label: bool | None


def read_records(path: Path, columns: Columns, *, limit: int | None = None) -> list[Record]:
    """The first `limit` rows. Raises DataError for a file or row that cannot be read, or a column that is not there."""
    records: list[Record] = []
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):  # bytes: only \n ends a line
                if limit is not None and len(records) == limit:
                    break
                if line.strip():
                    records.append(_record(_parse(line, f"{path}:{number}"), columns, number, f"{path}:{number}"))
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    if not records:
        raise DataError(f"{path}: no rows. Expected one JSON object a line")
    return records


def _parse(line: bytes, where: str) -> dict[str, Any]:
    try:
        row = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise DataError(f"{where}: not UTF-8 text (byte {error.start + 1} of the line)") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: not valid JSON ({error}). Expected one JSON object a line") from None
    if not isinstance(row, dict):
        raise DataError(f"{where}: the row is a {type(row).__name__}. Expected one JSON object a line")
    return row


def _record(row: dict[str, Any], columns: Columns, line: int, where: str) -> Record:
    return Record(
        line=line,
        name=str(row.get("id", f"line {line}")),
        gold=_text(row, columns.gold, "--gold", where),
        completion=_text(row, columns.completion, "--completion", where),
        label=None if columns.label is None else _label(row, columns.label, where),
    )


def _value(row: dict[str, Any], column: str, flag: str, where: str) -> Any:
    if column not in row:
        raise DataError(
            f"{where}: no column {column!r} ({flag} names it); the row has {', '.join(sorted(row)) or 'none'}"
        )
    return row[column]


def _text(row: dict[str, Any], column: str, flag: str, where: str) -> str:
    value = _value(row, column, flag, where)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise DataError(f"{where}: column {column!r} ({flag}) holds {json.dumps(value)[:60]}, not a text or a number")
    return str(value)


def _label(row: dict[str, Any], column: str, where: str) -> bool:
    value = _value(row, column, "--label", where)
    word = str(value).strip().lower()
    if word not in (*_RIGHT, *_WRONG):
        raise DataError(
            f"{where}: column {column!r} (--label) holds {json.dumps(value)[:60]}; "
            "known labels are true/false, 1/0, correct/wrong, right/incorrect, yes/no"
        )
    return word in _RIGHT
