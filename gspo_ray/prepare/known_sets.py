"""Evaluation sets that training problems are compared with: prepared beside, or named by the user."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from gspo_ray.data.columns import question_text
from gspo_ray.data.rows import read_rows
from gspo_ray.errors import DataError
from gspo_ray.prepare.manifest import MANIFEST_FILE, read_manifest, sha256_of
from gspo_ray.prepare.overlap import EvalSet

QUESTION_COLUMNS = ("question", "problem", "input")
TEST_FILE = "test.jsonl"


def known_sets(out: Path, against: Sequence[Path]) -> list[EvalSet]:
    """Those named in `against`, then those prepared in folders inside `out` or beside it; each file once.

    Raises DataError for a file that cannot be read or has no column of questions.
    """
    sets: dict[str, EvalSet] = {}
    for path in against:
        found = path / TEST_FILE if (path / TEST_FILE).is_file() else path
        _add(sets, _read(_name(found), found))
    for folder in _folders(out):
        try:
            manifest = read_manifest(folder)
        except DataError:  # another program's manifest.json
            continue
        if manifest.split == "test" and (folder / TEST_FILE).is_file():
            _add(sets, _read(manifest.name, folder / TEST_FILE))
    return list(sets.values())


def _add(sets: dict[str, EvalSet], new: EvalSet) -> None:
    """The same file is added once; another one of the same name becomes name-2."""
    if any(old.sha256 == new.sha256 for old in sets.values()):
        return
    name, count = new.name, 1
    while name in sets:
        count += 1
        name = f"{new.name}-{count}"
    sets[name] = EvalSet(name, new.path, new.sha256, new.questions)


def _folders(out: Path) -> Iterator[Path]:
    for parent in (out, out.absolute().parent):
        if parent.is_dir():
            found = (path.parent for path in sorted(parent.glob(f"*/{MANIFEST_FILE}")))
            yield from (folder for folder in found if folder.absolute() != out.absolute())


def _name(path: Path) -> str:
    """Of a prepared file its manifest's; test.jsonl says nothing, so its folder's; else the file's own."""
    if path.name == TEST_FILE and (path.parent / MANIFEST_FILE).is_file():
        return read_manifest(path.parent).name
    return path.absolute().parent.name if path.name == TEST_FILE else path.stem


def _read(name: str, path: Path) -> EvalSet:
    questions = []
    try:
        for row in read_rows(path, optional=(*QUESTION_COLUMNS, "id")):
            column = next((column for column in QUESTION_COLUMNS if column in row.fields), None)
            if column is None:
                raise DataError(
                    f"{row.where}: no column {', '.join(QUESTION_COLUMNS)}, so there is nothing to compare with. "
                    "Prepare the set first: gspo-ray prepare jsonl --split test --question COLUMN --raw FILE"
                )
            text = question_text(row.fields[column], column, where=row.where)
            questions.append((str(row.fields.get("id", row.index)), text))
    except DataError as error:
        raise DataError(str(error).replace("data.path", "--against")) from error
    if not questions:
        raise DataError(f"{path} has no rows to compare with. Name the right file: --against FILE")
    return EvalSet(name, path, sha256_of(path), tuple(questions))
