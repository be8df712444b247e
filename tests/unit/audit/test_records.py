"""Rows of any JSONL file, and one clear line for those that cannot be read."""

from pathlib import Path

import pytest

from gspo_ray.audit.records import Columns, Record, read_records
from gspo_ray.errors import DataError

COLUMNS = Columns("gold", "text", "ok")


def write(folder: Path, *lines: str | bytes) -> Path:
    path = folder / "rows.jsonl"
    path.write_bytes(b"\n".join(line if isinstance(line, bytes) else line.encode() for line in lines))
    return path


def test_rows_with_their_lines_and_names(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        '{"id": "a-1", "gold": "7", "text": "so 7", "ok": true, "more": [1]}',
        "",
        '{"gold": 7.5, "text": "\u2028", "ok": "Wrong"}',
    )
    assert read_records(path, COLUMNS) == [
        Record(line=1, name="a-1", gold="7", completion="so 7", label=True),
        Record(line=3, name="line 3", gold="7.5", completion="\u2028", label=False),
    ]
    assert [record.label for record in read_records(path, Columns("gold", "text", None), limit=1)] == [None]


@pytest.mark.parametrize(
    ("value", "label"),
    [("true", True), ("1", True), ("1.0", True), ('"correct"', True), ("false", False), ("0", False), ('"no"', False)],
)
def test_labels(tmp_path: Path, value: str, label: bool) -> None:
    path = write(tmp_path, '{"gold": "7", "text": "7", "ok": ' + value + "}")
    assert read_records(path, COLUMNS)[0].label is label


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"gold": "7"', r"rows\.jsonl:2: not valid JSON"),
        ("[" * 100_000, r"rows\.jsonl:2: not valid JSON"),
        ("[1]", r"rows\.jsonl:2: the row is a list"),
        (b"\xff", r"rows\.jsonl:2: not UTF-8 text \(byte 1"),
        ('{"text": "7", "ok": 1}', r"rows\.jsonl:2: no column 'gold' \(--gold names it\); the row has ok, text"),
        ('{"gold": "7", "ok": 1}', r"rows\.jsonl:2: no column 'text' \(--completion"),
        ('{"gold": "7", "text": "7"}', r"rows\.jsonl:2: no column 'ok' \(--label"),
        ('{"gold": null, "text": "7", "ok": 1}', r"rows\.jsonl:2: column 'gold' \(--gold\) holds null"),
        ('{"gold": ["7"], "text": "7", "ok": 1}', r"rows\.jsonl:2: column 'gold' \(--gold\) holds \[\"7\"\]"),
        ('{"gold": true, "text": "7", "ok": 1}', r"rows\.jsonl:2: column 'gold' \(--gold\) holds true"),
        ('{"gold": "7", "text": "7", "ok": "maybe"}', r"rows\.jsonl:2: column 'ok' \(--label\) holds \"maybe\""),
    ],
)
def test_bad_rows_are_named(tmp_path: Path, line: str | bytes, message: str) -> None:
    path = write(tmp_path, '{"gold": "7", "text": "7", "ok": 1}', line)
    with pytest.raises(DataError, match=message):
        read_records(path, COLUMNS)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nope\.jsonl: cannot be read \(No such file"):
        read_records(tmp_path / "nope.jsonl", COLUMNS)
    with pytest.raises(DataError, match="cannot be read"):
        read_records(tmp_path, COLUMNS)
    with pytest.raises(DataError, match=r"rows\.jsonl: no rows"):
        read_records(write(tmp_path, "", " "), COLUMNS)
