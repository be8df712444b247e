"""What goes along with a job: the project, and never what is large, local or secret."""

from pathlib import Path

import pytest

from gspo_ray import job_files
from gspo_ray.errors import ConfigError
from gspo_ray.job_files import collect


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in (
        "configs/my.yaml",
        "tools/split.py",
        "data/train.jsonl",
        "data/other.jsonl",
        ".git/objects/pack",
        ".env",
        ".venv/bin/python",
        "own_env/pyvenv.cfg",
        "runs/demo/checkpoints/state",
        "models/base/config.json",
        "adapter.safetensors",
        "src/__pycache__/x.pyc",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x" * 10)
    return tmp_path


def test_the_project_goes_along_without_what_belongs_to_this_machine(project: Path) -> None:
    found = collect(project, named=[Path("configs/my.yaml")])
    assert (found.named, found.others) == ((Path("configs/my.yaml"),), (Path("tools/split.py"),))
    assert found.num_bytes == 20
    left_out = (".env", ".git/", ".venv/", "adapter.safetensors", "data/", "models/", "own_env/", "runs/")
    assert found.left_out == left_out


def test_a_data_file_that_the_config_names_goes_along(project: Path) -> None:
    found = collect(project, named=[Path("configs/my.yaml"), Path("data/train.jsonl")])
    assert Path("data/train.jsonl") in found.named
    assert Path("data/other.jsonl") not in found.others


def test_a_package_called_data_goes_along(project: Path) -> None:
    for name in ("tools/data/__init__.py", "tools/data/read.py"):
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).touch()
    assert Path("tools/data/read.py") in collect(project, named=[]).others


def test_the_copy_has_the_same_paths(project: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    target = tmp_path_factory.mktemp("copy")
    collect(project, named=[Path("data/train.jsonl")]).copy_to(target)
    copied = {str(path.relative_to(target)) for path in target.rglob("*") if path.is_file()}
    assert copied == {"configs/my.yaml", "tools/split.py", "data/train.jsonl"}


def test_a_big_file_stays_unless_it_is_named(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "notes.txt").write_bytes(b"x" * 2**20)
    monkeypatch.setattr(job_files, "BIG_FILE_MIB", 0.5)
    assert "notes.txt" in collect(project, named=[]).left_out
    assert Path("notes.txt") in collect(project, named=[Path("notes.txt")]).named


def test_too_much_is_refused_with_the_largest_files(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "data/train.jsonl").write_bytes(b"x" * 3 * 2**20)
    (project / "tools/table.csv").write_bytes(b"x" * 2**20)
    monkeypatch.setattr(job_files, "LIMIT_MIB", 2)
    with pytest.raises(ConfigError, match=r"are 4 MiB, more than 2; .*train\.jsonl \(3\.0 MiB\), tools/table"):
        collect(project, named=[Path("data/train.jsonl")])
