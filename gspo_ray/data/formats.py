"""One function a data format: the rows of a file as problems, each with the place that it came from."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from gspo_ray.config import ProblemSource
from gspo_ray.data.columns import answer_text, id_text, lookup, question_text
from gspo_ray.data.rows import Row, file_kind, read_rows
from gspo_ray.errors import DataError
from gspo_ray.types import Problem


class Located(NamedTuple):
    """A problem, the place that it came from ("file:line") and whether the file gave the id (else: the row number)."""

    problem: Problem
    where: str
    named: bool = True


_DAPO_LEAD = (
    "Solve the following math problem step by step. The last line of your response should be of the form Answer: "
)
_DAPO_PREFIXES = (
    _DAPO_LEAD + "$Answer (without quotes) where $Answer is the answer to the problem.\n\n",
    _DAPO_LEAD + "\\boxed{$Answer} where $Answer is the answer to the problem.\n\n",  # slime's copy
)
_DAPO_SUFFIX = '\n\nRemember to put your answer on its own line after "Answer:".'
_ASKS_FOR_ANSWER_LINE = re.compile(r"of the form \W*Answer:|on its own line after \W*Answer", re.IGNORECASE)
_GSM8K_GOLD = re.compile(r"-?\d+(\.\d+)?|-?\.\d+")


def additions(*, held_out: bool) -> Iterator[Located]:
    """Sums a + b with a, b in 1..9, e.g. add-3-4: "What is 3 + 4?" -> "7". Of the 81, the 20 with
    a + 3b = 1 modulo 4 are held out: every a, every b, small and large sums."""
    source = "additions_heldout" if held_out else "additions"
    for a in range(1, 10):
        for b in range(1, 10):
            if held_out == ((a + 3 * b) % 4 == 1):
                problem_id = f"add-{a}-{b}"
                question = f"What is {a} + {b}?"
                problem = Problem(problem_id=problem_id, question=question, answer=str(a + b), source=source)
                yield Located(problem, problem_id)


def read_gsm8k(config: ProblemSource, path: Path) -> Iterator[Located]:
    """{question, answer}: the gold is the number after the last "####", thousands commas removed."""
    for row in read_rows(path, required=("question", "answer")):
        problem = row_problem(
            row,
            problem_id=f"gsm8k-{path.stem}-{row.index}",
            question=lookup(row.fields, "question", where=row.where),
            question_column="question",
            answer=gsm8k_gold(row),
            source="gsm8k",
        )
        yield Located(problem, row.where)


def gsm8k_gold(row: Row) -> str:
    """The number after the last "####" of the answer column, without thousands commas. Raises DataError."""
    solution = lookup(row.fields, "answer", where=row.where)
    _, mark, tail = solution.rpartition("####") if isinstance(solution, str) else ("", "", "")
    gold = tail.strip().replace(",", "")
    if not mark or not _GSM8K_GOLD.fullmatch(gold):
        raise DataError(
            f'{row.where}: the answer does not end in "#### <number>", which is how GSM8K marks the gold. '
            "Mend the row, or set data.source=jsonl if the column holds the bare answer."
        )
    return gold


def read_dapo(config: ProblemSource, path: Path) -> Iterator[Located]:
    """verl's {prompt: [{content}], reward_model: {ground_truth}, extra_info: {index}} or slime's {prompt, label}."""
    optional = ("reward_model.ground_truth", "label", "extra_info.index", "data_source")
    for row in read_rows(path, required=("prompt",), optional=optional):
        extra_info = row.fields.get("extra_info")
        index = extra_info.get("index") if isinstance(extra_info, dict) else None
        named = index not in (None, "")  # not `bool(index)`: the first row's index is 0
        problem = row_problem(
            row,
            problem_id=id_text(index, "extra_info.index", where=row.where) if named else str(row.index),
            question=cut_dapo_template(_dapo_content(row)),
            question_column="prompt[0].content",
            answer=_dapo_answer(row),
            source=str(row.fields.get("data_source") or "math_dapo"),
        )
        yield Located(problem, row.where, named)


def read_columns(config: ProblemSource, path: Path) -> Iterator[Located]:
    """data.source jsonl or parquet: columns named by the config; without an id column, the row number from 0.

    A text column `data_source`, which `gspo-ray prepare` writes, becomes the source of the problem.
    """
    kind = file_kind(path)
    if kind != config.source:
        found = "is a Parquet file" if kind == "parquet" else "is not a Parquet file"
        fix = f"data.source={kind}" + ("" if kind == "parquet" else " if it holds one JSON object a line")
        raise DataError(f"{path} {found}, but data.source is {config.source}. Set {fix}, or mend data.path.")
    names = [config.question_column, config.answer_column, *filter(None, [config.id_column])]
    for row in read_rows(path, required=names, optional=("data_source",)):
        problem_id = str(row.index)
        if config.id_column:
            value = lookup(row.fields, config.id_column, where=row.where)
            problem_id = id_text(value, config.id_column, where=row.where)
        source = row.fields.get("data_source")
        problem = row_problem(
            row,
            problem_id=problem_id,
            question=lookup(row.fields, config.question_column, where=row.where),
            question_column=config.question_column,
            answer=lookup(row.fields, config.answer_column, where=row.where),
            answer_column=config.answer_column,
            source=source if source and isinstance(source, str) else path.stem,
        )
        yield Located(problem, row.where, named=bool(config.id_column))


READERS: dict[str, Callable[[ProblemSource, Path], Iterator[Located]]] = {
    "gsm8k": read_gsm8k,
    "dapo": read_dapo,
    "jsonl": read_columns,
    "parquet": read_columns,
}


def row_problem(
    row: Row,
    *,
    problem_id: str,
    question: Any,
    question_column: str,
    answer: Any,
    answer_column: str = "answer",
    source: str,
) -> Problem:
    """Question and answer checked and stripped. Raises DataError, naming the row and the fix."""
    text = question_text(question, question_column, where=row.where)
    if _ASKS_FOR_ANSWER_LINE.search(text):
        raise DataError(
            f'{row.where}: the question asks for an "Answer:" line, but the verifier reads \\boxed{{}}: right '
            "answers would be scored wrong. Cut that instruction from the data (data.source=dapo cuts two known forms)."
        )
    answer = answer_text(answer, answer_column, where=row.where)
    return Problem(problem_id=problem_id, question=text, answer=answer, source=source)


def _dapo_content(row: Row) -> Any:
    prompt = lookup(row.fields, "prompt", where=row.where)
    if isinstance(prompt, str):
        return prompt
    if not (isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], dict) and "content" in prompt[0]):
        raise DataError(
            f"{row.where}: prompt is not a list of one message with a content. DAPO rows hold one user turn "
            '[{"role": "user", "content": ...}]; mend the row, or use data.source=jsonl / parquet with named columns.'
        )
    if prompt[0].get("role", "user") != "user":
        raise DataError(f"{row.where}: the only message has role {prompt[0]['role']!r}, not user. Mend the row.")
    return prompt[0]["content"]


def _dapo_answer(row: Row) -> Any:
    reward_model = row.fields.get("reward_model")
    if isinstance(reward_model, dict) and "ground_truth" in reward_model:
        answer = reward_model["ground_truth"]
    elif "label" in row.fields:
        answer = row.fields["label"]
    else:
        found = ", ".join(row.fields)
        raise DataError(
            f"{row.where}: no reward_model.ground_truth (verl) and no label (slime). Columns there: {found}. "
            "Add one of the two, or use data.source=jsonl / parquet with data.answer_column."
        )
    return (answer[0] if answer else None) if isinstance(answer, list) else answer


def cut_dapo_template(content: Any) -> Any:
    """Text without the instruction round the question, in verl's or slime's wording; anything else as it is."""
    if not isinstance(content, str):
        return content
    for prefix in _DAPO_PREFIXES:
        content = content.removeprefix(prefix)
    return content.removesuffix(_DAPO_SUFFIX)
