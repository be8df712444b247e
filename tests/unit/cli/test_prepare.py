"""`gspo-ray prepare` as it is typed."""

import argparse
import importlib
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gspo_ray.cli import main as cli
from gspo_ray.cli.prepare import NAMES
from gspo_ray.config_io import load_config
from gspo_ray.data.sources import load_problems
from gspo_ray.models import DEMO_MODEL
from gspo_ray.prepare import pipeline


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cli, "COMMANDS", ("prepare",))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    rows = ({"question": f"What is {number} + 1?", "answer": number + 1} for number in range(60))
    path = tmp_path / "raw.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def prepare(capfd: pytest.CaptureFixture[str]) -> Callable[..., list[str]]:
    """Lines on the screen of a run that goes well."""

    def run(*words: str) -> list[str]:
        assert cli.main(["prepare", *words]) == 0
        captured = capfd.readouterr()
        assert captured.err == ""
        return captured.out.splitlines()

    return run


def test_the_data_sets() -> None:
    assert NAMES == ("dapo-math-17k", "gsm8k", "aime25", "aime24", "math500", "amc23", "mawps", "jsonl")


def test_what_is_printed(prepare: Callable[..., list[str]], raw: Path) -> None:
    lines = prepare("jsonl", "--raw", "raw.jsonl", "--out", "data/mine")
    assert lines[:6] == [
        "source rows                             60",
        "invalid rows                             0",
        "duplicate rows                           0",
        "conflicting questions dropped            0",
        "deduplicated questions                  60",
        "train                                   10",
    ]
    assert lines[6] == "dev                                     50"
    assert "In data/mine: dev.jsonl, report.json, report.md, train.jsonl, manifest.json" in lines
    assert lines[-1].startswith("Next: ")
    assert lines[-1].endswith(
        "gspo-ray train --data.source jsonl --data.path data/mine/train.jsonl --data.id_column id"
    )
    again = prepare("jsonl", "--raw", "raw.jsonl", "--out", "data/mine")
    assert again[0].startswith("data/mine was prepared before, from these very inputs: nothing to do")
    assert again[1:] == lines


def test_the_options_arrive(prepare: Callable[..., list[str]], tmp_path: Path, raw: Path) -> None:
    (tmp_path / "e1.jsonl").write_text('{"problem": "What is 5 + 1?"}\n')
    (tmp_path / "e2.jsonl").write_text('{"question": "What is 6+1?"}\n{"question": "What is 7 + 1?"}\n')
    lines = prepare(
        *["jsonl", "--raw", "raw.jsonl", "--out", "data/mine", "--name", "sums", "--licence", "CC0", "--id", "answer"],
        *["--dev-size", "1", "--seed", "3", "--against", "e1.jsonl", "e2.jsonl", "--drop-contaminated"],
    )
    manifest = json.loads((tmp_path / "data" / "mine" / "manifest.json").read_text())
    assert (manifest["name"], manifest["dataset"], manifest["licence"]) == ("sums", "jsonl", "CC0")
    assert manifest["options"] == {
        "model": None,
        "question": "question",
        "answer": "answer",
        "id": "answer",
        "dev_size": 1,
        "seed": 3,
        "drop_contaminated": True,
    }
    assert [item["name"] for item in manifest["against"]] == ["e1", "e2"]
    assert manifest["counts"]["dropped"] == 3
    assert "  e2: 2 contaminated, 2 of them with the same text; they meet 2 of its 2 problems" in lines
    ids = [json.loads(line)["id"] for line in (tmp_path / "data" / "mine" / "train.jsonl").open()]
    assert set(ids) < {str(number) for number in range(1, 61)}


def test_an_evaluation_set(prepare: Callable[..., list[str]], tmp_path: Path, raw: Path) -> None:
    lines = prepare("jsonl", "--raw", "raw.jsonl", "--split", "test")
    assert lines[5] == "test                                    60"
    assert (tmp_path / "data" / "jsonl" / "test.jsonl").exists()  # the default folder
    assert lines[-1].endswith(
        "gspo-ray eval --eval.source jsonl --eval.path data/jsonl/test.jsonl --eval.id_column id --out jsonl.jsonl"
    )


@pytest.mark.parametrize(("split", "command"), [("train", "train"), ("test", "eval")])
def test_the_command_to_go_on_with_is_one_that_the_config_knows(
    prepare: Callable[..., list[str]], raw: Path, split: str, command: str
) -> None:
    words = prepare("jsonl", "--raw", "raw.jsonl", "--split", split, "--model", DEMO_MODEL)[-1].split()
    start = words.index(command) + 1
    parser = argparse.ArgumentParser()
    importlib.import_module(f"gspo_ray.cli.{command}").add_arguments(parser)
    _, overrides = parser.parse_known_args(words[start:])
    config = load_config(None, overrides)
    assert config.model.path == DEMO_MODEL
    problems = load_problems(config.data if command == "train" else config.eval)
    assert len(problems) == (10 if command == "train" else 60)
    assert problems[0].source == "jsonl"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "required: DATASET"),
        (["nosuch"], "invalid choice: 'nosuch'"),
        (["jsonl"], "prepare jsonl reads a local file: --raw FILE"),
        (["gsm8k", "--raw", "no.jsonl"], "no.jsonl: no such file. Set --raw to an existing file"),
        (["gsm8k", "--raw", "."], ". is a folder. Set --raw to one .jsonl or .parquet file"),
        (["gsm8k", "--question", "q"], "--question belongs to `prepare jsonl`; the columns of gsm8k are known"),
        (["aime25", "--raw", "raw.jsonl", "--revision", "main"], "give one of them"),
        (["mawps"], "mawps: no place on the hub is known"),
        (["jsonl", "--raw", "raw.jsonl", "--dev-size", "60"], "--dev-size is 60"),
        (["jsonl", "--raw", "raw.jsonl", "--dev-size", "x"], "--dev-size: invalid int value"),
        (["jsonl", "--raw", "raw.jsonl", "--model", "nosuch"], "'nosuch' is no known model"),
        (["jsonl", "--raw", "raw.jsonl", "--out", "raw.jsonl"], "--out raw.jsonl cannot be written"),
        (["jsonl", "--raw", "raw.jsonl", "--against", "no.jsonl"], "no.jsonl: no such file. Set --against"),
        (["jsonl", "--raw", "raw.jsonl", "--drop-contaminated"], "no evaluation set is known"),
        (["jsonl", "--raw", "raw.jsonl", "--forced"], "unexpected argument '--forced'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistakes_are_one_line(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, raw: Path, words: list[str], says: str
) -> None:
    before = sorted(tmp_path.rglob("*"))
    assert cli.main(["prepare", *words]) == 2
    captured = capfd.readouterr()
    assert says in captured.err
    assert (captured.err.count("\n"), captured.out) == (1, "")
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_says_how_to_go_on(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, raw: Path, number: int
) -> None:
    def stop(*_: Any) -> None:
        os.kill(os.getpid(), number)

    before = signal.getsignal(number)
    monkeypatch.setattr(pipeline, "_write", stop)
    assert cli.main(["prepare", "jsonl", "--raw", "raw.jsonl", "--out", "data/mine"]) == 128 + number
    captured = capfd.readouterr()
    assert captured.out == "Stopped: nothing was written to data/mine. The same command starts again.\n"
    assert captured.err == ""
    assert not (tmp_path / "data").exists()
    assert signal.getsignal(number) is before
