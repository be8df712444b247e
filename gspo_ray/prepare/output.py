"""Files that appear whole or not at all."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from gspo_ray.errors import DataError
from gspo_ray.prepare.manifest import MANIFEST_FILE
from gspo_ray.prepare.records import Record

PARTIAL = ".prepare-partial"


@contextmanager
def new_files(out: Path) -> Iterator[Path]:
    """A folder inside `out` for the new files. At the end they take their places, the manifest last; after an error
    or an interruption they are gone, and so is `out` when it did not exist before.

    The old manifest goes first: files of two runs are never together under one. Raises DataError when `out` cannot be
    written or another process is writing there.
    """
    partial = out / PARTIAL
    created = [folder for folder in (out, *out.parents) if not folder.exists()]
    try:
        out.mkdir(parents=True, exist_ok=True)
        handle = os.open(out, os.O_RDONLY)
    except OSError as error:
        raise DataError(f"--out {out} cannot be written: {error.strerror}. Name another folder.") from error
    try:
        _lock(handle, out)
        try:
            shutil.rmtree(partial, ignore_errors=True)  # of a run that was killed
            partial.mkdir()
            yield partial
            _move(partial, out)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
            for folder in created:
                if not any(folder.iterdir()):
                    folder.rmdir()
    finally:
        os.close(handle)


def _lock(handle: int, out: Path) -> None:
    """Held until `handle` is closed, however the process ends."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise DataError(f"another gspo-ray prepare is writing to {out}. Wait for it, or name another --out.") from None


def _move(partial: Path, out: Path) -> None:
    (out / MANIFEST_FILE).unlink(missing_ok=True)
    for path in sorted(partial.iterdir(), key=lambda path: path.name == MANIFEST_FILE):
        with path.open("rb") as file:
            os.fsync(file.fileno())
        path.replace(out / path.name)


def refuse_foreign_files(out: Path, names: Sequence[str]) -> None:
    """Raises DataError when one of `names` is there but no manifest says that `prepare` wrote it."""
    if (out / MANIFEST_FILE).exists() or (out / PARTIAL).exists():
        return
    found = [name for name in names if (out / name).exists()]
    if found:
        raise DataError(
            f"{out} holds {', '.join(found)}, which gspo-ray prepare did not write. Name another --out, or replace "
            "it with --force."
        )


def write_records(path: Path, records: Iterable[Record]) -> None:
    """One JSON object a line: id, question, answer, data_source; UTF-8 as it is, "\\n" line ends."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for record in records:
            file.write(json.dumps(record._asdict(), ensure_ascii=False) + "\n")
