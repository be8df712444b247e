"""Answers made to hang, to exhaust or to confuse the verifier: each ends within the limit as what it was."""

import time
from collections.abc import Iterator

import pytest

from gspo_ray.reward.pool import VerifierProcess
from gspo_ray.types import Outcome

LIMIT_S = 1.0
GOOD = (r"\boxed{0.5}", r"\frac{1}{2}")  # needs math-verify
CORRECT, WRONG, NO_ANSWER = Outcome.CORRECT, Outcome.WRONG, Outcome.NO_ANSWER
TIMEOUT, ERROR = Outcome.TIMEOUT, Outcome.ERROR


def matrix(last: int) -> str:
    """10^4 cells."""
    rows = [["1"] * 100 for _ in range(100)]
    rows[-1][-1] = str(last)
    return r"\begin{pmatrix}" + r"\\".join("&".join(row) for row in rows) + r"\end{pmatrix}"


HOSTILE = {  # name -> (content of the box, gold answer, what may be found)
    "tower": ("9^{9^{9^{9}}}", "42", {TIMEOUT, ERROR}),
    "factorial": ("99999999!", "42", {TIMEOUT, ERROR}),
    "50 factorials": ("3" + "!" * 50, "42", {WRONG, TIMEOUT, ERROR}),
    "power of a sum": ("(x+y+z)^{200}", "(x+z+y)^{200}+1", {WRONG, TIMEOUT}),
    "nested braces": ("{" * 100_000 + "7" + "}" * 100_000, "7", {WRONG}),
    "nested brackets": ("(" * 100_000 + "7" + ")" * 100_000, "7", {WRONG}),
    "deep fractions": (r"\frac{1}{1+" * 300 + "2" + "}" * 300, "42", {ERROR, TIMEOUT}),
    "a megabyte": ("x+" * 500_000 + "1", "7", {WRONG}),
    "a megabyte of digits": ("7" * 1_000_000, "7" * 1_000_000, {CORRECT}),
    "one of many digits wrong": ("7" * 199_999 + "8", "7" * 200_000, {WRONG}),
    "matrix": (matrix(1), "42", {WRONG}),
    "matrix for a matrix": (matrix(1), matrix(2), {WRONG, TIMEOUT, ERROR}),
    "long list": (",".join(map(str, range(10_000))), "42", {WRONG}),
    "NUL bytes": ("\0" * 1000 + "7", "7", {WRONG}),
    "lone surrogates": ("\ud800\udfff7", "7", {WRONG}),
    "unbalanced brackets": (r"\left(\frac{1}{2}", r"\frac{1}{2}", {WRONG}),
    "unbalanced environment": (r"\begin{pmatrix} 1 & 2", "42", {WRONG}),
    "Python": ("__import__('os').system('sleep 60')", "42", {WRONG}),
    "Python in words": (r"\text{exec('while True: pass')}", "42", {WRONG}),
    "sympy": ("Integral(x**x,(x,0,1)).doit()", "42", {WRONG}),
    "open commands": (r"\frac" * 900, "7", {WRONG}),
    "units": ("7 " + "square cubic " * 300 + "cm", "7", {WRONG, ERROR, TIMEOUT}),
    "commas": ("1," * 2400, "7", {WRONG}),
    "braces": ("{}" * 2400, "7", {WRONG, ERROR, TIMEOUT}),
    "dollar signs": ("$" * 4900, "7", {WRONG}),
}


@pytest.fixture(scope="module")
def verifier() -> Iterator[VerifierProcess]:
    with VerifierProcess(timeout_s=LIMIT_S, memory_limit_mib=2048) as process:
        yield process


@pytest.mark.parametrize("name", HOSTILE)
def test_ends_within_the_limit_and_costs_the_next_nothing(verifier: VerifierProcess, name: str) -> None:
    content, gold, outcomes = HOSTILE[name]
    started = time.monotonic()
    hit, after = verifier.examine([(f"\\boxed{{{content}}}", gold), GOOD])
    assert hit.verdict.outcome in outcomes
    assert hit.verdict.seconds < LIMIT_S + 1
    assert time.monotonic() - started < 30  # with the start of another process, on a slow machine
    assert (hit.reason == "") is (hit.verdict.outcome is CORRECT)
    assert (after.verdict.outcome, after.reason) == (CORRECT, "")
    assert after.verdict.seconds < LIMIT_S


@pytest.mark.parametrize(
    ("completion", "outcome"),
    [
        (r"\boxed{" * 100_000 + "7" + "}" * 100_000, CORRECT),
        (r"\boxed{" * 20_000, NO_ANSWER),
        (r"\boxed{\frac{1}{2}", NO_ANSWER),
        ("lorem ipsum " * 90_000 + r"\boxed{7}", CORRECT),
        ("lorem ipsum " * 90_000, NO_ANSWER),
    ],
    ids=["nested boxes", "open boxes", "cut off", "a megabyte before", "a megabyte"],
)
def test_hostile_completions(verifier: VerifierProcess, completion: str, outcome: Outcome) -> None:
    examined, after = verifier.examine([(completion, "7"), GOOD])
    assert (examined.verdict.outcome, after.verdict.outcome) == (outcome, CORRECT)


def test_a_hostile_gold_answer_is_found_before_the_run(verifier: VerifierProcess) -> None:
    faults = verifier.gold_faults(["42", r"\frac{1}{2}", "9^{9^{9^{9}}}", ""])
    assert faults == ["", "", "more than 1 s", "empty"]
