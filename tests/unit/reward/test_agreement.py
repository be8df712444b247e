"""Recorded model outputs and the library's own cases: every disagreement with a label is named here and explained."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from math_verify import parse, verify

from gspo_ray.reward.extract import ExtractionStyle, extract
from gspo_ray.reward.verify import judge
from gspo_ray.reward.workers import VerifierPool
from gspo_ray.types import Outcome, Verdict

RECORDED = Path(__file__).parents[4] / "shared" / "data" / "outputs"

pytestmark = pytest.mark.skipif(not RECORDED.exists(), reason=f"recorded outputs are not at {RECORDED}")


def read(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (RECORDED / name).read_text(encoding="utf-8").split("\n") if line]


def score(rows: list[dict[str, Any]], style: ExtractionStyle) -> list[Verdict]:
    with VerifierPool(2, timeout_s=5, memory_limit_mib=2048, style=style) as pool:
        return [item.verdict for item in pool.examine([(row["completion"], row["gold"]) for row in rows])]


def test_math_completions_in_boxes() -> None:
    """100 MATH problems x 8 samples of a Qwen math model."""
    rows = read("qwen25_math_100x8.jsonl")
    verdicts = score(rows, "boxed")
    pairs = Counter((row["correct"], v.outcome is Outcome.CORRECT) for row, v in zip(rows, verdicts, strict=True))
    assert pairs == {(True, True): 728, (False, False): 71, (False, True): 1}
    # the one disagreement is a wrong label: gold 10{,}000, answer 10000
    assert [
        row["id"] for row, v in zip(rows, verdicts, strict=True) if v.outcome is Outcome.CORRECT and not row["correct"]
    ] == ["math-72-7"]
    # a mangled gold is counted as unreadable, not as a wrong answer
    assert {
        (row["gold"], v.outcome)
        for row, v in zip(rows, verdicts, strict=True)
        if v.outcome not in (Outcome.CORRECT, Outcome.WRONG)
    } == {("4:30p..", Outcome.ERROR)}


def test_gsm8k_completions_on_an_answer_line() -> None:
    """1,319 questions x 4 models, "A: N" at the end: every label is met."""
    rows = read("gsm8k_openai_solutions.jsonl")
    outcomes = Counter((row["correct"], v.outcome) for row, v in zip(rows, score(rows, "answer_line"), strict=True))
    assert outcomes == {
        (True, Outcome.CORRECT): 2001,
        (False, Outcome.WRONG): 3264,
        (False, Outcome.NO_ANSWER): 11,  # cut off before the line
    }


def test_gsm8k_completions_have_no_box() -> None:
    rows = read("gsm8k_openai_solutions.jsonl")
    assert {extract(row["completion"], "boxed") for row in rows} == {None}


# Rows of math_verify_cases.jsonl with prose or several boxes, read by hand: (gold, answer). The library searches prose
# and merges boxes; here the last box counts, so these rows compare the values alone.
BY_HAND = {
    7: ("2.74", "2,74"),
    11: ("1000.99", "1,000.99€"),
    12: ("1000.99", "1,000.99€"),
    37: (r"28 \%", r"28\%"),
    97: ("20", "20"),
    98: ("3", "3"),
    99: ("19", "19"),
    100: ("34", "34"),
    106: ("7.78", "7.78"),
    109: ("10455", "10,455"),
    117: ("1,-2", "-2, 1"),
    123: ("35 cm, 4", "35 cm,4"),
    135: ("(2,1),(1,2),(-1,-20),(-20,-1)", "(1, 2), (2, 1), (-1, -20), (-20, -1)"),
    136: ("1, -2", "-2,1"),
    145: (r"W(n) = 1 \text{ and } W(n) = -1", "W(x)=1orW(x)=-1"),
    148: ("2, 3, 5, 7, 13", "2, 3, 5, 7, 13"),
    157: ("(2, 2), (6, 2)", r"(2, 2) \text{ and } (6, 2)"),
    158: ("(98, 2), (99, 503)", r"(98, 2) \text{ and } (99, 503)"),
    159: ("1,2,3", r"1 \text{ and } 2 \text{ and } 3"),
    163: (
        "y_{1}=-2 x^{2}+4 x+3, y_{2}=3 x^{2}+12 x+10",
        r"y_1 = -2(x - 1)^2 + 5 \text{ and } y_2 = 3(x + 2)^2 - 2",
    ),
    164: (
        r"x_{1}=10^{\frac{-5+\sqrt{13}}{6}},\quadx_{2}=10^{\frac{-5-\sqrt{13}}{6}}",
        r"10^{\frac{\sqrt{13} - 5}{6}} \text{ and } 10^{-\frac{5 + \sqrt{13}}{6}}",
    ),
    165: ("1, 2", "1,2"),
    166: ("2", "1,2"),
}
STRICTER = {  # the label says right, we say wrong
    20: "an equation that is not true: 1/2 = 10/9",
    88: "0.33 for 1/3: the label needs precision=2",
    91: "2.6667 for 8/3: the label needs precision=2",
    101: "the list 1,3 for the pair (1,3)",
    173: "1 - 1/e against 1 + 1/e: the label is wrong, and the library agrees with it",
    177: "f(x) against f(y): the label needs strict=False",
}
LOOSER = {18: "blanks round a number: the label wants them refused"}  # the label says wrong, we say right


@pytest.fixture(scope="module")
def cases() -> list[dict[str, Any]]:
    return read("math_verify_cases.jsonl")


def is_met(number: int, row: dict[str, Any]) -> bool:
    if number in BY_HAND:
        gold, answer = BY_HAND[number]
        return (judge(answer, gold, "whole").outcome is Outcome.CORRECT) == bool(row["expected"])
    return (judge(row["pred"], row["gold"], "any").outcome is Outcome.CORRECT) == bool(row["expected"])


@pytest.fixture(scope="module")
def missed(cases: list[dict[str, Any]]) -> set[int]:
    return {number for number, row in enumerate(cases) if not is_met(number, row)}


def test_the_library_s_own_cases(cases: list[dict[str, Any]], missed: set[int]) -> None:
    assert missed == STRICTER.keys() | LOOSER.keys()
    assert {cases[number]["expected"] for number in STRICTER} == {1}
    assert {cases[number]["expected"] for number in LOOSER} == {0}


def test_what_the_library_gets_right_and_we_do_not(cases: list[dict[str, Any]], missed: set[int]) -> None:
    met = {
        number for number, row in enumerate(cases) if verify(parse(row["gold"]), parse(row["pred"])) == row["expected"]
    }
    assert len(met) == 173
    assert met & missed == {20, 101, 173}


def test_several_boxes_are_not_merged(cases: list[dict[str, Any]]) -> None:
    several = [n for n, row in enumerate(cases) if len(re.findall(r"\\boxed\{", row["pred"])) > 1 and n in BY_HAND]
    assert several == [109, 117, 135, 157, 158, 159, 163, 164]
    outcomes = {judge(cases[n]["pred"], BY_HAND[n][0]).outcome for n in several}
    assert outcomes == {Outcome.WRONG}
