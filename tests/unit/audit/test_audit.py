"""The whole command on a small file whose every number can be counted by hand."""

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from gspo_ray.cli import verify
from gspo_ray.errors import ConfigError, DataError

ROWS: list[dict[str, Any]] = [
    {"id": "same", "gold": "7", "completion": r"\boxed{7}", "correct": True},
    {"id": "other text", "gold": r"\frac{1}{2}", "completion": r"\boxed{0.5}", "correct": True},
    {"id": "wrong label", "gold": "7", "completion": r"\boxed{8}", "correct": True},
    {"id": "wrong", "gold": "7", "completion": r"\boxed{x}", "correct": False},
    {"id": "no box", "gold": "7", "completion": "7", "correct": False},
    {"id": "hangs", "gold": "7", "completion": r"\boxed{99999999!}", "correct": False},
    {"id": "bad gold", "gold": "see figure", "completion": r"\boxed{see figure}", "correct": False},
]


def run(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    verify.add_arguments(parser)
    args, rest = parser.parse_known_args(arguments)
    return verify.run(args, rest)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("audit") / "answers.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def report(file: Path) -> dict[str, Any]:
    target = file.parent / "report.json"
    assert run(str(file), "--label", "correct", "--timeout", "1", "--workers", "1", "--json", str(target)) == 0
    data: dict[str, Any] = json.loads(target.read_text(encoding="utf-8"))
    return data


def test_outcomes_and_agreement(report: dict[str, Any]) -> None:
    assert report["num_items"] == 7
    assert report["outcomes"] == {"correct": 2, "wrong": 2, "no_answer": 1, "timeout": 1, "error": 1}
    assert report["labels"]["num_agreeing"] == 6
    assert report["labels"]["confusion"] == {
        "right": {"correct": 2, "wrong": 1, "no_answer": 0, "timeout": 0, "error": 0},
        "wrong": {"correct": 0, "wrong": 1, "no_answer": 1, "timeout": 1, "error": 1},
    }
    assert [(item["line"], item["name"]) for item in report["disagreements"]] == [(3, "wrong label")]


def test_string_match(report: dict[str, Any]) -> None:
    match = report["string_match"]
    counts = {key: value for key, value in match.items() if key != "disagreements"}
    # "see figure" is the same text, but no answer
    assert counts == {"same_correct": 1, "same_not_correct": 1, "different_correct": 1, "different_not_correct": 4}
    assert [item["name"] for item in match["disagreements"]] == ["other text", "bad gold"]


def test_kinds_reasons_and_the_slow(report: dict[str, Any]) -> None:
    assert [(row["kind"], row["num_items"], row["correct"], row["num_agreeing"]) for row in report["kinds"]] == [
        ("integer", 5, 1, 4),
        ("fraction", 1, 1, 1),
        ("no answer", 1, 0, 1),
    ]
    assert report["reasons"] == {
        "different value": 2,
        "more than 1 s": 1,
        "cannot read the gold answer: a placeholder ('see figure')": 1,
    }
    assert [item["name"] for item in report["not_judged"]] == ["hangs", "bad gold"]
    assert report["slowest"][0]["name"] == "hangs"
    assert len(report["slowest"]) == 5


def test_what_is_printed(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(str(file), "--label", "correct", "--limit", "5", "--workers", "1") == 0
    out = capsys.readouterr().out
    assert "5 answers, style boxed, 1 worker(s)" in out
    assert "Agreement with the labels: 4 of 5 (80.0%)" in out
    assert "line 3 wrong label  |  gold 7  |  answer 8  |  wrong (different value)" in out


def test_without_labels_and_another_style(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(str(file), "--style", "whole", "--limit", "1", "--workers", "1", "--completion", "gold") == 0
    out = capsys.readouterr().out
    assert "1 answers, style whole" in out
    assert "Agreement" not in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--workers", "0"], "--workers is 0; it must be at least 1"),
        (["--limit", "0"], "--limit is 0"),
        (["--timeout", "0"], "--timeout is 0; it must be above 0"),
        (["--memory", "1"], "--memory is 1; it must be at least 256"),
        (["--colour", "red"], "unexpected argument '--colour'"),
        (["--limit", "1", "--json", "/nope/report.json"], r"--json /nope/report\.json: cannot be written"),
    ],
)
def test_flags_that_make_no_sense(file: Path, arguments: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        run(str(file), *arguments)


def test_a_missing_column_names_its_flag(file: Path) -> None:
    with pytest.raises(DataError, match=r"answers\.jsonl:1: no column 'label' \(--label names it\)"):
        run(str(file), "--label", "label")


RECORDED = Path(__file__).parents[4] / "shared" / "data" / "outputs"


@pytest.mark.skipif(not RECORDED.exists(), reason=f"recorded outputs are not at {RECORDED}")
@pytest.mark.parametrize(
    ("name", "flags", "agreement"),
    [
        ("qwen25_math_100x8.jsonl", ["--label", "correct", "--limit", "100"], "100 of 100"),
        (
            "gsm8k_openai_solutions.jsonl",
            ["--label", "correct", "--style", "answer_line", "--limit", "500"],
            "500 of 500",
        ),
        ("math_verify_cases.jsonl", ["--completion", "pred", "--label", "expected", "--style", "any"], "150 of 178"),
    ],
)
def test_the_recorded_outputs(name: str, flags: list[str], agreement: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(str(RECORDED / name), *flags, "--timeout", "60") == 0
    assert f"Agreement with the labels: {agreement} (" in capsys.readouterr().out
