"""The real data sets, against counts and hashes that were published for them or counted by other means."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gspo_ray.config import DataConfig
from gspo_ray.data.sources import load_problems
from gspo_ray.errors import DataError
from tests.unit.prepare.conftest import read_lines, run

DEV_KEYS = "72376ac075d100925987f36b96f5fdfbf565e90c91911155274236d1db4c2df1"
TRAIN_KEYS_BEGIN = "278a1ea0ec67ffb6"


@pytest.mark.parametrize("name", ["dapo_math_17k_svs.parquet", "dapo_math_17k_rewrapped.parquet"])
def test_dapo_gives_the_published_numbers(shared_data: Path, tmp_path: Path, name: str) -> None:
    manifest = run("dapo-math-17k", shared_data / "dapo" / name, tmp_path / "out").manifest
    assert manifest.counts == {
        "rows": 17_917,
        "invalid": 0,
        "duplicates": 729,
        "conflicts": 12,
        "kept": 17_176,
        "renamed_ids": 0,
        "contaminated": 0,
        "dropped": 0,
        "train": 17_126,
        "dev": 50,
    }
    assert manifest.keys_sha256["dev"] == DEV_KEYS
    assert manifest.keys_sha256["train"].startswith(TRAIN_KEYS_BEGIN)
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["answers"] == {
        "kinds": {"integer": 17_176},
        "negative_integers": 342,
        "integers_beyond_int64": 3,
        "smallest_integer": "-2015028",
        "largest_integer": "22099999999999998951424",
    }
    # 3,201 distinct questions hold Chinese text; one of them is among the 12 conflicts.
    assert report["scripts"] == {"Latin": 13_976, "Chinese": 3_200}
    records = read_lines(tmp_path / "out" / "train.jsonl") + read_lines(tmp_path / "out" / "dev.jsonl")
    assert max(len(record["question"]) for record in records) == 3_190
    problems = load_problems(DataConfig(source="jsonl", path=str(tmp_path / "out" / "train.jsonl"), id_column="id"))
    assert [problem.problem_id for problem in problems] == [record["id"] for record in records[:17_126]]


def test_the_sample_of_dapo(shared_data: Path, tmp_path: Path) -> None:
    counts = run("dapo-math-17k", shared_data / "dapo" / "dapo_sample.jsonl", tmp_path / "out").manifest.counts
    assert (counts["rows"], counts["duplicates"], counts["conflicts"], counts["kept"]) == (2_534, 729, 12, 1_793)


def test_repeated_rows_change_nothing_but_the_count(shared_data: Path, tmp_path: Path) -> None:
    """As in the official file, which holds every row 100 times; here 20 times, in one row group, in a process."""
    rows = pa.Table.from_pylist(read_lines(shared_data / "dapo" / "dapo_sample.jsonl")).drop_columns("row")
    pq.write_table(rows, tmp_path / "once.parquet")
    pq.write_table(pa.concat_tables([rows] * 20), tmp_path / "often.parquet", row_group_size=1 << 20)
    code = (
        "import argparse; from gspo_ray.cli import prepare as command; parser = argparse.ArgumentParser(); "
        "command.add_arguments(parser); command.run(parser.parse_args(), []); print(open('/proc/self/status').read())"
    )
    for name in ("once", "often"):
        words = [sys.executable, "-c", code, "dapo-math-17k", "--raw", f"{name}.parquet", "--out", f"{name}/out"]
        shown = subprocess.run(words, cwd=tmp_path, check=True, capture_output=True, text=True, timeout=120).stdout
        peak_kib = int(re.search(r"VmHWM:\s+(\d+) kB", shown)[1])  # type: ignore[index]
        assert peak_kib < 300 * 1024
    once, often = (tmp_path / name / "out" for name in ("once", "often"))
    for name in ("train.jsonl", "dev.jsonl"):
        assert (once / name).read_bytes() == (often / name).read_bytes()
    counts = json.loads((often / "manifest.json").read_text())["counts"]
    # 2,534 - 729 questions.
    assert (counts["rows"], counts["duplicates"], counts["conflicts"]) == (50_680, 50_680 - 1_805, 12)


@pytest.mark.parametrize(
    ("name", "file", "problems", "answers"),
    [
        ("aime25", "aime/aime_2025.jsonl", 30, ["70", "588", "16", "117"]),
        ("aime25", "aime/aime_2025_alt.jsonl", 30, ["70", "588", "16", "117"]),
        ("aime24", "aime/aime_2024.jsonl", 30, ["73", "236", "45", "33"]),
        ("math500", "math500/test.jsonl", 500, ["\\left( 3, \\frac{\\pi}{2} \\right)", "p - q", "\\frac{14}{3}", "9"]),
        ("amc23", "amc23/test.jsonl", 40, ["27", "36", "45", "3159"]),
    ],
)
def test_evaluation_sets(
    shared_data: Path, tmp_path: Path, name: str, file: str, problems: int, answers: list[str]
) -> None:
    manifest = run(name, shared_data / file, tmp_path / "out").manifest
    assert (manifest.split, manifest.counts["test"]) == ("test", problems)
    records = read_lines(tmp_path / "out" / "test.jsonl")
    assert [record["answer"] for record in records[:4]] == answers
    assert records[0]["id"] == f"{name}-0"
    assert {record["data_source"] for record in records} == {name}


def test_gsm8k(shared_data: Path, tmp_path: Path) -> None:
    train = run("gsm8k", shared_data / "gsm8k" / "train.jsonl", tmp_path / "train").manifest
    test = run("gsm8k", shared_data / "gsm8k" / "test.jsonl", tmp_path / "test", split="test").manifest
    assert (train.counts["train"], train.counts["dev"], test.counts["test"]) == (7_423, 50, 1_319)
    ids = {record["id"]: record for record in read_lines(tmp_path / "train" / "train.jsonl")}
    assert ids["gsm8k-train-0"]["answer"] == "72"


def test_mawps(shared_data: Path, tmp_path: Path) -> None:
    counts = run("mawps", shared_data / "mawps" / "singleop.jsonl", tmp_path / "out").manifest.counts
    assert (counts["rows"], counts["duplicates"], counts["kept"]) == (562, 31, 531)
    records = read_lines(tmp_path / "out" / "train.jsonl") + read_lines(tmp_path / "out" / "dev.jsonl")
    answers = {record["id"]: record["answer"] for record in records}
    assert answers["mawps-0"] == "14"  # 14.0 in the file
    assert "1.25" in answers.values()


@pytest.mark.parametrize(
    ("name", "file", "says"),
    [
        ("aime24", "aime/aime_2025.jsonl", "not the problems of aime24: their answers are other ones"),
        ("aime25", "amc23/test.jsonl", "aime25 has 30 problems, but 40 were found in 40 rows"),
        ("math500", "gsm8k/test.jsonl", "math500 has 500 problems, but 1,319"),
        ("aime25", "dapo/dapo_math_17k_svs.parquet", "no column 'problem' or 'question'. Columns there: data_source, "),
        ("dapo-math-17k", "gsm8k/test.jsonl", "none of 1,319 rows can be read as dapo-math-17k"),
    ],
)
def test_another_file_than_the_set_is_refused(
    shared_data: Path, tmp_path: Path, name: str, file: str, says: str
) -> None:
    with pytest.raises(DataError) as caught:
        run(name, shared_data / file, tmp_path / "out")
    assert says in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_an_aime_answer_that_is_no_integer_is_named(shared_data: Path, tmp_path: Path) -> None:
    lines = read_lines(shared_data / "aime" / "aime_2025_alt.jsonl")
    raw = tmp_path / "raw.jsonl"
    raw.write_text("".join(json.dumps(line | {"answer": line["raw_answer"]}) + "\n" for line in lines))
    with pytest.raises(DataError, match=r"but 29 were found in 30 rows; the answer '336.*' is no integer.*line 20"):
        run("aime25", raw, tmp_path / "out")


def test_what_dapo_has_of_the_evaluation_sets(shared_data: Path, tmp_path: Path) -> None:
    files = {
        "aime24": "aime/aime_2024.jsonl",
        "aime25": "aime/aime_2025.jsonl",
        "math500": "math500/test.jsonl",
        "amc23": "amc23/test.jsonl",
    }
    for name, file in files.items():
        run(name, shared_data / file, tmp_path / name)
    done = run("dapo-math-17k", shared_data / "dapo" / "dapo_math_17k_svs.parquet", tmp_path / "out")
    rows = {row["set"]: row for row in done.report["overlap"]["sets"]}
    # By eye: no AIME problem is there; the pairs of the other two are the same problems, most of them with an
    # instruction for an integer answer added.
    assert {name: (row["same_text"], row["contaminated"], row["problems_met"]) for name, row in rows.items()} == {
        "aime24": (0, 0, 0),
        "aime25": (0, 0, 0),
        "amc23": (11, 38, 27),
        "math500": (8, 33, 29),
    }
    pairs = {(hit["eval_id"], hit["same_text"]): hit for hit in done.report["overlap"]["contaminated"]}
    assert "Coinland" in pairs["amc23-28", True]["question"]
    assert done.manifest.counts["contaminated"] == 71
