from pathlib import Path

import pytest

from gspo_ray.errors import DataError
from gspo_ray.prepare.manifest import read_manifest
from tests.unit.prepare.conftest import run, sums, write_lines


def test_two_runs_of_the_same_inputs_write_the_same_bytes(tmp_path: Path) -> None:
    raw = write_lines(tmp_path / "raw.jsonl", *sums(9))
    for parent in ("a", "b"):
        run("jsonl", raw, tmp_path / parent / "out", dev_size=2)
    for name in ("train.jsonl", "dev.jsonl", "report.json", "report.md", "manifest.json"):
        assert (tmp_path / "a" / "out" / name).read_bytes() == (tmp_path / "b" / "out" / name).read_bytes()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "is no manifest of gspo-ray prepare .the file: Invalid JSON"),
        ("{}", "is no manifest of gspo-ray prepare .name: Field required"),
        ("[]", "is no manifest"),
    ],
)
def test_what_is_no_manifest(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(DataError, match=says):
        read_manifest(tmp_path)


def test_a_folder_without_one(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"holds no manifest\.json\. Make it: gspo-ray prepare"):
        read_manifest(tmp_path)


def test_a_manifest_of_another_format(tmp_path: Path) -> None:
    run("jsonl", write_lines(tmp_path / "raw.jsonl", *sums(9)), tmp_path / "out", dev_size=2)
    path = tmp_path / "out" / "manifest.json"
    path.write_text(path.read_text().replace('"format": 1', '"format": 2'))
    with pytest.raises(DataError, match="format: Input should be 1"):
        read_manifest(tmp_path / "out")
