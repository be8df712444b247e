"""Row by row: the rule for DAPO to the letter, what lies beyond it, and the columns of the other sets."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gspo_ray.data.rows import Row, read_rows
from gspo_ray.errors import DataError
from gspo_ray.prepare.catalogue import DATASETS
from gspo_ray.prepare.records import Record, column_reader, dapo_record, gsm8k_record
from tests.unit.prepare.conftest import write_lines

PREFIX = (
    "Solve the following math problem step by step. The last line of your response should be of the form Answer: "
    "$Answer (without quotes) where $Answer is the answer to the problem.\n\n"
)
SLIME_PREFIX = PREFIX.replace("$Answer (without quotes)", "\\boxed{$Answer}")
SUFFIX = '\n\nRemember to put your answer on its own line after "Answer:".'


def row(fields: dict[str, Any], index: int = 7) -> Row:
    return Row(index, index + 1, f"raw.jsonl:{index + 1}", fields)


def verl(content: Any, answer: Any, index: Any = "id-1", **more: Any) -> Row:
    prompt = [{"role": "user", "content": content}]
    fields = {"prompt": prompt, "reward_model": {"ground_truth": answer}, "extra_info": {"index": index}}
    return row(fields | more)


@pytest.mark.parametrize(
    ("content", "question"),
    [
        (PREFIX + "How many?" + SUFFIX, "How many?"),
        (PREFIX + "\n How  many? \n" + SUFFIX, "How  many?"),
        (SLIME_PREFIX + "How many?" + SUFFIX, "How many?"),
        ("How many?", "How many?"),
        ("已知 $x$, 求 $y$ 的值。", "已知 $x$, 求 $y$ 的值。"),
        ("How many?" + SUFFIX, "How many?"),
    ],
)
def test_the_template_is_cut_where_it_stands_exactly(content: str, question: str) -> None:
    assert dapo_record(verl(content, "5"), "train") == Record("id-1", question, "5", "math_dapo")


def test_a_template_that_is_not_quite_there_is_left_and_the_row_refused() -> None:
    with pytest.raises(DataError, match=r'raw\.jsonl:8: the question asks for an "Answer:" line'):
        dapo_record(verl(" " + PREFIX + "How many?", "5"), "train")  # the unstripped text has to begin with it


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("34", "34"),
        (" -2015028 ", "-2015028"),
        ("22099999999999998951424", "22099999999999998951424"),  # > 2**63
        (22099999999999998951424, "22099999999999998951424"),
        ("0", "0"),
        (["7", "8"], "7"),
        (42, "42"),
        (42.0, "42.0"),
        ("\\frac{1}{2}", "\\frac{1}{2}"),
        ("数", "数"),
    ],
)
def test_golds(gold: Any, answer: str) -> None:
    assert dapo_record(verl("q?", gold), "train").answer == answer


@pytest.mark.parametrize("gold", [0, 0.0, "", "  ", None, [], [None], [0], True, False, {"a": 1}, [["7"]]])
def test_golds_that_are_none(gold: Any) -> None:
    with pytest.raises(DataError, match=r"^raw\.jsonl:8: "):
        dapo_record(verl("q?", gold), "train")


@pytest.mark.parametrize(
    ("index", "problem_id"),
    [("9a9b6eb4", "9a9b6eb4"), (12, "12"), (0, "7"), ("", "7"), (None, "7"), ("0", "0")],  # the row has index 7
)
def test_ids(index: Any, problem_id: str) -> None:
    assert dapo_record(verl("q?", "1", index), "train").id == problem_id


def test_rows_without_an_index() -> None:
    fields = {"prompt": [{"content": "q?"}], "reward_model": {"ground_truth": "1"}}
    assert dapo_record(row(fields), "train").id == "7"
    assert dapo_record(row(fields | {"extra_info": None}), "train").id == "7"
    assert dapo_record(row(fields | {"extra_info": "text"}), "train").id == "7"


def test_slimes_rows() -> None:
    fields = {"prompt": [{"content": SLIME_PREFIX + "q?" + SUFFIX, "role": "user"}], "label": "12"}
    assert dapo_record(row(fields), "train") == Record("7", "q?", "12", "math_dapo")


def test_the_source_of_a_row() -> None:
    assert dapo_record(verl("q?", "1", data_source="DAPO-17k"), "train").data_source == "DAPO-17k"
    assert dapo_record(verl("q?", "1", data_source=None), "train").data_source == "math_dapo"


@pytest.mark.parametrize("prompt", [None, "q?", [], ["q?"], {"content": "q?"}])
def test_prompts_that_are_none(prompt: Any) -> None:
    with pytest.raises(DataError, match="prompt is not a list that begins with a message"):
        dapo_record(row({"prompt": prompt, "reward_model": {"ground_truth": "1"}}), "train")


@pytest.mark.parametrize("content", [PREFIX + SUFFIX, " ", None, 5])
def test_questions_that_are_none(content: Any) -> None:
    with pytest.raises(DataError, match=r"prompt\[0\]\.content is"):
        dapo_record(verl(content, "1"), "train")


def test_the_first_of_several_messages_counts() -> None:
    fields = {"prompt": [{"content": "q?"}, {"content": "more"}], "reward_model": {"ground_truth": "1"}}
    assert dapo_record(row(fields), "train").question == "q?"


def test_numbers_in_json_follow_the_same_rule(tmp_path: Path) -> None:
    """A JSON number is read as its text, and "0" is not falsy: the rule has to see the number."""
    path = write_lines(
        tmp_path / "raw.jsonl",
        '{"prompt": [{"content": "a"}], "reward_model": {"ground_truth": 0}, "extra_info": {"index": 5}}',
        '{"prompt": [{"content": "b"}], "reward_model": {"ground_truth": "0"}, "extra_info": {"index": 0}}',
        '{"prompt": [{"content": "c"}], "reward_model": {"ground_truth": 22099999999999998951424}}',
    )
    rows = list(read_rows(path))
    with pytest.raises(DataError, match="the answer is 0, which this rule takes for none"):
        dapo_record(rows[0], "train")
    assert dapo_record(rows[1], "train") == Record("1", "b", "0", "math_dapo")
    assert dapo_record(rows[2], "train") == Record("2", "c", "22099999999999998951424", "math_dapo")


def test_gsm8k() -> None:
    fields = {"question": " How many? ", "answer": "First 2.\n#### 1,234"}
    assert gsm8k_record(row(fields), "test") == Record("gsm8k-test-7", "How many?", "1234", "gsm8k")
    with pytest.raises(DataError, match="does not end in"):
        gsm8k_record(row({"question": "q", "answer": "1234"}), "test")


@pytest.mark.parametrize(
    ("written", "plain"),
    [
        ("073", "73"),
        ("27.0", "27"),
        (14.0, "14"),
        ("-0", "0"),
        ("-05", "-5"),
        ("+7", "7"),
        ("0", "0"),
        ("1.25", "1.25"),
    ],
)
def test_plain_numbers(written: Any, plain: str) -> None:
    read = column_reader("set", question=("q",), answer=("a",), number="plain")
    assert read(row({"q": "q?", "a": written}), "test") == Record("set-7", "q?", plain, "set")


def test_integer_answers_are_demanded() -> None:
    read = DATASETS["aime25"].read
    assert read(row({"problem": "q?", "answer": "025"}), "test") == Record("aime25-7", "q?", "25", "aime25")
    assert read(row({"question": "q?", "answer": 25}), "test").answer == "25"
    with pytest.raises(DataError, match=r"the answer '336\^\\\\circ' is no integer"):
        read(row({"problem": "q?", "answer": "336^\\circ"}), "test")


def test_columns_of_the_users_naming(tmp_path: Path) -> None:
    read = column_reader("mine", question=("q.text",), answer=("gold",), id_column="uid")
    fields = {"q": {"text": "问题?"}, "gold": "022", "uid": "x-1"}
    assert read(row(fields), "train") == Record("x-1", "问题?", "022", "mine")
    with pytest.raises(DataError, match="no column 'gold', only q, uid"):
        read(row({"q": {"text": "?"}, "uid": "x"}), "train")
    pq.write_table(pa.Table.from_pylist([fields]), tmp_path / "p.parquet")
    [from_parquet] = read_rows(tmp_path / "p.parquet", optional=("q.text", "gold", "uid"))
    assert read(from_parquet, "train") == Record("x-1", "问题?", "022", "mine")
