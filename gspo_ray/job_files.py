"""The files that a job needs on the cluster: the project's folder without data, models, results, caches and secrets."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gspo_ray.errors import ConfigError

LIMIT_MIB = 100
BIG_FILE_MIB = 10

_FOLDERS = ("data", "models", "checkpoints", "runs", "mlruns", "outputs", "wandb", "build", "dist", "__pycache__")
_SUFFIXES = (".safetensors", ".gguf", ".bin", ".pt", ".pth", ".ckpt", ".parquet", ".arrow", ".db", ".sqlite")


@dataclass(frozen=True, slots=True)
class JobFiles:
    root: Path
    named: tuple[Path, ...]  # asked for; this and the next two relative to root
    others: tuple[Path, ...]
    num_bytes: int
    left_out: tuple[str, ...]  # folders end in /

    def copy_to(self, folder: Path) -> None:
        for file in self.named + self.others:
            target = folder / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.root / file, target)


def collect(root: Path, *, named: Sequence[Path]) -> JobFiles:
    """`named` files, relative to `root`, go along wherever they are. What starts with a dot stays: version control,
    virtual environments, keys.

    Raises ConfigError above LIMIT_MIB, with the largest files.
    """
    sizes: dict[Path, int] = {file: (root / file).stat().st_size for file in named}
    left_out: list[str] = []
    for folder, folders, files in os.walk(root):
        here = Path(folder)
        kept = [name for name in folders if not _is_foreign(here / name)]
        left_out += [f"{(here / name).relative_to(root)}/" for name in folders if name not in kept]
        folders[:] = kept
        for file in sorted(files):
            path = (here / file).relative_to(root)
            if path in sizes or not (root / path).is_file():
                continue
            size = (root / path).stat().st_size
            if file.startswith(".") or path.suffix in _SUFFIXES or size > BIG_FILE_MIB * 2**20:
                left_out.append(str(path))
            else:
                sizes[path] = size
    _refuse_too_much(sizes)
    names = tuple(sorted(name for name in left_out if not name.endswith("__pycache__/")))
    others = tuple(sorted(set(sizes) - set(named)))
    return JobFiles(root, tuple(named), others, sum(sizes.values()), names)


def _is_foreign(folder: Path) -> bool:
    name = folder.name
    named = name in _FOLDERS and not (folder / "__init__.py").exists()  # a package may be called data
    return name.startswith(".") or named or name.endswith(".egg-info") or (folder / "pyvenv.cfg").exists()


def _refuse_too_much(sizes: dict[Path, int]) -> None:
    if (total := sum(sizes.values())) > LIMIT_MIB * 2**20:
        largest = sorted(sizes, key=lambda path: -sizes[path])[:3]
        names = ", ".join(f"{path} ({sizes[path] / 2**20:.1f} MiB)" for path in largest)
        raise ConfigError(
            f"the files of this job are {total / 2**20:.0f} MiB, more than {LIMIT_MIB}; the largest are {names}. "
            "Put large ones where the cluster can read them and name them by their absolute path there."
        )
