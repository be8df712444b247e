"""What the user asks for, and whether an earlier run has already done it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gspo_ray.data.rows import file_kind
from gspo_ray.errors import DataError
from gspo_ray.prepare.catalogue import Dataset
from gspo_ray.prepare.dedup import RULE_VERSION
from gspo_ray.prepare.hub import hub_source
from gspo_ray.prepare.known_sets import TEST_FILE
from gspo_ray.prepare.manifest import (
    MANIFEST_FILE,
    Against,
    Inputs,
    Manifest,
    Source,
    check_files,
    read_manifest,
    sha256_of,
)
from gspo_ray.prepare.output import refuse_foreign_files
from gspo_ray.prepare.overlap import EvalSet
from gspo_ray.prepare.records import Split

TRAIN_FILE, DEV_FILE = "train.jsonl", "dev.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """`raw` None: from the hub, at `revision` or else at the commit of the catalogue."""

    dataset: Dataset
    entry: str  # of the catalogue
    split: Split
    out: Path
    raw: Path | None = None
    revision: str | None = None
    columns: dict[str, str | None] = field(default_factory=dict)
    dev_size: int = 50
    seed: int = 42
    model: str | None = None
    against: tuple[Path, ...] = ()
    drop_contaminated: bool = False
    force: bool = False

    @property
    def commit(self) -> str:
        """Of a request without `raw`. Raises DataError when the hub has no such data set."""
        return self.revision or hub_source(self.dataset, self.split).revision

    @property
    def problem_files(self) -> tuple[str, ...]:
        return (TRAIN_FILE, DEV_FILE) if self.split == "train" else (TEST_FILE,)


def check_raw(raw: Path) -> None:
    """Raises DataError when there is no such file, or none that rows can be read from."""
    try:
        file_kind(raw)
    except DataError as error:
        raise DataError(str(error).replace("data.path", "--raw")) from error


def inputs_of(request: Request, raw: Path | None, sets: Sequence[EvalSet]) -> Inputs:
    """`raw`: the file to read; None while a file on the hub is not loaded, whose commit says enough."""
    options: dict[str, Any] = {"model": request.model, **request.columns}
    if request.split == "train":
        options |= {
            "dev_size": request.dev_size,
            "seed": request.seed,
            "drop_contaminated": request.drop_contaminated,
        }
    on_hub = request.raw is None
    source = Source(
        repo=hub_source(request.dataset, request.split).repo if on_hub else None,
        revision=request.commit if on_hub else None,
        file=raw.name if on_hub and raw else str(raw or ""),
        sha256=sha256_of(raw) if raw else "",
        bytes=raw.stat().st_size if raw else 0,
    )
    return Inputs(
        name=request.dataset.name,
        dataset=request.entry,
        split=request.split,
        rule=RULE_VERSION,
        licence=request.dataset.licence,
        source=source,
        options=options,
        against=[Against(name=item.name, sha256=item.sha256, problems=len(item.questions)) for item in sets],
    )


def finished(request: Request, sets: Sequence[EvalSet]) -> Manifest | None:
    """The manifest of an earlier run with the same inputs, its files untouched; None when the folder is free.

    Raises DataError when there is something that only --force may replace.
    """
    refuse_foreign_files(request.out, request.problem_files)
    if not (request.out / MANIFEST_FILE).exists():
        return None
    old = read_manifest(request.out)
    reasons = old.differences(inputs_of(request, request.raw, sets)) + check_files(request.out, old)
    if reasons:
        raise DataError(
            f"{request.out} was prepared before and is not what this command would write ({'; '.join(reasons)}). "
            "--force makes it again; another --out leaves it as it is."
        )
    return old
