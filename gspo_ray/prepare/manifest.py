"""`manifest.json`: what a folder of prepared data holds, where it came from, and how to see that it is untouched.

    format        1
    name          what evaluations and reports call the data, e.g. "aime25"
    dataset       entry of the catalogue; "jsonl" for a file of the user's own
    split         "train": train.jsonl and dev.jsonl; "test": test.jsonl, a set to be judged on
    rule          version of the cleaning rule (dedup.RULE_VERSION)
    licence       of the raw data, as far as it is known
    source        repo and revision on the hub (null for a local file), name of the raw file, its sha256 and bytes
    options       what else decides about the output: dev_size, seed, model, drop_contaminated, columns
    against       evaluation sets that training problems were compared with: name, sha256, problems
    counts        rows, invalid, duplicates, conflicts, kept, renamed_ids; train and dev or test; contaminated, dropped
    keys_sha256   of the deduplication keys of train, dev or test, joined by newlines: equal keys, equal split
    files         name -> sha256, bytes, and problems for JSONL files

It is written last: a folder with a manifest is complete. Two runs of the same inputs write the same bytes, but for the
path that the raw file was given as.

Example: manifest = read_manifest(Path("data/aime25")); check_files(Path("data/aime25"), manifest) == []
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from gspo_ray.errors import DataError
from gspo_ray.prepare.records import Split

MANIFEST_FILE = "manifest.json"


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Source(_Part):
    repo: str | None = None
    revision: str | None = None
    file: str  # path as given, or name within the repository
    sha256: str
    bytes: int


class Against(_Part):
    name: str
    sha256: str
    problems: int


class OutputFile(_Part):
    sha256: str
    bytes: int
    problems: int | None = None


class Inputs(_Part):
    """Everything that decides what is written; equal inputs need no second run."""

    name: str
    dataset: str
    split: Split
    rule: str
    licence: str
    source: Source
    options: dict[str, Any]
    against: list[Against]

    def differences(self, other: Inputs) -> list[str]:
        """In words, `self` being the older one. The raw file may have another name; on the hub the commit is all."""
        if (self.name, self.dataset, self.split) != (other.name, other.dataset, other.split):
            return [f"it holds {self.name} ({self.split})"]
        old, new = self._comparable(), other._comparable()
        return [f"{key} {old.get(key)} -> {new.get(key)}" for key in old | new if old.get(key) != new.get(key)]

    def _comparable(self) -> dict[str, Any]:
        source = self.source
        return {
            "rule": self.rule,
            "licence": self.licence,
            "raw": f"sha256 {source.sha256[:12]}" if source.repo is None else f"{source.repo}@{source.revision}",
            **self.options,
            "against": ", ".join(sorted(f"{item.name} {item.sha256[:6]}" for item in self.against)) or "nothing",
        }


class Manifest(Inputs):
    format: Literal[1] = 1
    counts: dict[str, int]
    keys_sha256: dict[str, str]
    files: dict[str, OutputFile]


def read_manifest(folder: Path) -> Manifest:
    """Raises DataError when the folder holds no manifest of this format."""
    path = folder / MANIFEST_FILE
    try:
        return Manifest.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise DataError(f"{folder} holds no {MANIFEST_FILE}. Make it: gspo-ray prepare ... --out {folder}") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}). Check its permissions.") from error
    except ValidationError as error:
        fault = error.errors()[0]
        place = ".".join(str(part) for part in fault["loc"]) or "the file"
        raise DataError(f"{path} is no manifest of gspo-ray prepare ({place}: {fault['msg']}).") from error


def check_files(folder: Path, manifest: Manifest) -> list[str]:
    """What is wrong with the files that the manifest names, in words; empty when they are as written."""
    faults = []
    for name, entry in manifest.files.items():
        path = folder / name
        if not path.is_file():
            faults.append(f"{name} is missing")
        elif path.stat().st_size != entry.bytes or sha256_of(path) != entry.sha256:
            faults.append(f"{name} was changed")
    return faults


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
