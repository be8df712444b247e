"""Is the answer of a completion the gold answer? Pure, one process, no time limit of its own.

Reads the answer (extract), gives both sides one spelling (tidy) and compares them (match). sympy may run for ever and
take any amount of memory: the hard limits come from `pool.VerifierProcess`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from gspo_ray.reward.extract import ExtractionStyle, extract, gold_answer
from gspo_ray.reward.library import UngradableError, UnreadableError
from gspo_ray.reward.match import check_gold, difference
from gspo_ray.reward.plain import read_number
from gspo_ray.reward.tidy import tidy
from gspo_ray.reward.units import is_numeric
from gspo_ray.reward.values import DIFFERENT
from gspo_ray.types import Outcome

MAX_CHARS = 5_000  # of an answer that is no plain number, beyond twice the length of the gold answer


class Judgement(NamedTuple):
    outcome: Outcome
    extracted: str | None  # the answer as it was written, None when there is none
    reason: str = ""  # why the outcome is WRONG or ERROR


def judge(completion: str, gold: str, style: ExtractionStyle = "boxed") -> Judgement:
    """Compare the answer in `completion` (generated text only, never the prompt) with `gold` (bare LaTeX).

    Never raises for a hard input: an exception, or a gold answer that cannot be read, is Outcome.ERROR with its
    reason. May run for ever and take any amount of memory: call it in a process that can be killed.

    Example: judge(r"so \\boxed{0.5}", r"\\frac{1}{2}").outcome is Outcome.CORRECT
    """
    answer = extract(completion, style)
    if answer is None:
        return Judgement(Outcome.NO_ANSWER, None)
    try:
        reason = _difference(gold_answer(gold), answer)
        return Judgement(Outcome.WRONG if reason else Outcome.CORRECT, answer, reason or "")
    except UnreadableError as error:
        return Judgement(Outcome.ERROR, answer, f"cannot read the gold answer: {error}")
    except Exception as error:
        return Judgement(Outcome.ERROR, answer, f"{type(error).__name__}: {str(error)[:300]}")


def gold_fault(gold: str) -> str:
    """Why no answer can be compared with `gold`; "" for a gold answer that can be read. No limits, as `judge`."""
    try:
        tidied, fault = _read_gold(gold_answer(gold))
        if fault is None and is_numeric(tidied):
            difference(tidied, "1")  # what can be read but not computed shows now
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:300]}"
    return str(fault or "")


def _difference(gold: str, answer: str) -> str | None:
    number, gold_number = read_number(answer), read_number(gold)
    if number is not None and gold_number is not None:
        return None if number == gold_number else DIFFERENT
    if len(answer) > MAX_CHARS + 2 * len(gold):
        return f"an answer of {len(answer)} characters"
    gold, fault = _read_gold(gold)
    answer = tidy(answer)
    if fault:
        if isinstance(fault, UngradableError) or _letters(gold) != _letters(answer):
            raise fault
        return None
    return difference(gold, answer)


@lru_cache(maxsize=64)  # one gold serves a whole group
def _read_gold(gold: str) -> tuple[str, UnreadableError | None]:
    tidied = tidy(gold)
    try:
        check_gold(tidied)
    except UnreadableError as error:
        return tidied, error
    return tidied, None


def _letters(text: str) -> str:
    """To compare what cannot be read: \\mathbb{Z}_2 is \\mathbb{Z}_{2}."""
    return re.sub(r"[\s{}]", "", text)
