"""The benchmark measures what it says; how fast the machine is, it cannot promise."""

import json
from pathlib import Path

import pytest

from gspo_ray.bench.reward import main


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "answers.jsonl"
    row = {"gold": r"\frac{1}{2}", "completion": r"\boxed{0.5}"}
    path.write_text("".join(json.dumps(row) + "\n" for _ in range(20)), encoding="utf-8")
    return path


def test_report(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(file), "--workers", "1", "--rounds", "3", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["num_items"], report["num_workers"], report["goal"]) == (20, 1, 0.9)
    assert len(report["ratios"]) == 3
    ratios = [bare / pool for bare, pool in zip(report["bare_s_per_1000"], report["pool_s_per_1000"], strict=True)]
    assert report["ratios"] == pytest.approx(ratios)
    assert report["median_ratio"] == sorted(ratios)[1]


def test_table_and_errors(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(file), "--workers", "1", "--rounds", "1", "--limit", "5"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "5 answers, seconds for 1,000 of them"
    assert out[-1].split()[0] == "median"
    assert out[-1].endswith("goal 0.90")
    assert main([str(file), "--gold", "nix"]) == 2
    assert "answers.jsonl:1: no column 'nix'" in capsys.readouterr().err
