"""Checkpoints that are either complete or not there: written under another name, committed by a manifest and a rename.

checkpoints/step-000020/
    adapter/adapter_model.safetensors, adapter_config.json   a PEFT directory: PeftModel.from_pretrained, vllm serve
    optimizer.pt                                             torch.save of the optimizer's state
    run_state.json                                           step, data cursor, version, seed
    COMPLETE                                                 sha256 of each file above; written last
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


def save_checkpoint(root: Path, state: RunState, learner: LearnerState, *, keep: int) -> Path:
    """Write `root/step-NNNNNN`, then delete all but the `keep` newest complete ones."""
    final = root / f"step-{state.step:06d}"
    draft = root / f".draft-{final.name}"
    shutil.rmtree(draft, ignore_errors=True)
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
    if final.exists():  # the same step once more, after a resume from before it
        shutil.rmtree(final)
    os.replace(draft, final)
    _sync_directory(root)
    for old in complete_checkpoints(root)[:-keep]:
        shutil.rmtree(old)
    return final


def complete_checkpoints(root: Path) -> list[Path]:
    """Oldest first. A folder without its marker is not a checkpoint."""
    found = [path for path in root.glob("step-*") if re.fullmatch(r"step-\d+", path.name) and (path / MARKER).exists()]
    return sorted(found, key=lambda path: int(path.name.removeprefix("step-")))


def load_checkpoint(path: Path) -> tuple[RunState, LearnerState]:
    """Raises CheckpointError when a file is missing or differs from the manifest."""
    try:
        manifest = json.loads((path / MARKER).read_text(encoding="utf-8"))
        data = {name: (path / name).read_bytes() for name in _FILES}
    except (OSError, ValueError) as error:
        raise CheckpointError(f"checkpoint {path} cannot be read: {error}") from error
    for name, content in data.items():
        if hashlib.sha256(content).hexdigest() != manifest.get(name):
            raise CheckpointError(f"checkpoint {path} is damaged: {name} differs from its manifest. Use an older one.")
    state = RunState.from_json(json.loads(data["run_state.json"]))
    adapter = Adapter(
        version=state.version,
        payload=data["adapter/adapter_model.safetensors"],
        peft_config=data["adapter/adapter_config.json"].decode(),
    )
    return state, LearnerState(adapter=adapter, optimizer=data["optimizer.pt"])


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
