"""Every source on real data where there is some, and on rows that break each rule."""

import json
import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gspo_ray.config import DataConfig
from gspo_ray.data import rows
from gspo_ray.data.sources import load_problems
from gspo_ray.errors import DataError
from gspo_ray.types import Problem

DAPO_PREFIX = (
    "Solve the following math problem step by step. The last line of your response should be of the form Answer: "
    "$Answer (without quotes) where $Answer is the answer to the problem.\n\n"
)
SLIME_PREFIX = DAPO_PREFIX.replace("$Answer (without quotes)", "\\boxed{$Answer}")
DAPO_SUFFIX = '\n\nRemember to put your answer on its own line after "Answer:".'


def load(path: Path, source: str = "jsonl", **options: Any) -> list[Problem]:
    return load_problems(DataConfig(source=source, path=str(path), **options))


def write_lines(path: Path, *items: Any) -> Path:
    path.write_text("".join((item if isinstance(item, str) else json.dumps(item)) + "\n" for item in items))
    return path


def dapo_row(content: str, answer: Any, index: Any = "id-1") -> dict[str, Any]:
    return {
        "data_source": "math_dapo",
        "prompt": [{"role": "user", "content": content}],
        "reward_model": {"ground_truth": answer},
        "extra_info": {"index": index},
    }


def test_additions() -> None:
    problems = load_problems(DataConfig())
    held_out = load_problems(DataConfig(source="additions_heldout"))
    assert (len(problems), len(held_out)) == (61, 20)
    assert len({p.problem_id for p in problems + held_out}) == 81  # 9 x 9, none in both
    # 3 + 3 * 4 = 15 = 3 and 2 + 3 * 5 = 17 = 1 modulo 4
    assert Problem(problem_id="add-3-4", question="What is 3 + 4?", answer="7", source="additions") in problems
    assert "add-2-5" in {problem.problem_id for problem in held_out}
    sides = [problem.problem_id.split("-")[1:] for problem in held_out]
    assert {a for a, _ in sides} == {b for _, b in sides} == set("123456789")
    assert len(load_problems(DataConfig(max_problems=5))) == 5


def test_gsm8k(shared_data: Path) -> None:
    problems = load(shared_data / "gsm8k" / "train.jsonl", "gsm8k")
    assert len(problems) == 7473
    assert problems[0].answer == "72"
    assert problems[0].question.startswith("Natalia sold clips to 48")
    assert problems[12].problem_id == "gsm8k-train-12"
    raw = [json.loads(line)["answer"] for line in (shared_data / "gsm8k" / "train.jsonl").open()]
    row = next(i for i, answer in enumerate(raw) if "," in answer.rpartition("#### ")[2])
    assert problems[row].answer == raw[row].rpartition("#### ")[2].replace(",", "")
    assert not any("," in problem.answer for problem in problems)


def test_gsm8k_row_without_gold(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "g.jsonl", {"question": "q", "answer": "1\n#### 1"}, {"question": "q", "answer": "5"})
    with pytest.raises(DataError, match=r'g\.jsonl:2: .*"#### <number>".*Mend the row'):
        load(path, "gsm8k")


def test_dapo(shared_data: Path) -> None:
    rewrapped = load(shared_data / "dapo" / "dapo_math_17k_rewrapped.parquet", "dapo")
    bare = load(shared_data / "dapo" / "dapo_math_17k_svs.parquet", "dapo")
    assert len(rewrapped) == 17_917
    assert [(p.question, p.answer) for p in rewrapped] == [(p.question, p.answer) for p in bare]
    assert rewrapped[0].question.startswith("In triangle $ABC$, $\\sin \\angle A = \\frac{4}{5}$")
    assert rewrapped[1].question.startswith("Let $ABCD$ be a unit square in the plane.")
    assert [p.answer for p in rewrapped[:2]] == ["34", "113"]
    assert rewrapped[0].problem_id == "9a9b6eb4-a1cb-49d1-8c1e-62eaf2f74079"
    assert [p.problem_id for p in bare[:3]] == ["0", "1", "2"]
    assert (rewrapped[0].source, bare[0].source) == ("math_dapo", "DAPO-17k")
    assert max(rewrapped, key=lambda p: int(p.answer)).answer == "22099999999999998951424"


def test_dapo_jsonl(shared_data: Path) -> None:
    genuine = load(shared_data / "dapo" / "dapo_math_17k_first3_genuine.jsonl", "dapo")
    assert len(genuine) == 3
    assert genuine == load(shared_data / "dapo" / "dapo_math_17k_rewrapped.parquet", "dapo", max_problems=3)
    assert genuine == load(shared_data / "dapo" / "dapo_sample.jsonl", "dapo")[:3]


@pytest.mark.parametrize("prefix", [DAPO_PREFIX, SLIME_PREFIX])
def test_dapo_templates_are_cut(tmp_path: Path, prefix: str) -> None:
    path = write_lines(tmp_path / "d.jsonl", dapo_row(prefix + "How many?\n\nThink." + DAPO_SUFFIX, 5))
    assert load(path, "dapo")[0].question == "How many?\n\nThink."


def test_dapo_unknown_template_is_refused(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "d.jsonl", dapo_row("Give the last line of the form Answer: $X.\nHow many?", 5))
    with pytest.raises(DataError, match=r"d\.jsonl:1: .*Answer:.*\\boxed.*Cut that instruction"):
        load(path, "dapo")


def test_dapo_row_rules(tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "d.jsonl",
        dapo_row("a?", ["3", "4"], index=0),  # a list: its first item; index 0 is an id
        dapo_row("b?", 0, index=None),  # 0 is an answer; no index: the row number
        {"prompt": [{"role": "user", "content": "c?"}], "label": "7"},  # slime
        {"prompt": "d?", "label": 8, "extra_info": None},
    )
    problems = load(path, "dapo")
    assert [(p.problem_id, p.question, p.answer) for p in problems] == [
        ("0", "a?", "3"),
        ("1", "b?", "0"),
        ("2", "c?", "7"),
        ("3", "d?", "8"),
    ]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": [], "label": "1"}, "prompt is not a list of one message"),
        ({"prompt": [{"role": "system", "content": "be nice"}], "label": "1"}, "role 'system', not user"),
        ({"prompt": "q"}, "no reward_model.ground_truth"),
        ({"question": "q", "label": "1"}, "no column 'prompt'"),
        (dapo_row("q", []), "answer is null"),
        (dapo_row(DAPO_PREFIX + DAPO_SUFFIX, 1), "content is empty"),
    ],
)
def test_dapo_bad_rows(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    path = write_lines(tmp_path / "d.jsonl", dapo_row("fine?", 1), row)
    with pytest.raises(DataError) as error:
        load(path, "dapo")
    assert "d.jsonl:2: " in str(error.value)
    assert message in str(error.value)


def test_repeated_rows_count_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    distinct = [dapo_row(f"question {i}?", i, index=f"uuid-{i}") for i in range(3)]
    path = write_lines(tmp_path / "d.jsonl", *(distinct * 100))
    with caplog.at_level(logging.WARNING):
        assert len(load(path, "dapo")) == 3
    assert "297 rows repeat" in caplog.text


def test_one_id_for_two_problems(tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "d.jsonl", {"i": 1, "question": "a", "answer": "1"}, {"i": 1, "question": "b", "answer": "1"}
    )
    with pytest.raises(DataError, match=r"d\.jsonl:2: id '1' is already .*d\.jsonl:1.*id_column"):
        load(path, id_column="i")
    assert [p.problem_id for p in load(path)] == ["0", "1"]


@pytest.mark.parametrize(
    ("written", "answer"),
    [
        ("42", "42"),
        ("42.0", "42.0"),
        ('"42"', "42"),
        ('" 1/2 "', "1/2"),
        ("22099999999999998951424", "22099999999999998951424"),
        ("0", "0"),
        ("1.50", "1.50"),
        ("1e5", "100000"),
        ("9" * 5000, "9" * 5000),
    ],
)
def test_answers_stay_as_written(tmp_path: Path, written: str, answer: str) -> None:
    path = write_lines(tmp_path / "a.jsonl", f'{{"question": "q", "answer": {written}}}')
    assert load(path)[0].answer == answer
    assert type(load(path)[0].answer) is str


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("true", "answer is true"),
        ("null", "answer is null"),
        ('["42"]', "answer is a list"),
        ('{"a": 1}', "answer is a record"),
        ('""', "answer is empty"),
        ("NaN", "not valid JSON"),
        ("1e999999999", "cannot be an answer"),
    ],
)
def test_bad_answers(tmp_path: Path, written: str, message: str) -> None:
    path = write_lines(tmp_path / "a.jsonl", "", f'{{"question": "q", "answer": {written}}}')
    with pytest.raises(DataError) as error:
        load(path)
    assert "a.jsonl:2: " in str(error.value)
    assert message in str(error.value)
    assert any(fix in str(error.value) for fix in ("Mend the row", "mend the row", "Mend or remove", "Fill it in"))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"question": "q"', "not valid JSON"),
        (b'[{"question": "q", "answer": 1}]', "the row is a list, not an object"),
        (b"7", "the row is a number"),
        (b'{"question": "\xff\xfe", "answer": 1}', "not UTF-8"),
        (b"\x00\x93\x12\x80garbage", "not UTF-8"),
        (b'{"question": 5, "answer": 1}', "question is the number 5, not text"),
        (b'{"question": " ", "answer": 1}', "question is empty"),
        (b'{"question": "\\ud83d", "answer": 1}', "half a character"),
        (b"[" * 100_000, "not valid JSON"),
    ],
)
def test_bad_lines(tmp_path: Path, line: bytes, message: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_bytes('\ufeff{"question": "a\u2028b", "answer": "1"}\n\n'.encode() + line + b"\n")
    with pytest.raises(DataError) as error:
        load(path)
    assert "bad.jsonl:3: " in str(error.value)
    assert message in str(error.value)


def test_missing_column_names_the_nearest(shared_data: Path) -> None:
    with pytest.raises(
        DataError, match=r"test\.jsonl:1: no column 'question'.*nearest first: problem, .*question_column"
    ):
        load(shared_data / "math500" / "test.jsonl")
    problems = load(shared_data / "math500" / "test.jsonl", question_column="problem", id_column="unique_id")
    assert len(problems) == 500
    parquet = shared_data / "dapo" / "dapo_math_17k_svs.parquet"
    with pytest.raises(DataError, match=r"svs\.parquet: no column 'reward_model\.truth'.*first: reward_model"):
        load(parquet, "parquet", question_column="ability", answer_column="reward_model.truth")


def test_dotted_columns(tmp_path: Path) -> None:
    items = [
        {"q": {"text": "one?"}, "a.b": 1.0, "meta": {"id": 0}},
        {"q": {"text": "two?"}, "a.b": 2e22, "meta": {"id": 1}},
    ]
    columns = {"question_column": "q.text", "answer_column": "a.b", "id_column": "meta.id"}
    pq.write_table(pa.Table.from_pylist(items), tmp_path / "p.parquet")
    problems = load(tmp_path / "p.parquet", "parquet", **columns)
    assert [(p.problem_id, p.question, p.answer) for p in problems] == [
        ("0", "one?", "1.0"),
        ("1", "two?", "2" + "0" * 22),
    ]
    assert problems == load(write_lines(tmp_path / "p.jsonl", *items), **columns)
    with pytest.raises(DataError, match=r"p\.jsonl:1: no column 'q\.tex'.*nearest first: q\.text"):
        load(tmp_path / "p.jsonl", **{**columns, "question_column": "q.tex"})


def test_bad_parquet_row(tmp_path: Path) -> None:
    pq.write_table(pa.table({"question": ["a", "b"], "answer": [1.0, None]}), tmp_path / "p.parquet")
    with pytest.raises(DataError, match=r"p\.parquet, row 2: answer is null.*[Mm]end"):
        load(tmp_path / "p.parquet", "parquet")


def test_wrong_file_types(tmp_path: Path, shared_data: Path) -> None:
    parquet = tmp_path / "named.jsonl"
    pq.write_table(pa.table({"question": ["a"], "answer": ["1"]}), parquet)
    with pytest.raises(DataError, match=r"is a Parquet file, but data\.source is jsonl\. Set data\.source=parquet"):
        load(parquet)
    with pytest.raises(DataError, match=r"is not a Parquet file.*Set data\.source=jsonl"):
        load(shared_data / "gsm8k" / "test.jsonl", "parquet")
    cut = tmp_path / "cut.parquet"
    cut.write_bytes(parquet.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"cut\.parquet: not a readable Parquet file.*copy it again"):
        load(cut, "parquet")
    (tmp_path / "z.jsonl").write_bytes(b"\x1f\x8b\x08\x00")
    with pytest.raises(DataError, match="gunzip"):
        load(tmp_path / "z.jsonl")


def test_missing_and_empty(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.jsonl: no such file\. Set data\.path"):
        load(tmp_path / "none.jsonl")
    with pytest.raises(DataError, match="is a folder"):
        load(tmp_path)
    with pytest.raises(DataError, match="has no rows"):
        load(write_lines(tmp_path / "empty.jsonl", "", ""))
    pq.write_table(
        pa.table({"question": pa.array([], pa.string()), "answer": pa.array([], pa.string())}), tmp_path / "e"
    )
    with pytest.raises(DataError, match="has no rows"):
        load(tmp_path / "e", "parquet")


def test_max_problems_reads_no_further(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_lines(tmp_path / "a.jsonl", *({"question": f"q{i}", "answer": i} for i in range(3)), "not json")
    assert len(load(path, max_problems=3)) == 3
    pq.write_table(pa.table({"question": ["a", "b", "c"], "answer": [1.0, 2.0, None]}), tmp_path / "p.parquet")
    monkeypatch.setattr(rows, "BATCH_ROWS", 2)
    assert len(load(tmp_path / "p.parquet", "parquet", max_problems=2)) == 2
