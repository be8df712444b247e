"""Verdicts that a mathematician gives; numbers in brackets are entries of the fault list, section D."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gspo_ray.reward.verify import judge
from gspo_ray.types import Outcome


def outcome(gold: str, answer: str) -> Outcome:
    return judge(f"So the answer is \\boxed{{{answer}}}.", gold).outcome


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("42", "42"),
        ("42", "042"),
        ("42", "+42"),
        ("42", "$42$"),
        ("18", r"\$18"),
        ("10{,}000", "10000"),
        ("1,080", "1080"),
        ("1080", "1{,}080"),
        ("025", "25"),  # AIME 2024 golds have leading zeros
        ("-5", "\u22125"),
        ("0", "-0"),
        ("22099999999999998951424", "22099999999999998951424"),  # largest DAPO answer, above int64
        ("42", "42.0"),
        ("42", r"42 \text{ cm}"),
        (r"\frac{1}{2}", r"\dfrac{1}{2}"),  # [83]
        (r"\frac{1}{2}", r"\tfrac12"),
        (r"\frac{1}{2}", "0.5"),  # [67]
        (r"\{1,2,3\}", "3,1,2"),
        (r"x \ge 0", r"[0,\infty)"),  # [79] only with the gold first
        (r"2\sqrt{3}", r"\sqrt{12}"),
        (r"\text{Yes}", "Yes"),
        ("2^{100}", "1267650600228229401496703205376"),
        ("x+1", "1+x"),
    ],
)
def test_correct(gold: str, answer: str) -> None:
    assert outcome(gold, answer) is Outcome.CORRECT


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("42", "41"),
        ("5", "-5"),
        ("22099999999999998951424", "22099999999999998951425"),  # equal as floats
        ("2^{100}", "1267650600228229401496703205377"),
        (r"\frac{1}{2}", r"\frac{1}{3}"),  # [83]
        (r"\frac{1}{3}", "0.333"),
        ("1331, 1728", "1728"),  # [78] one of two
        ("3", r"\{2,3\}"),
        ("42", "?"),  # [87]
        ("42", r"41 \text{ or } 42"),  # [87]
        ("42", r"41\\ 42"),  # cannot be read; the library's default goes on to pick the 42
        ("3x-y+13=0", "3x+4y+14=0"),  # [81]
        ("[0,1]", "(0,1)"),
    ],
)
def test_wrong(gold: str, answer: str) -> None:
    assert outcome(gold, answer) is Outcome.WRONG


@pytest.mark.parametrize(
    ("gold", "answer", "is_right"),
    [
        ("42", "x = 42", True),
        ("42", r"f(2) = 42", True),
        ("42", r"\text{Area} = 42", True),
        ("42", r"6 \cdot 7 = 42", True),
        ("42", r"x = 41 + 1 = 42", True),
        ("(1,2)", "(x,y) = (1,2)", True),
        ("5,6", "x=5, y=6", True),
        ("x=42", "42", True),
        ("42", "41=42", False),  # [89] the library reads the last side only
        ("42", "(41=42)", False),
        ("42", "a+b=42", False),  # [89] says nothing about the question's own unknown
        ("42", "-x = 42", False),
        ("42", "2x = 42", False),
        ("42", "42=41", False),
        ("42", "x = 41 = 42", False),
        ("42", "x=41, y=42", False),
        ("x=42", "x=41", False),
        ("x=42", "y=42", False),
    ],
)
def test_equations(gold: str, answer: str, is_right: bool) -> None:
    assert outcome(gold, answer) is (Outcome.CORRECT if is_right else Outcome.WRONG)


@pytest.mark.parametrize(
    "answer",
    [
        r"42 \text{ or } 41",
        "42, 41",
        r"\{41, 42\}",
        "(42, 41)",
        r"\pm 42",
        r"42 \text{ perhaps 41}",
        r"42 \text{ is wrong}",
        r"\text{not } 42",
        r"\text{The answer is not } 42",
        r"\text{at most } 42",
        "x < 42",
        r"x \ne 42",
        r"41 \approx 42",
        r"41 \Rightarrow 42",
        "x = 42 = y",
        "42:41",
        "4 2",
        r"42\text{41}",
        r"\text{42 or 41}",
    ],
)
def test_a_hedged_answer_is_wrong(answer: str) -> None:
    assert outcome("42", answer) is Outcome.WRONG


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        (r"\gcd(n, p-1)", r"\gcd(n, p-2)"),  # polynomials without a common factor, for sympy
        (r"S_0 \neq 0", r"S_0 \neq 1"),  # a KeyError in the library
        ("R = I", "-R = I"),  # no solution on either side, so no difference
        (r"A = \begin{pmatrix} 1 & 2 \end{pmatrix}", r"A = \begin{pmatrix} 1 & 3 \end{pmatrix}"),
        (r"\pi(R^2-r^2)", "0"),  # R is not r
        ("L_i = 0", "L_I = 0"),
        ("10^{-20}+x", "x"),
        ("0", "10 000"),  # 10 times 000
    ],
)
def test_where_the_library_alone_errs(gold: str, answer: str) -> None:
    assert outcome(gold, answer) in (Outcome.WRONG, Outcome.ERROR)


def test_no_answer_and_nothing_but_the_completion_is_read() -> None:
    # [86] a prompt may hold an example \boxed{5}; it never gets here, and prose is not an answer
    assert judge("I do not know", "5") == (Outcome.NO_ANSWER, None, "")
    assert judge("I got 41 but maybe 42", "42").outcome is Outcome.NO_ANSWER


@pytest.mark.parametrize("gold", ["", "  ", r"\frac{", r"\mathbb{Q}/\mathbb{Z}"])
def test_gold_that_cannot_be_read_is_an_error_not_a_wrong_answer(gold: str) -> None:
    judged = judge(r"\boxed{5}", gold)  # [82]
    assert judged.outcome is Outcome.ERROR
    assert "cannot read the gold" in judged.reason
    assert judged.extracted == "5"


def test_unreadable_gold_can_still_be_met_to_the_letter() -> None:
    assert outcome(r"\mathbb{Q}/\mathbb{Z}", r"\mathbb{Q}/\mathbb{Z}") is Outcome.CORRECT


def test_running_out_of_stack_is_an_error() -> None:
    deep = r"\sqrt{" * 300 + "2" + "}" * 300  # the library itself calls it unequal
    judged = judge(f"\\boxed{{{deep}}}", "43")
    assert judged.outcome is Outcome.ERROR
    assert "RecursionError" in judged.reason


def test_integers_longer_than_int_accepts() -> None:
    digits = "7" * 200_000  # int() refuses above 4300 digits
    assert outcome(digits, "+0" + digits) is Outcome.CORRECT
    assert outcome(digits, digits[:-1] + "8") is Outcome.WRONG


@given(gold=st.integers(-(10**6), 10**6), other=st.integers(-(10**6), 10**6), zeros=st.integers(0, 3))
def test_integers_compare_as_integers(gold: int, other: int, zeros: int) -> None:
    sign, digits = ("-" if other < 0 else ""), "0" * zeros + str(abs(other))
    assert outcome(f"{gold:,}", sign + digits) is (Outcome.CORRECT if gold == other else Outcome.WRONG)
    assert outcome(str(gold), f"{gold:,}".replace(",", "{,}")) is Outcome.CORRECT
