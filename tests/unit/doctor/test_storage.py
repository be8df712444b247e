import os
from pathlib import Path

import pytest

from gspo_ray.doctor.finding import Level
from gspo_ray.doctor.storage import GIB, RAY_TEMP, Usage, check_disk, check_storage_path


@pytest.mark.parametrize(
    ("what", "usage", "level"),
    [
        ("models", Usage(100 * GIB, 50 * GIB), Level.PASS),
        ("models", Usage(100 * GIB, 5 * GIB), Level.WARN),
        ("models", Usage(100 * GIB, GIB // 2), Level.FAIL),
        ("models", Usage(1000 * GIB, 40 * GIB), Level.PASS),  # 96 % used, and room enough
        (RAY_TEMP, Usage(1000 * GIB, 40 * GIB), Level.FAIL),  # Ray goes by the share
    ],
)
def test_room_on_a_disk(what: str, usage: Usage, level: Level) -> None:
    finding = check_disk({what: Path("/data")}, lambda folder: usage)
    assert finding.level is level
    assert f"% used: {what} /data" in finding.found


def test_folders_of_one_disk_are_told_together() -> None:
    usages = {"/a": Usage(100 * GIB, 50 * GIB), "/b": Usage(100 * GIB, 50 * GIB), "/c": Usage(10 * GIB, 5 * GIB)}
    finding = check_disk({"x": Path("/a"), "y": Path("/b"), "z": Path("/c")}, lambda folder: usages[str(folder)])
    assert finding.found == ("5.0 GiB are left for z; 50 GiB free, 50% used: x /a, y /b; 5 GiB free, 50% used: z /c")


def test_a_folder_that_does_not_exist_is_looked_up_by_its_parent(tmp_path: Path) -> None:
    finding = check_disk({"storage_path": tmp_path / "not" / "yet"})
    assert "GiB free" in finding.found


def test_writing_leaves_nothing_behind_and_makes_nothing(tmp_path: Path) -> None:
    finding = check_storage_path(tmp_path / "runs")
    assert finding.level is Level.PASS
    assert "it will be made" in finding.found
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "fsync", refuse)  # chmod does not stop root, which tests may run as
    finding = check_storage_path(tmp_path)
    assert finding.level is Level.FAIL
    assert f"{tmp_path} cannot be written: Permission denied" in finding.found
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_whose_rename_does_not_replace_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "replace", lambda self, target: target)
    assert check_storage_path(tmp_path).level is Level.FAIL
