"""Files that repeat themselves, golds of every kind, and lines that are no rows."""

import json
import logging
import random
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gspo_ray.config import DataConfig
from gspo_ray.data.rows import read_rows
from gspo_ray.data.sources import load_problems
from gspo_ray.data.stream import ProblemStream
from gspo_ray.errors import DataError
from gspo_ray.reward.verify import judge
from gspo_ray.types import Outcome, Prompt

THREE = [{"question": f"What is {number} + 1?", "answer": number + 1} for number in range(3)]


def write(path: Path, rows: list[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_three_hundred_rows_of_three_problems_are_three(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path / "rows", THREE * 100)
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(THREE * 100), path)
    with caplog.at_level(logging.WARNING):
        problems = load_problems(DataConfig.model_validate({"source": kind, "path": str(path)}))
    assert [problem.question for problem in problems] == [row["question"] for row in THREE]
    assert "297 rows repeat an earlier row word for word; 3 distinct problems are kept" in caplog.text
    stream = ProblemStream([Prompt(problem=problem, token_ids=(1,)) for problem in problems], seed=0, shuffle=True)
    assert len({prompt.problem.problem_id for prompt in stream.take(3)}) == 3  # one pass


def test_max_problems_counts_distinct_ones(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", [*THREE[:1] * 5, *THREE])
    problems = load_problems(DataConfig(source="jsonl", path=str(path), max_problems=2))
    assert [(problem.problem_id, problem.answer) for problem in problems] == [("0", "1"), ("6", "2")]


def test_ids_of_the_file_say_what_is_a_problem(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [{"id": number, **THREE[0]} for number in (7, 8, 7)]
    path = write(tmp_path / "rows.jsonl", rows)
    problems = load_problems(DataConfig(source="jsonl", path=str(path), id_column="id"))
    assert [problem.problem_id for problem in problems] == ["7", "8"]


def test_rows_of_dapo_without_an_index(tmp_path: Path) -> None:
    row: dict[str, object] = {"prompt": [{"content": "q?"}], "label": "1"}
    assert len(load_problems(DataConfig(source="dapo", path=str(write(tmp_path / "rows.jsonl", [row] * 3))))) == 1


@pytest.mark.parametrize("written", ["42", "42.0", '"42"'])
def test_golds_that_score(tmp_path: Path, written: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(f'{{"question": "q", "answer": {written}}}\n')
    [problem] = load_problems(DataConfig(source="jsonl", path=str(path)))
    assert judge("\\boxed{42}", problem.answer).outcome is Outcome.CORRECT
    assert judge("\\boxed{43}", problem.answer).outcome is Outcome.WRONG


@pytest.mark.parametrize(
    "written", ['"answer": true', '"answer": null', '"answer": ["42"]', '"answer": {"a": 1}', '"a": 1']
)
def test_golds_that_do_not_are_one_line_with_the_row(tmp_path: Path, written: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(f'{{"question": "p", "answer": 1}}\n{{"question": "q", {written}}}\n')
    with pytest.raises(DataError) as caught:
        load_problems(DataConfig(source="jsonl", path=str(path)))
    assert f"{path}:2: " in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_column_data_source_is_the_source(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [THREE[0] | {"data_source": "math_dapo"}, THREE[1], THREE[2] | {"data_source": 5}]
    path = write(tmp_path / "train.jsonl", rows)
    problems = load_problems(DataConfig(source="jsonl", path=str(path)))
    assert [problem.source for problem in problems] == ["math_dapo", "train", "5"]
    pq.write_table(pa.Table.from_pylist(rows[:2]), tmp_path / "train.parquet")
    problems = load_problems(DataConfig(source="parquet", path=str(tmp_path / "train.parquet")))
    assert [problem.source for problem in problems] == ["math_dapo", "train"]


def test_bad_lines_can_be_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"a": 1}\nnot json\n\n[1]\n\xff\n{"a": 2}\n')
    bad: list[tuple[int, str]] = []
    rows = list(read_rows(path, on_bad_line=lambda number, error: bad.append((number, str(error)))))
    assert [(row.index, row.number, row.fields["a"]) for row in rows] == [(0, 1, "1"), (4, 6, "2")]
    assert [number for number, _ in bad] == [2, 4, 5]
    assert all(text.startswith(f"{path}:{number}: ") for number, text in bad)
    with pytest.raises(DataError, match=r"rows\.jsonl:2: not valid JSON"):
        list(read_rows(path))


def test_a_row_group_is_not_held_in_memory(tmp_path: Path) -> None:
    rows = [{"question": random.Random(number).randbytes(2000).hex(), "answer": "1"} for number in range(10_000)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "p.parquet", row_group_size=1 << 20, compression="none")
    assert (tmp_path / "p.parquet").stat().st_size > 40_000_000
    code = (
        "import sys; from pathlib import Path; import pyarrow as pa; from gspo_ray.data.rows import read_rows; "
        "rows = sum(1 for _ in read_rows(Path(sys.argv[1]), required=('question',))); "
        "print(rows, pa.default_memory_pool().max_memory())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "p.parquet")], capture_output=True, text=True, check=True
    )
    count, peak = map(int, done.stdout.split())
    assert count == 10_000
    assert 0 < peak < 30_000_000  # 1,024 rows of 4 kB, a few times over
