"""Room on the disks that a run fills, and folders that a checkpoint or an adapter can be written to."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from gspo_ray.doctor.finding import Finding, Level, Problem, judged

GIB = 2**30
LITTLE_ROOM, NO_ROOM = 10 * GIB, GIB
RAY_FULL = 0.95  # of its disk; from there on Ray makes no object that would have to be spilled
RAY_TEMP = "Ray's temporary folder"


class Usage(NamedTuple):
    total: int
    free: int


def check_disk(folders: Mapping[str, Path], usage_of: Callable[[Path], Usage] | None = None) -> Finding:
    """`folders`: what it is -> where; one that does not exist yet is looked up by the parent that does."""
    problems: list[Problem] = []
    on_disk: dict[str, list[str]] = {}  # folders that share a disk share its numbers
    for what, folder in folders.items():
        usage = (usage_of or _usage)(folder)
        used = 1 - usage.free / usage.total
        on_disk.setdefault(f"{usage.free / GIB:.0f} GiB free, {used:.0%} used", []).append(f"{what} {folder}")
        if what == RAY_TEMP and used >= RAY_FULL:
            text = f"the disk of {what} is {used:.0%} full, and Ray fails from {RAY_FULL:.0%} on"
            problems.append(Problem(Level.FAIL, text, "Free some, or ray start --temp-dir on a larger disk."))
        elif usage.free < LITTLE_ROOM:
            level = Level.FAIL if usage.free < NO_ROOM else Level.WARN
            text = f"{usage.free / GIB:.1f} GiB are left for {what}"
            problems.append(Problem(level, text, f"Free some room under {folder}, or name another folder."))
    return judged("disk", "; ".join(f"{room}: {', '.join(on)}" for room, on in on_disk.items()), problems)


def check_storage_path(folder: Path) -> Finding:
    """What a checkpoint does: written under another name, on disk, renamed over an older one. Nothing is left."""
    return _rewritable("storage_path", folder, "Set storage_path to a folder that this user can write.")


def check_adapter_folder(folder: Path) -> Finding:
    """Where an engine puts the adapter that it is about to load."""
    return _rewritable("adapter folder", folder, "Make it writable for this user; engines read adapters from there.")


def _rewritable(check: str, folder: Path, fix: str) -> Finding:
    start = _nearest(folder)
    try:
        with tempfile.TemporaryDirectory(prefix=".gspo-doctor-", dir=start) as scratch:
            old, new = Path(scratch) / "old", Path(scratch) / "new"
            for file, text in ((old, b"old"), (new, b"new")):
                with file.open("wb") as stream:
                    stream.write(text)
                    stream.flush()
                    os.fsync(stream.fileno())
            new.replace(old)
            read = old.read_bytes()
    except OSError as error:
        return Finding(check, Level.FAIL, f"{folder} cannot be written: {error.strerror or error} ({start})", fix)
    if read != b"new":
        return Finding(check, Level.FAIL, f"{folder}: a file is not what was renamed to it", "Use another file system.")
    made = "" if start == folder else " (it will be made)"
    return Finding(check, Level.PASS, f"{folder}{made}: written, renamed, read")


def _usage(folder: Path) -> Usage:
    usage = shutil.disk_usage(_nearest(folder))
    return Usage(usage.total, usage.free)


def _nearest(folder: Path) -> Path:
    """The folder itself or the first parent that exists."""
    return next(path for path in (folder, *folder.parents) if path.is_dir())
