"""Expected values are read off the strings by hand; numbers in brackets are entries of the fault list, section D."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gspo_ray.reward.extract import STYLES, ExtractionStyle, extract, gold_answer, last_boxed


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"The answer is \boxed{42}.", "42"),
        (r"\boxed{1} then \boxed{2}", "2"),
        (r"\fbox{42}", "42"),  # [84]
        (r"\boxed {5}", "5"),  # [84]
        ("\\boxed\n {5}", "5"),
        (r"\boxed{\frac{1}{3}}", r"\frac{1}{3}"),  # [83] not cut at the first closing brace
        (r"\boxed{\{1,2\}}", r"\{1,2\}"),  # escaped braces are text
        (r"\boxed{\{1,2}", r"\{1,2"),  # ... so this box is closed by its one real brace
        (r"\boxed{1\\2}", r"1\\2"),  # an escaped backslash does not escape the brace after it
        (r"a } stray { brace \boxed{7}", "7"),
        (r"line\\\boxed{7}", "7"),
        (r"line\\boxed{7}", None),  # a line break and the word "boxed"
        (r"\boxed{\boxed{7}}", "7"),
        (r"\boxed{ \fbox{\boxed{7}} }", "7"),
        (r"\boxed{x = \boxed{7}}", "x = {7}"),  # the outer box is the answer, brackets kept
        (r"\boxed{\boxed{3} + \boxed{4}}", "{3} + {4}"),
        (r"\boxed{1 + \boxed{7}", "7"),  # the outer box never ended
        (r"\boxed{" + "9" * 150 + "}", "9" * 150),  # [91]
        (r"\boxed{42}" + " and so on" * 50_000, "42"),  # [91] no window at the end of the text
    ],
)
def test_finds_the_last_box(text: str, expected: str | None) -> None:
    assert last_boxed(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "42",
        "I got 41 but maybe 42",  # [88] only a box is an answer
        "Final Answer: **73**",  # [80]
        "#### 42",
        r"\boxed{}",  # [87]
        r"\boxed{  }",
        r"\boxed{\boxed{}}",
        r"\boxed{8} no, it is \boxed{}",  # withdrawn
        r"\boxed{8}. Checking once more: \boxed{",  # [85] truncated: not paid for an earlier box
        r"\boxed{8}. Checking once more: \boxed{8",
        r"\boxed{8}. Checking once more: \boxed",
        r"\boxed 8",  # no braces, no box
        r"\boxedx{8}",
    ],
)
def test_no_answer(text: str) -> None:
    assert last_boxed(text) is None


@pytest.mark.parametrize(
    ("text", "expected"),  # [93] and [88]
    [
        (r"<think>so 42</think> \boxed{42}", "42"),
        (r"so 42</think> \boxed{42}", "42"),  # the opening tag stood in the prompt
        (r"<think>\boxed{42}</think> I do not know.", None),
        (r"<think>maybe \boxed{42}", None),  # never got out of thinking
        (r"<think>a</think> \boxed{1} <think>again \boxed{2}", None),
        (r"<think>a</think><think>\boxed{1}</think>\boxed{2}", "2"),
    ],
)
def test_thinking_is_not_the_answer(text: str, expected: str | None) -> None:
    assert last_boxed(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"\boxed{" * 20_000, None),
        (r"\boxed{" * 100_000 + "7" + "}" * 100_000, "7"),
        (r"\boxed{" + "{" * 100_000 + "7" + "}" * 100_001, "{" * 100_000 + "7" + "}" * 100_000),
        ("{" * 1_000_000, None),
        ("\\boxed{7" + " " * 1_000_000 + "}", "7"),
        ("\\boxed" + " " * 1_000_000 + "7", None),
    ],
)
def test_linear_time(text: str, expected: str | None) -> None:
    started = time.monotonic()
    assert last_boxed(text) == expected
    assert time.monotonic() - started < 3  # 0.2 s measured; quadratic code takes minutes


_balanced = st.recursive(
    st.text(alphabet="ab1+ ", max_size=5),
    lambda inner: st.lists(inner, max_size=3).map(lambda parts: "{" + "".join(parts) + "}"),
)


@given(before=st.text(alphabet="{}\\boxed abc", max_size=40), content=_balanced, after=st.text("xyz .", max_size=9))
def test_a_complete_last_box_is_found_after_anything(before: str, content: str, after: str) -> None:
    found = last_boxed(before + " \\boxed{" + content + "}" + after)
    assert found == (content.strip() or None)


@given(st.text(alphabet="\\{}boxed fk<>/thin\n\0", max_size=80))
def test_never_raises(text: str) -> None:
    last_boxed(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Answer: 42", "42"),
        ("so it is 42\nAnswer: 42", "42"),
        ("Answer: 41\nNo.\nAnswer: 42", "42"),  # the last one
        ("Answer: $\\frac{1}{2}$\nThat is all.", "$\\frac{1}{2}$"),
        ("answer : 42", "42"),
        ("**Answer:** 42", "42"),
        ("**Final Answer: 42**", "42"),
        ("### The final answer: 42", "42"),
        ("A: 26", "26"),  # the GSM8K solutions of 2021
        ("A: -9.9 billion", "-9.9 billion"),
        (r"Answer: \boxed{42}.", "42"),
        (r"Answer: \boxed{42", None),  # cut off
        ("Answer:", None),
        ("Answer: 42\nAnswer:", None),  # withdrawn
        ("The answer is 42", None),
        ("In short, Answer: 42", None),  # not at the start of a line
        ("NA: 42", None),
        (r"\boxed{42}", None),
        ("<think>Answer: 42</think>", None),
        ("<think>Answer: 41</think>\nAnswer: 42", "42"),
    ],
)
def test_answer_line(text: str, expected: str | None) -> None:
    assert extract(text, "answer_line") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("#### 42", "42"),
        ("6*7 = <<6*7=42>>42\n#### 42", "42"),
        ("#### 41\n#### 42", "42"),
        ("####42", "42"),
        ("#### 1,080", "1,080"),
        ("#### -3.5", "-3.5"),
        (r"#### \frac{1}{2}", r"\frac{1}{2}"),
        ("#### 1/2", "1/2"),
        ("#### 42" + " and so on" * 40, "42"),  # [91]
        ("#### 42\n" + "x" * 400, "42"),  # [91]
        ("#### 42x" + "x" * 400, "42"),
        ("#### 42 or 43", "42 or 43"),  # no choice is made for the model
        ("#### 42 apples", "42"),
        ("##### 42", None),  # a heading
        ("####", None),
        ("#### 42\n####", None),
        ("see #### 42", None),
        ("Answer: 42", None),
    ],
)
def test_hashes(text: str, expected: str | None) -> None:
    assert extract(text, "hashes") == expected


def test_whole() -> None:
    assert extract(" 42 \n", "whole") == "42"
    assert extract("  ", "whole") is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"I get $41$, so \boxed{42}, not $43$", "42"),
        (r"so \boxed{42", None),
        ("I get $41$, so $42$.", "42"),
        (r"so \(x = 5\), or \[x = 6\]", "x = 6"),
        ("$125$ miles", "$125$ miles"),
        ("42 apples", "42 apples"),
        ("", None),
    ],
)
def test_any(text: str, expected: str | None) -> None:
    assert extract(text, "any") == expected


@pytest.mark.parametrize(
    ("gold", "expected"),
    [
        ("42", "42"),
        (r" \boxed{42} ", "42"),
        (r"Since 6*7 = 42, it is \boxed{42}.", "42"),
        (r"so \\boxed{004} is it", "004"),  # escaped twice
        (r"\boxed{42", r"\boxed{42"),
    ],
)
def test_a_gold_answer_in_a_box(gold: str, expected: str) -> None:
    assert gold_answer(gold) == expected


def test_an_unknown_style_is_named() -> None:
    with pytest.raises(
        ValueError, match="unknown extraction style 'regex'; known: boxed, answer_line, hashes, whole, any"
    ):
        extract("42", "regex")  # type: ignore[arg-type]


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize(
    "text", ["A: 5\n" * 200_000, "#" * 1_000_000, "Answer" + " " * 1_000_000, "#### " + "1," * 400_000]
)
def test_every_style_takes_linear_time(style: ExtractionStyle, text: str) -> None:
    started = time.monotonic()
    extract(text, style)
    assert time.monotonic() - started < 3
