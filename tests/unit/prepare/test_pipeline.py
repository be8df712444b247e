"""From a raw file to a folder: what is written, what is refused, what is left after a stop."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from gspo_ray.config import DataConfig
from gspo_ray.data.sources import load_problems
from gspo_ray.errors import DataError
from gspo_ray.prepare import output, pipeline
from gspo_ray.prepare.manifest import check_files, read_manifest
from gspo_ray.prepare.output import PARTIAL, new_files
from tests.unit.prepare.conftest import files_of, read_lines, run, sums, write_lines


def test_what_is_written_can_be_trained_on(tmp_path: Path) -> None:
    raw = write_lines(tmp_path / "raw.jsonl", *sums(20))
    done = run("jsonl", raw, tmp_path / "out", dev_size=5)
    train, dev = read_lines(tmp_path / "out" / "train.jsonl"), read_lines(tmp_path / "out" / "dev.jsonl")
    assert [list(record) for record in train + dev] == [["id", "question", "answer", "data_source"]] * 20
    assert {record["question"] for record in train + dev} == {item["question"] for item in sums(20)}
    problems = load_problems(DataConfig(source="jsonl", path=str(tmp_path / "out" / "train.jsonl"), id_column="id"))
    assert [(p.problem_id, p.question, p.answer, p.source) for p in problems] == [tuple(r.values()) for r in train]
    assert {p.source for p in problems} == {"out"}
    assert done.manifest == read_manifest(tmp_path / "out")
    assert check_files(tmp_path / "out", done.manifest) == []
    assert done.manifest.files["dev.jsonl"].problems == 5


def test_three_hundred_rows_of_three_problems(tmp_path: Path) -> None:
    raw = write_lines(tmp_path / "raw.jsonl", *(sums(3) * 100))
    counts = run("jsonl", raw, tmp_path / "out", dev_size=1).manifest.counts
    assert (counts["rows"], counts["duplicates"], counts["kept"], counts["train"]) == (300, 297, 3, 2)
    # An evaluation file that stands for 100 samples of each problem must not count each 100 times.
    counts = run("jsonl", raw, tmp_path / "test", split="test").manifest.counts
    assert (counts["rows"], counts["kept"], counts["test"]) == (300, 3, 3)
    with pytest.raises(DataError, match=r"--dev-size is 50.*there are 3 problems"):
        run("jsonl", raw, tmp_path / "other")


def test_an_evaluation_set_keeps_its_order(tmp_path: Path) -> None:
    raw = write_lines(tmp_path / "raw.jsonl", *sums(12)[::-1])
    run("jsonl", raw, tmp_path / "out", split="test")
    assert [record["answer"] for record in read_lines(tmp_path / "out" / "test.jsonl")] == [
        str(n) for n in range(12, 0, -1)
    ]
    assert not (tmp_path / "out" / "train.jsonl").exists()


def test_invalid_rows_are_listed_by_reason_and_line(tmp_path: Path) -> None:
    raw = write_lines(
        tmp_path / "raw.jsonl",
        *sums(3),
        "",
        {"question": "null?", "answer": None},  # line 5
        {"question": "true?", "answer": True},
        {"question": "list?", "answer": ["42"]},
        {"question": "record?", "answer": {"a": 1}},
        {"question": "missing?"},
        "not json",  # line 10
        {"question": " ", "answer": 1},
        {"question": "null, too?", "answer": None},
        {"question": "float?", "answer": 42.0},
        {"question": "int?", "answer": 42},
    )
    done = run("jsonl", raw, tmp_path / "out", dev_size=1)
    assert done.manifest.counts | {} == done.report["counts"]
    assert (done.manifest.counts["rows"], done.manifest.counts["invalid"], done.manifest.counts["kept"]) == (13, 8, 5)
    found = {item["reason"]: item["numbers"] for item in done.report["invalid"]}
    assert found.pop("answer is null") == [5, 12]
    assert found.pop("answer is true") == [6]
    assert found.pop("answer is a list") == [7]
    assert found.pop("answer is a record") == [8]
    assert found.pop("no column 'answer', only question") == [9]
    assert found.pop("question is empty") == [11]
    [(reason, lines)] = found.items()
    assert reason.startswith("not valid JSON")
    assert lines == [10]
    text = (tmp_path / "out" / "report.md").read_text()
    assert "- 2 x answer is null: line 5, 12\n" in text


def test_conflicts_are_shown(tmp_path: Path) -> None:
    raw = write_lines(tmp_path / "raw.jsonl", *sums(3), {"question": "What is 0 + 1?", "answer": 7}, *sums(1))
    report = run("jsonl", raw, tmp_path / "out", dev_size=1).report
    assert report["conflicts"] == [
        {
            "question": "What is 0 + 1?",
            "answers": [{"answer": "1", "first": 1, "rows": 2}, {"answer": "7", "first": 4, "rows": 1}],
        }
    ]
    text = (tmp_path / "out" / "report.md").read_text()
    assert "- What is 0 + 1? -> 1 (line 1, 2 in all), 7 (line 4, 1 in all)\n" in text


def test_a_second_run_has_nothing_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = write_lines(tmp_path / "raw.jsonl", *sums(9))
    first = run("jsonl", raw, tmp_path / "out", dev_size=2, model="m")
    before = files_of(tmp_path / "out")
    moved = raw.rename(tmp_path / "other name.jsonl")  # the content counts
    with monkeypatch.context() as patched:
        patched.setattr(pipeline, "read_raw", lambda *_: pytest.fail("the raw file was read again"))
        second = run("jsonl", moved, tmp_path / "out", dev_size=2, model="m")
    assert second.was_done
    assert (second.manifest, second.report) == (first.manifest, first.report)
    assert files_of(tmp_path / "out") == before
    assert not run("jsonl", moved, tmp_path / "out", dev_size=2, model="m", force=True).was_done
    after = files_of(tmp_path / "out")
    assert {name for name in before if before[name] != after[name]} == {"manifest.json"}  # it names the raw file


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"dev_size": 3}, "dev_size 2 -> 3"),
        ({"seed": 1}, "seed 42 -> 1"),
        ({"model": "m"}, "model None -> m"),
        ({"split": "test"}, r"it holds out \(train\)"),
    ],
)
def test_other_inputs_are_not_replaced_without_force(tmp_path: Path, options: dict[str, Any], says: str) -> None:
    raw = write_lines(tmp_path / "raw.jsonl", *sums(9))
    run("jsonl", raw, tmp_path / "out", dev_size=2)
    before = files_of(tmp_path / "out")
    with pytest.raises(DataError, match=f"prepared before.*{says}.*--force"):
        run("jsonl", raw, tmp_path / "out", **{"dev_size": 2} | options)
    assert files_of(tmp_path / "out") == before
    run("jsonl", raw, tmp_path / "out", **{"dev_size": 2} | options, force=True)


def test_changed_files_and_rows_are_noticed(tmp_path: Path) -> None:
    raw = write_lines(tmp_path / "raw.jsonl", *sums(9))
    run("jsonl", raw, tmp_path / "out", dev_size=2)
    (tmp_path / "out" / "train.jsonl").open("a").write("\n")
    (tmp_path / "out" / "dev.jsonl").unlink()
    with pytest.raises(DataError, match=r"dev\.jsonl is missing; train\.jsonl was changed"):
        run("jsonl", raw, tmp_path / "out", dev_size=2)
    run("jsonl", raw, tmp_path / "out", dev_size=2, force=True)
    write_lines(raw, *sums(10))
    with pytest.raises(DataError, match=r"raw sha256 .* -> sha256"):
        run("jsonl", raw, tmp_path / "out", dev_size=2)


def test_files_of_somebody_else_stay(tmp_path: Path) -> None:
    raw = write_lines(tmp_path / "raw.jsonl", *sums(9))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "dev.jsonl").write_text("mine")
    with pytest.raises(DataError, match=r"holds dev\.jsonl, which gspo-ray prepare did not write"):
        run("jsonl", raw, tmp_path / "out", dev_size=2)
    assert files_of(tmp_path / "out") == {"dev.jsonl": b"mine"}


def stopped_by(number: int) -> Any:
    def stop(*_: Any) -> None:
        os.kill(os.getpid(), number)

    return stop


@pytest.mark.parametrize("step", ["read_raw", "_describe", "_write"])
@pytest.mark.parametrize("there", [False, True])
def test_a_stop_leaves_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, there: bool
) -> None:
    raw = write_lines(tmp_path / "raw.jsonl", *sums(9))
    out = tmp_path / "data" / "out"
    if there:
        run("jsonl", raw, out, dev_size=2)
    before = files_of(out)
    with monkeypatch.context() as patched:
        patched.setattr(pipeline, step, stopped_by(signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            run("jsonl", raw, out, dev_size=2, seed=7, force=there)
    assert files_of(out) == before
    assert out.parent.exists() is there
    run("jsonl", raw, out, dev_size=2, seed=7, force=there)


def test_a_kill_while_files_are_moved_is_made_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Worst case: new and old files side by side. There is no manifest then, and the next run starts afresh."""
    raw, out = write_lines(tmp_path / "raw.jsonl", *sums(9)), tmp_path / "out"
    whole = files_of(run_into(raw, out))
    (out / "manifest.json").unlink()
    (out / PARTIAL).mkdir()
    (out / PARTIAL / "train.jsonl").write_text("half a li")
    (out / "train.jsonl").write_text("of another run")
    assert files_of(run_into(raw, out)) == whole


def run_into(raw: Path, out: Path) -> Path:
    run("jsonl", raw, out, dev_size=2)
    return out


def test_the_manifest_goes_first_and_comes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw, out = write_lines(tmp_path / "raw.jsonl", *sums(9)), tmp_path / "out"
    run("jsonl", raw, out, dev_size=2)
    seen: list[tuple[str, bool]] = []
    replace = Path.replace

    def watched(path: Path, target: Path) -> Path:
        seen.append((target.name, (out / "manifest.json").exists()))
        return replace(path, target)

    monkeypatch.setattr(output.Path, "replace", watched)
    run("jsonl", raw, out, dev_size=3, force=True)
    assert [name for name, _ in seen][-1] == "manifest.json"
    assert {is_there for _, is_there in seen} == {False}


def test_two_writers_do_not_meet(tmp_path: Path) -> None:
    raw = write_lines(tmp_path / "raw.jsonl", *sums(9))
    with new_files(tmp_path / "out") as folder:
        with pytest.raises(DataError, match="another gspo-ray prepare is writing"):
            run("jsonl", raw, tmp_path / "out", dev_size=2)
        assert folder.is_dir()
    assert not run("jsonl", raw, tmp_path / "out", dev_size=2).was_done


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([], "has no rows"),
        (
            [{"problem": "q", "answer": 1}],
            "none of 1 rows.*line 1: no column 'question', only problem, answer.*--question",
        ),
        (["{", "["], "none of 2 rows.*line 1: not valid JSON"),
        ([*sums(1), {"question": "What is 0 + 1?", "answer": 2}], "nothing is left: each of 1 questions"),
    ],
)
def test_nothing_to_use(tmp_path: Path, lines: list[Any], says: str) -> None:
    raw = write_lines(tmp_path / "raw.jsonl", *lines)
    with pytest.raises(DataError, match=says):
        run("jsonl", raw, tmp_path / "out", split="test")
    assert not (tmp_path / "out").exists()


def test_many_reasons_do_not_fill_the_memory(tmp_path: Path) -> None:
    raw = write_lines(
        tmp_path / "raw.jsonl",
        *sums(3),
        *("x" * n + "{" for n in range(1, 100)),
        *[sums(3)[0] | {"answer": None}] * 150,
    )
    invalid = run("jsonl", raw, tmp_path / "out", dev_size=1).report["invalid"]
    assert len(invalid) <= 51
    assert sum(item["rows"] for item in invalid) == 249
    assert max(len(item["numbers"]) for item in invalid) == 100


def test_lengths_in_tokens(tmp_path: Path) -> None:
    raw = write_lines(tmp_path / "raw.jsonl", *sums(9), {"question": "word " * 100, "answer": 1})
    report = run("jsonl", raw, tmp_path / "out", dev_size=2, model="m").report
    assert report["prompt_tokens"]["histogram"] == {"<= 32": 9, "<= 128": 1}  # "What is 0 + 1?" has 5 words
    assert (report["prompt_tokens"]["model"], report["prompt_tokens"]["max"]) == ("m", 100)
    assert "Prompt lengths in tokens of m" in (tmp_path / "out" / "report.md").read_text()
    assert json.loads((tmp_path / "out" / "report.json").read_text()) == report
