import pytest

from gspo_ray.reward.words import is_placeholder, is_words, spoken


@pytest.mark.parametrize(
    "text",
    [
        "Yes",
        "no",
        "No",
        "even",
        "DNE",
        "Evelyn",
        "Tim",
        "quadratic",
        "Mrs. Hilt",
        "does not exist",
        "Cesar's toothbrush",
        r"\text{C}",
        r"\text{(C)}",
        r"\text{odd}",
        r"\text{on}",
        "2024-01-05",
        "4:30 p.m.",
        r"4:30 \text{ PM}",
    ],
)
def test_language(text: str) -> None:
    assert is_words(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "42",
        "x",
        "C",
        "E",
        "xy",
        "on",
        "abc",
        "ABC",
        r"\pi",
        "pi",
        "sin x",
        "ln 2",
        "2x",
        "x + y",
        r"4\text{ cm}",
        "(1,2)",
        r"\frac{1}{2}",
        "4:30",
        "3:4",
        "1-2",
        "2018-5",
        r"\infty",
        "x \\text{ or } y",
        "f(x)",
    ],
)
def test_mathematics(text: str) -> None:
    assert not is_words(text)


@pytest.mark.parametrize(
    ("text", "form"),
    [
        (r"\text{(C)}", "C"),
        ("(c)", "c"),
        ("C)", "C"),
        (r"\text{Yes}", "yes"),
        ("Yes.", "yes"),
        (r"\text{The} \text{ midpoint}", "midpoint"),
        ("DNE", "does not exist"),
        ("doesn't exist", "does not exist"),
        ("2024-01-05", "2024-1-5"),
        ("04:30 PM", "4:30 pm"),
        ("4:30 p.m.", "4:30 pm"),
    ],
)
def test_spoken(text: str, form: str) -> None:
    assert spoken(text) == form


@pytest.mark.parametrize(
    "text", ["", "?", "-", "...", "see figure", r"\text{See figure.}", "N/A", "nan", "answers vary"]
)
def test_placeholders(text: str) -> None:
    assert is_placeholder(text)


@pytest.mark.parametrize("text", ["0", "No", "none", "DNE", r"\emptyset", "x", r"\text{unknown variable}"])
def test_answers_are_no_placeholders(text: str) -> None:
    assert not is_placeholder(text)
