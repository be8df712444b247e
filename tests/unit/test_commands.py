import os
import sys
from pathlib import Path

import pytest

from gspo_ray.commands import typed


@pytest.fixture
def environment(tmp_path, monkeypatch):
    """A virtual environment at tmp_path/.venv whose bin holds `tool`; it is not on PATH."""
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    tool = tmp_path / ".venv" / "bin" / "tool"
    tool.touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(tool.with_name("python")))
    monkeypatch.setenv("PATH", "/usr/bin")
    monkeypatch.chdir(tmp_path)
    return tool


def test_a_program_that_is_not_on_the_path_is_named_by_its_place_below_the_working_folder(environment):
    assert typed("tool run --x 1") == f".venv{os.sep}bin{os.sep}tool run --x 1"


def test_from_another_folder_the_place_is_absolute(environment, tmp_path_factory, monkeypatch):
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert typed("tool") == str(environment)


def test_on_the_path_or_unknown_it_stays_as_it_is(environment, monkeypatch):
    assert typed("nosuch run") == "nosuch run"
    monkeypatch.setenv("PATH", str(Path(environment).parent))
    assert typed("tool run") == "tool run"
