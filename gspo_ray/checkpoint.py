"""Checkpoints that are either complete or not there: written under another name, committed by a manifest and a rename.

checkpoints/step-000020/
    adapter/adapter_model.safetensors, adapter_config.json   a PEFT directory: PeftModel.from_pretrained, vllm serve
    optimizer.pt                                             torch.save of the optimizer's state
    run_state.json                                           step, data cursor, version, seed
    COMPLETE                                                 sha256 of each file above; written last

While a step is saved again, the one it replaces waits as step-000020.replaced and counts until the new one is there.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from pathlib import Path

from gspo_ray.errors import CheckpointError
from gspo_ray.types import Adapter, LearnerState, RunState

MARKER = "COMPLETE"
_FILES = ("adapter/adapter_model.safetensors", "adapter/adapter_config.json", "optimizer.pt", "run_state.json")
_REMEDY = "Delete that folder to resume from the checkpoint before it."


def save_checkpoint(root: Path, state: RunState, learner: LearnerState, *, keep: int) -> Path:
    """Write `root/step-NNNNNN`, then delete all but the `keep` newest complete ones."""
    final = root / f"step-{state.step:06d}"
    draft = root / f".draft-{final.name}"
    for leftover in (*root.glob(".draft-step-*"), *root.glob(".trash-step-*")):  # of a killed save
        shutil.rmtree(leftover)
    contents = (
        learner.adapter.payload,
        learner.adapter.peft_config.encode(),
        learner.optimizer,
        json.dumps(state.to_json(), indent=2).encode(),
    )
    manifest = {}
    for name, data in zip(_FILES, contents, strict=True):
        _write_durably(draft / name, data)
        manifest[name] = hashlib.sha256(data).hexdigest()
    _write_durably(draft / MARKER, json.dumps(manifest, indent=2).encode())
    _sync_directory(draft / "adapter")
    _sync_directory(draft)
    replaced = root / f"{final.name}.replaced"
    if (final / MARKER).exists():  # the same step once more: at no moment may there be none
        _remove(replaced)
        os.replace(final, replaced)
    else:
        _remove(final)
    os.replace(draft, final)
    _sync_directory(root)
    for old in (*root.glob("step-*.replaced"), *complete_checkpoints(root)[:-keep]):
        _remove(old)
    return final


def complete_checkpoints(root: Path) -> list[Path]:
    """Oldest first, one a step. A folder without its marker is not a checkpoint."""
    found: dict[int, Path] = {}
    for path in sorted(root.glob("step-*"), reverse=True):  # step-000020 after, hence over, step-000020.replaced
        name = re.fullmatch(r"step-(\d+)(\.replaced)?", path.name)
        if name and (path / MARKER).exists():
            found[int(name[1])] = path
    return [found[step] for step in sorted(found)]


def load_checkpoint(path: Path) -> tuple[RunState, LearnerState]:
    """Raises CheckpointError when a file is missing or differs from the manifest."""
    try:
        manifest = json.loads((path / MARKER).read_text(encoding="utf-8"))
        data = {name: (path / name).read_bytes() for name in _FILES}
        damaged = [name for name in _FILES if hashlib.sha256(data[name]).hexdigest() != manifest[name]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = str(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
        raise CheckpointError(f"checkpoint {path} cannot be read ({reason}). {_REMEDY}") from error
    if damaged:
        raise CheckpointError(f"checkpoint {path} is damaged: {', '.join(damaged)} not as written. {_REMEDY}")
    try:
        state = RunState.from_json(json.loads(data["run_state.json"]))
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"checkpoint {path} is of another version of this package: {error!r}") from error
    adapter = Adapter(
        version=state.version,
        payload=data["adapter/adapter_model.safetensors"],
        peft_config=data["adapter/adapter_config.json"].decode(),
    )
    return state, LearnerState(adapter=adapter, optimizer=data["optimizer.pt"])


def _remove(path: Path) -> None:
    """Out of sight at once: what a kill in the middle leaves behind must not pass for a checkpoint."""
    if path.exists():
        trash = path.with_name(f".trash-{path.name}")
        os.replace(path, trash)
        shutil.rmtree(trash)


def _write_durably(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
