"""A checkpoint is complete or not there, also when the save is killed in the middle."""

import contextlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from gspo_ray import checkpoint
from gspo_ray.checkpoint import MARKER, complete_checkpoints, load_checkpoint, save_checkpoint
from gspo_ray.errors import CheckpointError
from gspo_ray.types import Adapter, LearnerState, RunState, WeightVersion

FILES = ["adapter/adapter_model.safetensors", "adapter/adapter_config.json", "optimizer.pt", "run_state.json"]


def states(step: int, payload: bytes = b"\x00weights\xff") -> tuple[RunState, LearnerState]:
    version = WeightVersion(step=step, sha256="ab" * 32)
    adapter = Adapter(version=version, payload=payload, peft_config='{"r": 16}')
    return RunState(step=step, problems_seen=8 * step, version=version, seed=1), LearnerState(
        adapter=adapter, optimizer=b"moments"
    )


def save(root: Path, step: int, *, keep: int = 3, payload: bytes = b"\x00weights\xff") -> Path:
    return save_checkpoint(root, *states(step, payload), keep=keep)


def names(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())


def test_a_checkpoint_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    path = save(tmp_path / "new" / "checkpoints", 20)
    assert path.name == "step-000020"
    assert load_checkpoint(path) == states(20)


def test_the_adapter_is_a_plain_peft_folder(tmp_path: Path) -> None:
    adapter = save(tmp_path, 1) / "adapter"
    assert names(adapter) == ["adapter_config.json", "adapter_model.safetensors"]
    assert json.loads((adapter / "adapter_config.json").read_text()) == {"r": 16}


def test_nothing_else_is_left_in_the_folder(tmp_path: Path) -> None:
    save(tmp_path, 1)
    assert names(tmp_path) == ["step-000001"]


@pytest.mark.parametrize("keep", [1, 2])
def test_only_the_newest_are_kept(tmp_path: Path, keep: int) -> None:
    for step in (1, 2, 3):
        save(tmp_path, step, keep=keep)
    assert names(tmp_path) == ["step-000001", "step-000002", "step-000003"][-keep:]


def test_checkpoints_made_before_a_resume_are_counted(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        save(tmp_path, step, keep=5)
    save(tmp_path, 4, keep=2)
    assert names(tmp_path) == ["step-000003", "step-000004"]


def test_they_are_sorted_by_number_beyond_six_digits(tmp_path: Path) -> None:
    for step in (1_000_000, 999_999, 2):
        save(tmp_path, step)
    assert [path.name for path in complete_checkpoints(tmp_path)] == ["step-000002", "step-999999", "step-1000000"]


def test_a_folder_without_marker_and_strangers_are_no_checkpoints(tmp_path: Path) -> None:
    (save(tmp_path, 1) / MARKER).unlink()
    for stranger in (".draft-step-000002", "step-x", "step-000003.tmp"):
        (tmp_path / stranger).mkdir()
        (tmp_path / stranger / MARKER).write_text("{}")
    assert complete_checkpoints(tmp_path) == []
    assert complete_checkpoints(tmp_path / "missing") == []


def test_what_a_killed_save_left_behind_is_in_nobodys_way(tmp_path: Path) -> None:
    (tmp_path / ".draft-step-000001" / "adapter").mkdir(parents=True)
    (tmp_path / ".draft-step-000002").mkdir()
    (tmp_path / ".draft-step-000002" / "stale").write_text("x")
    (tmp_path / "step-000002").mkdir()
    assert names(save(tmp_path, 2)) == ["COMPLETE", "adapter", "optimizer.pt", "run_state.json"]
    assert names(tmp_path) == ["step-000002"]


def test_the_same_step_saved_twice_is_the_second_one(tmp_path: Path) -> None:
    save(tmp_path, 2, payload=b"first")
    path = save(tmp_path, 2, payload=b"second")
    assert load_checkpoint(path)[1].adapter.payload == b"second"
    assert names(tmp_path) == ["step-000002"]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["changed", "cut", "missing"])
def test_a_damaged_file_is_named_and_nothing_is_loaded(tmp_path: Path, name: str, damage: str) -> None:
    path = save(tmp_path, 1)
    file = path / name
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-1] + (b"!" if damage == "changed" else b""))
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(path)
    for part in (str(path), name, "Delete that folder"):
        assert part in str(caught.value)


@pytest.mark.parametrize("content", ["", "[]", "{}", "null", '"text"', '{"optimizer.pt": 1}'])
def test_a_damaged_marker_is_an_error_of_the_checkpoint(tmp_path: Path, content: str) -> None:
    path = save(tmp_path, 1)
    (path / MARKER).write_text(content)
    with pytest.raises(CheckpointError, match="step-000001 cannot be read"):
        load_checkpoint(path)


def test_a_run_state_of_another_version_is_an_error_of_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RunState, "to_json", lambda self: {"step": 1})
    with pytest.raises(CheckpointError, match="another version"):
        load_checkpoint(save(tmp_path, 1))


class Killed(BaseException):
    """Stands for SIGKILL: nothing below catches it."""


def die_at_call(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, number: int) -> None:
    real, calls = getattr(owner, name), 0

    def dying(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == number:
            raise Killed
        return real(*args, **kwargs)

    monkeypatch.setattr(owner, name, dying)


# (owner, function, how often it may be called): every moment at which a save touches the disk.
MOMENTS = [
    *((checkpoint, "_write_durably", number) for number in range(1, 6)),
    *((os, "replace", number) for number in (1, 2, 3)),
    *((checkpoint, "_sync_directory", number) for number in (1, 2, 3)),
    *((checkpoint, "_remove", number) for number in (1, 2, 3)),
    *((shutil, "rmtree", number) for number in (1, 2, 3)),
]


@pytest.mark.parametrize(("owner", "name", "number"), MOMENTS, ids=lambda value: getattr(value, "__name__", value))
@pytest.mark.parametrize("step", [1, 2], ids=["same step", "next step"])
def test_there_is_a_loadable_checkpoint_at_whatever_moment_a_save_dies(
    tmp_path: Path, owner: Any, name: str, number: int, step: int
) -> None:
    save(tmp_path, 1, keep=1)
    with pytest.MonkeyPatch.context() as patch:
        die_at_call(patch, owner, name, number)
        with contextlib.suppress(Killed):
            save(tmp_path, step, keep=1, payload=b"second")
    found = complete_checkpoints(tmp_path)
    assert found
    assert [load_checkpoint(path)[0].step in (1, step) for path in found] == [True] * len(found)
    save(tmp_path, step, keep=1, payload=b"third")  # the resumed run gets there again
    assert names(tmp_path) == [f"step-{step:06d}"]
    assert load_checkpoint(complete_checkpoints(tmp_path)[-1])[1].adapter.payload == b"third"


def test_a_deletion_that_dies_leaves_no_half_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, 1)

    def half(path: Path) -> None:
        (path / "optimizer.pt").unlink()
        raise Killed

    monkeypatch.setattr(shutil, "rmtree", half)
    with pytest.raises(Killed):
        save(tmp_path, 2, keep=1)
    assert [path.name for path in complete_checkpoints(tmp_path)] == ["step-000002"]
