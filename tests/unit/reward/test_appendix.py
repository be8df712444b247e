"""math-verify 0.9.0 against a mathematician: the fault list's table of verdicts, every one of them.

`yes` and `no` are the mathematician's; the third list holds answers on which he is lenient, with what ours are.
"""

from collections.abc import Iterator

import pytest

from gspo_ray.reward.verify import judge
from gspo_ray.types import Outcome

MATRIX = r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}"

# (gold, right answers, wrong answers), a row of the table each
ROWS: list[tuple[str, list[str], list[str]]] = [
    (r"\frac{1}{2}", [r"\dfrac{1}{2}", r"\tfrac12", "0.5"], []),
    (r"\frac{1}{3}", [], ["0.333"]),
    (r"\frac{1}{3}", [], ["0.333333"]),  # rounded
    (r"3\pi", [], ["9.42", "9.424778"]),
    (r"50\%", ["0.5", r"50\%"], []),
    ("0.5", [r"50\%"], []),
    (r"15\%", [], ["1500"]),
    (r"\{1,2,3\}", ["3,1,2"], ["1,2", "3"]),
    ("(1,2)", [], ["(2,1)", "[1,2]", r"\{1,2\}"]),
    ("[0,1]", [], ["(0,1)"]),
    (r"(-\infty,1)\cup(1,\infty)", [], [r"\mathbb{R}"]),
    (r"[0,\infty)", [r"x \ge 0"], []),
    (r"x \ge 0", [r"[0,\infty)"], []),
    (r"90^\circ", ["90", r"90 \text{ degrees}"], []),
    (r"30^{\circ}", ["30\u00b0"], []),
    (r"90^\circ", [r"\frac{\pi}{2}"], []),  # an angle
    ("18", [r"\$18", r"\$18.00", r"18 \text{ dollars}", r"18\text{ cm}", "18 cm"], []),
    ("42", ["\u20ac42", "\u00a342"], []),
    (r"18 \text{ km}", [], [r"18 \text{ m}"]),
    (r"\frac{5}{2}", [r"2\frac{1}{2}"], []),
    (r"-2\frac{1}{2}", [r"-\frac{5}{2}"], []),
    (r"\text{Yes}", ["Yes"], [r"\text{No}"]),
    (r"\text{(C)}", ["C", r"\text{(C)}"], []),
    ("No", [], ["on"]),
    ("DNE", [r"\text{does not exist}"], []),
    ("42", ["x = 42"], ["41=42", "a+b=42", "42=41"]),
    ("x=42", ["42"], ["x=41", "y=42"]),
    ("x=5,y=6", ["y=6,x=5"], ["x=6,y=5"]),
    ("42", ["42.0", "+42", "042", r"\mathbf{42}", r"\text{42}", r"\approx 42"], []),
    ("42", ["42.", "42,", r"\color{red}42"], []),
    ("004", ["4"], []),
    ("-5", ["\u22125"], ["5"]),
    ("5", ["\uff15"], []),
    (r"\sqrt{2}", ["\u221a2"], ["1.4142", "1.414214"]),
    ("16_{8}", [], ["16"]),
    ("3:4", [r"\frac{3}{4}"], ["4:3"]),
    ("2x+4y-3=0", [r"y=-\frac{1}{2}x+\frac{3}{4}"], []),
    (MATRIX, [MATRIX, MATRIX.replace("pmatrix", "bmatrix")], [MATRIX.replace("4", "5")]),
    ("1500", [r"1.5\times 10^{3}", "1.5e3"], []),
    ("-1", [r"e^{i\pi}"], []),
    ("2^{100}", ["1267650600228229401496703205376"], ["1267650600228229401496703205377"]),
    ("10^{20}+1", [], ["10^{20}"]),
    (r"\frac{1}{0}", [], [r"\frac{1}{0}"]),
    ("2018", [], ["2024-01-05"]),  # a subtraction, for the library
    ("42", [r"42 \text{ and not } 41", "Answer: 42", r"\text{The answer is } 42"], []),  # sloppy
]
LENIENT = [  # (gold, answer, what ours say)
    (r"50\%", "50", Outcome.CORRECT),
    ("x=5,y=6", "5,6", Outcome.CORRECT),
    ("1010_2", "1010", Outcome.WRONG),  # or 16 would be 16_8, which is wrong
    (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", "(1,2)", Outcome.WRONG),
]


def verdicts() -> Iterator[tuple[str, str, bool]]:
    for gold, right, wrong in ROWS:
        yield from ((gold, answer, True) for answer in right)
        yield from ((gold, answer, False) for answer in wrong)


@pytest.mark.parametrize(("gold", "answer", "is_right"), list(verdicts()))
def test_agrees_with_the_mathematician(gold: str, answer: str, is_right: bool) -> None:
    judged = judge(f"So it is \\boxed{{{answer}}}.", gold)
    assert (judged.outcome is Outcome.CORRECT) is is_right
    assert is_right is (judged.reason == "")


@pytest.mark.parametrize(("gold", "answer", "ours"), LENIENT)
def test_where_the_mathematician_is_lenient(gold: str, answer: str, ours: Outcome) -> None:
    assert judge(f"\\boxed{{{answer}}}", gold).outcome is ours


def test_an_empty_gold_answer_is_not_gradable() -> None:
    assert judge(r"\boxed{5}", "").outcome is Outcome.ERROR


def test_undefined_is_not_wrong_but_not_gradable() -> None:
    assert judge(r"\boxed{\frac{1}{0}}", r"\frac{1}{0}").outcome is Outcome.ERROR
