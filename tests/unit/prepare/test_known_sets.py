"""Evaluation sets that training problems are compared with, and what becomes of contaminated ones."""

from pathlib import Path

import pytest

from gspo_ray.errors import DataError
from gspo_ray.prepare.known_sets import known_sets
from tests.unit.prepare.conftest import read_lines, run, sums, write_lines


@pytest.fixture
def train_file(tmp_path: Path) -> Path:
    return write_lines(tmp_path / "raw.jsonl", *sums(12))


def test_sets_beside_and_inside_and_named(tmp_path: Path, train_file: Path) -> None:
    data = tmp_path / "data"
    run("jsonl", write_lines(tmp_path / "a.jsonl", *sums(2)), data / "beside", split="test")
    run("jsonl", write_lines(tmp_path / "b.jsonl", *sums(3)), data / "out" / "inside", split="test")
    run("jsonl", write_lines(tmp_path / "c.jsonl", *sums(9)), data / "another-train-set", dev_size=1)
    (data / "other-program").mkdir()
    (data / "other-program" / "manifest.json").write_text("{}")
    named = write_lines(tmp_path / "named.jsonl", {"problem": "What is 5 + 1?", "answer": 6, "id": "five"})
    sets = known_sets(data / "out", [named, data / "beside"])
    assert [(item.name, len(item.questions)) for item in sets] == [("named", 1), ("beside", 2), ("inside", 3)]
    assert sets[0].questions == (("five", "What is 5 + 1?"),)
    done = run("jsonl", train_file, data / "out", dev_size=1, against=(named,))
    assert {item.name: item.problems for item in done.manifest.against} == {"named": 1, "inside": 3, "beside": 2}


def test_two_sets_of_one_name(tmp_path: Path) -> None:
    for folder, count in (("x", 2), ("y", 3)):
        (tmp_path / folder).mkdir()
        write_lines(tmp_path / folder / "eval.jsonl", *sums(count))
    paths = [tmp_path / "x" / "eval.jsonl", tmp_path / "y" / "eval.jsonl", tmp_path / "x" / "eval.jsonl"]
    assert [item.name for item in known_sets(tmp_path / "out", paths)] == ["eval", "eval-2"]


def test_contaminated_problems_are_listed_and_dropped_on_demand(tmp_path: Path, train_file: Path) -> None:
    against = write_lines(tmp_path / "eval.jsonl", *sums(4), {"question": "Another one?", "answer": 1})
    at_kept, at_dropped = tmp_path / "a" / "out", tmp_path / "b" / "out"
    kept = run("jsonl", train_file, at_kept, dev_size=2, against=(against,))
    dropped = run("jsonl", train_file, at_dropped, dev_size=2, against=(against,), drop_contaminated=True)
    dev = {record["question"] for record in read_lines(at_kept / "dev.jsonl")}
    contaminated = {item["question"] for item in sums(4)} - dev
    assert contaminated
    for done in (kept, dropped):
        assert {hit["question"] for hit in done.report["overlap"]["contaminated"]} == contaminated
        assert done.manifest.counts["contaminated"] == len(contaminated)
    assert (kept.manifest.counts["train"], kept.manifest.counts["dropped"]) == (10, 0)
    assert dropped.manifest.counts["train"] == 10 - len(contaminated) == 10 - dropped.manifest.counts["dropped"]
    # Dev and the order of train are those of a run without the flag.
    assert (at_kept / "dev.jsonl").read_bytes() == (at_dropped / "dev.jsonl").read_bytes()
    rest = [r for r in read_lines(at_kept / "train.jsonl") if r["question"] not in contaminated]
    assert read_lines(at_dropped / "train.jsonl") == rest
    [row] = kept.report["overlap"]["sets"]
    assert row == {
        "set": "eval",
        "problems": 5,
        "same_text": len(contaminated),
        "contaminated": len(contaminated),
        "problems_met": len(contaminated),
        "share_a_run": len(contaminated),
    }
    with pytest.raises(DataError, match="drop_contaminated False -> True"):
        run("jsonl", train_file, at_kept, dev_size=2, against=(against,), drop_contaminated=True)
    assert "still in train.jsonl" in (at_kept / "report.md").read_text()
    assert "dropped from train.jsonl" in (at_dropped / "report.md").read_text()


def test_a_new_evaluation_set_makes_another_run_necessary(tmp_path: Path, train_file: Path) -> None:
    run("jsonl", train_file, tmp_path / "data" / "out", dev_size=1)
    run("jsonl", write_lines(tmp_path / "a.jsonl", *sums(2)), tmp_path / "data" / "new", split="test")
    with pytest.raises(DataError, match=r"against nothing -> new .*--force"):
        run("jsonl", train_file, tmp_path / "data" / "out", dev_size=1)


def test_refusals(tmp_path: Path, train_file: Path) -> None:
    with pytest.raises(DataError, match="--drop-contaminated, but no evaluation set is known"):
        run("jsonl", train_file, tmp_path / "out", drop_contaminated=True)
    with pytest.raises(DataError, match="--drop-contaminated leaves nothing: all 11 problems"):
        run("jsonl", train_file, tmp_path / "out", dev_size=1, against=(train_file,), drop_contaminated=True)
    with pytest.raises(DataError, match=r"no\.jsonl: no such file\. Set --against"):
        known_sets(tmp_path / "out", [tmp_path / "no.jsonl"])
    with pytest.raises(DataError, match=r"e\.jsonl:1: no column question, problem, input"):
        known_sets(tmp_path / "out", [write_lines(tmp_path / "e.jsonl", {"text": "q"})])
    with pytest.raises(DataError, match="no rows to compare with"):
        known_sets(tmp_path / "out", [write_lines(tmp_path / "e.jsonl")])
