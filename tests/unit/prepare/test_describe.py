import pytest

from gspo_ray.prepare.describe import answer_kind, describe_answers, describe_lengths, describe_scripts, script_of
from gspo_ray.prepare.records import Record


def records(*answers: str) -> list[Record]:
    return [Record(str(number), "q", answer, "set") for number, answer in enumerate(answers)]


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ("34", "integer"),
        ("-2015028", "integer"),
        ("27.0", "decimal"),
        (".5", "decimal"),
        ("3/4", "fraction"),
        ("\\frac{14}{3}", "fraction"),
        ("-\\dfrac{1}{2}", "fraction"),
        ("\\frac12", "fraction"),
        ("\\frac{\\pi}{2}", "LaTeX expression"),
        ("x^2", "LaTeX expression"),
        ("9 (apples)", "number with more"),
        ("1,080", "number with more"),
        ("Evelyn", "words"),
        ("数", "words"),
    ],
)
def test_kinds_of_answers(answer: str, kind: str) -> None:
    assert answer_kind(answer) == kind


def test_integers() -> None:
    found = describe_answers(records("5", "-7", "9223372036854775807", "9223372036854775808", "x", "9" * 5000))
    assert found == {
        "kinds": {"integer": 5, "words": 1},
        "negative_integers": 1,
        "integers_beyond_int64": 1,  # 2**63; one of 5000 digits is counted as integer and not read
        "smallest_integer": "-7",
        "largest_integer": "9223372036854775808",
    }
    assert describe_answers(records("x"))["largest_integer"] is None


@pytest.mark.parametrize(
    ("question", "script"),
    [
        ("Let $x$ be", "Latin"),
        ("已知 $z$, 求值", "Chinese"),
        ("解を求めよ", "Japanese"),
        ("구하시오", "Korean"),
        ("Найдите x", "Cyrillic"),
        ("1 + 1 = ?", "no letters"),
    ],
)
def test_scripts(question: str, script: str) -> None:
    assert script_of(question) == script
    assert describe_scripts([Record("1", question, "1", "set")]) == {script: 1}


def test_lengths() -> None:
    found = describe_lengths([*range(1, 101), 5000])  # 101 numbers: rank 50 of 0..100 is 51
    assert (found["min"], found["median"], found["p90"], found["p99"], found["max"]) == (1, 51, 91, 100, 5000)
    assert found["histogram"] == {"<= 32": 32, "<= 64": 32, "<= 128": 36, "> 4096": 1}
