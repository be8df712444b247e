"""One raw row as a record {id, question, answer, data_source}; every reader raises DataError for a row it refuses."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

from gspo_ray.data.columns import id_text, lookup
from gspo_ray.data.formats import cut_dapo_template, gsm8k_gold, row_problem
from gspo_ray.data.rows import NumberText, Row
from gspo_ray.errors import DataError

Split = Literal["train", "test"]

_WHOLE_NUMBER = re.compile(r"([+-]?)0*(\d+)(?:\.0*)?")


class Record(NamedTuple):
    """One line of a prepared file; its keys stand in this order."""

    id: str
    question: str
    answer: str
    data_source: str


Reader = Callable[[Row, Split], Record]


def dapo_record(row: Row, split: Split) -> Record:
    """A verl row by the rule of agentic-rl-lab/07-gspo (prepare_data.py); also slime's {prompt, label}.

    The rule, its oddities included: the first message is the question, the template is cut only where it stands
    exactly, a list's first item is the answer, the integer 0 is no answer ("0" is one), a falsy index gives way to
    the row number from 0. An answer that is true or a record, and a question that still asks for an "Answer:" line,
    are refused here, where that rule would keep text that nothing can be scored against.
    """
    prompt = row.fields.get("prompt")
    if not (isinstance(prompt, list) and prompt and isinstance(prompt[0], dict)):
        raise DataError(f"{row.where}: prompt is not a list that begins with a message")
    reward_model, extra_info = row.fields.get("reward_model"), row.fields.get("extra_info")
    answer = reward_model.get("ground_truth") if isinstance(reward_model, dict) else row.fields.get("label")
    if isinstance(answer, list):
        answer = answer[0] if answer else None
    if not isinstance(answer, bool) and _is_falsy(answer):
        found = "is missing" if answer is None else f"is {str(answer) or 'empty'}"
        raise DataError(f'{row.where}: the answer {found}, which this rule takes for none (the text "0" is an answer)')
    index = extra_info.get("index") if isinstance(extra_info, dict) else None
    problem = row_problem(
        row,
        problem_id=str(row.index if _is_falsy(index) else index),
        question=cut_dapo_template(prompt[0].get("content")),
        question_column="prompt[0].content",
        answer=answer,
        source=str(row.fields.get("data_source") or "math_dapo"),
    )
    return Record(problem.problem_id, problem.question, problem.answer, problem.source)


def gsm8k_record(row: Row, split: Split) -> Record:
    """{question, answer} with the gold after "####"; ids such as gsm8k-train-12 (row from 0)."""
    problem = row_problem(
        row,
        problem_id=f"gsm8k-{split}-{row.index}",
        question=_value(row, ("question",)),
        question_column="question",
        answer=gsm8k_gold(row),
        source="gsm8k",
    )
    return Record(problem.problem_id, problem.question, problem.answer, problem.source)


def column_reader(
    name: str,
    *,
    question: Sequence[str],
    answer: Sequence[str],
    id_column: str | None = None,
    number: Literal["as written", "plain", "integer"] = "as written",
) -> Reader:
    """Rows whose question and answer stand in columns: the first name that a row has counts, dotted names too.

    Without `id_column` ids are <name>-<row from 0>. `number`: `plain` writes 27.0 and 073 as 27 and 73, `integer`
    also refuses everything else.
    """

    def read(row: Row, split: Split) -> Record:
        problem_id = f"{name}-{row.index}"
        if id_column:
            problem_id = id_text(_value(row, (id_column,)), id_column, where=row.where)
        problem = row_problem(
            row,
            problem_id=problem_id,
            question=_value(row, question),
            question_column=question[0],
            answer=_value(row, answer),
            answer_column=answer[0],
            source=name,
        )
        gold = problem.answer
        if number != "as written" and (match := _WHOLE_NUMBER.fullmatch(gold)):
            gold = ("-" if match[1] == "-" and match[2] != "0" else "") + match[2]
        elif number == "integer":
            raise DataError(f"{row.where}: the answer {gold!r} is no integer, and every answer of {name} is one")
        return Record(problem.problem_id, problem.question, gold, problem.source)

    return read


def _value(row: Row, names: Sequence[str]) -> Any:
    for name in names:
        try:
            return lookup(row.fields, name, where=row.where)
        except DataError:
            continue
    wanted = " or ".join(repr(name) for name in names)
    raise DataError(f"{row.where}: no column {wanted}" + (f", only {', '.join(row.fields)}" if row.fields else ""))


def _is_falsy(value: Any) -> bool:
    """Of the value itself: a number from JSON comes as its text."""
    return not value or (isinstance(value, NumberText) and float(value) == 0)
