"""The rule for duplicates against a second way to say it, and against the numbers published for it."""

import random
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gspo_ray.errors import DataError
from gspo_ray.prepare.dedup import Deduplicator, question_key, split_records, with_unique_ids
from gspo_ray.prepare.records import Record
from tests.unit.prepare.test_records import PREFIX, SUFFIX


def fed(*rows: tuple[str, str, str]) -> Deduplicator:
    """Rows (id, question, answer), numbered from 1."""
    questions = Deduplicator()
    for number, (problem_id, question, answer) in enumerate(rows, start=1):
        questions.add(Record(problem_id, question, answer, "set"), number)
    return questions


def kept(questions: Deduplicator) -> list[tuple[str, str, str]]:
    return [(record.id, record.question, record.answer) for _, record in questions.by_key()]


def test_white_space_and_template_make_no_other_question() -> None:
    assert question_key("What\u00a0is\n\n 1 + 1?\t") == "What is 1 + 1?"
    assert question_key(PREFIX + "q?" + SUFFIX) == "q?"
    assert question_key("What is 1+1?") != question_key("What is 1 + 1?")


def test_the_smaller_id_wins_in_any_order() -> None:
    rows = [("b", "q  ?", "1"), ("10", "q ?", "1"), ("9", "q\n?", "1")]  # as text "10" < "9" < "b"
    for order in (rows, rows[::-1]):
        questions = fed(*order)
        assert kept(questions) == [("10", "q ?", "1")]
        assert questions.duplicates == 2


def test_another_answer_drops_the_question_for_good() -> None:
    questions = fed(("a", "q", "1"), ("a", "q", "1"), ("b", "q", "01"), ("c", "q", "1"), ("d", "r", "5"))
    assert kept(questions) == [("d", "r", "5")]
    assert questions.duplicates == 3  # rows 2, 3 and 4
    [conflict] = questions.conflicts.values()
    assert (conflict.question, conflict.answers) == ("q", {"1": [1, 3], "01": [3, 1]})  # answer: first row, rows


@given(
    st.lists(
        st.tuples(st.sampled_from("abcd"), st.sampled_from(["q", "q ", "q r", "q  r", "s"]), st.sampled_from("12")),
        max_size=30,
    )
)
def test_the_stream_equals_grouping_all_rows(rows: list[tuple[str, str, str]]) -> None:
    groups = defaultdict(list)
    for row in rows:
        groups[" ".join(row[1].split())].append(row)
    single = {key: group for key, group in groups.items() if len({answer for *_, answer in group}) == 1}
    questions = fed(*rows)
    assert questions.duplicates == len(rows) - len(groups)
    assert set(questions.conflicts) == set(groups) - set(single)
    # Of equal ids the first row stays.
    assert kept(questions) == [min(single[key], key=lambda row: row[0]) for key in sorted(single)]
    assert [key for key, _ in questions.in_file_order()] == sorted(
        single, key=lambda key: next(i for i, row in enumerate(rows) if " ".join(row[1].split()) == key)
    )


def test_the_split_is_one_shuffle() -> None:
    records = [(f"key-{number}", Record(str(number), f"q{number}", "1", "set")) for number in range(10)]
    order = list(range(10))
    random.Random(42).shuffle(order)
    train, dev = split_records(records, dev_size=3, seed=42)
    assert [int(record.id) for _, record in dev + train] == order
    assert len(dev) == 3
    assert split_records(records, dev_size=3, seed=43) != (train, dev)


@pytest.mark.parametrize("dev_size", [0, -1, 3, 4])
def test_a_split_that_leaves_nothing_is_refused(dev_size: int) -> None:
    records = [(str(number), Record(str(number), "q", "1", "set")) for number in range(3)]
    with pytest.raises(DataError, match=rf"--dev-size is {dev_size}.*there are 3 problems"):
        split_records(records, dev_size=dev_size, seed=0)


def test_equal_ids_of_different_questions_are_told_apart() -> None:
    records = [
        (key, Record(problem_id, key, "1", "set"))
        for key, problem_id in zip("wxyz", ["5", "5", "5-2", "5"], strict=True)
    ]
    unique, renamed = with_unique_ids(records)
    assert [record.id for _, record in unique] == ["5", "5-3", "5-2", "5-4"]
    assert renamed == 2
    assert with_unique_ids(unique) == (unique, 0)
