"""Where the final answer of a completion is. Standard library only, linear time.

The contract, strict on purpose (a reward that is paid for less is what a policy learns to give):
    boxed         the last \\boxed{...} or \\fbox{...}; blanks allowed before the brace, escaped braces are no depth.
                  When it is unterminated or empty there is no answer: a truncated or withdrawn answer is not paid for
                  an earlier box. A box inside a box belongs to the outer one; boxes round a box are peeled off.
    answer_line   the last line that starts with "Answer:", "Final answer:" or "A:" (markdown marks allowed), its rest.
    hashes        the last line that starts with "####", its rest; of "#### 42 and some words" the number.
    whole         all of the text: for files whose answers are extracted already.
    any           the last box, else the last formula, else all of it: to audit files of unknown make, not to train on.

Only text after the last </think> counts; a <think> that is never closed leaves no answer.
"""

from __future__ import annotations

import re
from typing import Literal, get_args

ExtractionStyle = Literal["boxed", "answer_line", "hashes", "whole", "any"]
STYLES: tuple[ExtractionStyle, ...] = get_args(ExtractionStyle)

_BOX = r"\\(?:boxed|fbox)\s*"
# A command at the very end of the text (\Z) is a box cut off before its brace.
_TOKEN = re.compile(rf"(?P<box>{_BOX}(?:\{{|\Z))|(?P<escaped>\\.)|(?P<open>\{{)|(?P<close>\}})", re.DOTALL)
_INNER_BOX = re.compile(rf"{_BOX}\{{")
_ANSWER_LINE = re.compile(r"[ \t>*_#-]*(?:(?:the[ \t]+)?(?:final[ \t]+)?answer|A)[ \t*_]*:[ \t*_]*", re.IGNORECASE)
_HASHES = re.compile(r"[ \t]*####(?!#)[ \t]*")
_LEADING_NUMBER = re.compile(r"(\\?\$?[+-]?[0-9][0-9,]*(?:\.[0-9]+)?)(?![0-9/^]|\s*[-+*/=^\\%])[^0-9]*")
_FORMULA = re.compile(r"\$\$([^$]+)\$\$|(?<!\\)\$([^$]+?)(?<!\\)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)

_Span = tuple[int, int, int]  # start of the command, start of the content, end of the content


def extract(completion: str, style: ExtractionStyle) -> str | None:
    """The answer as it is written, stripped; None when there is none by the contract above.

    Example: extract("12 + 30 = 42\\n#### 42", "hashes") == "42"
    """
    text = _after_thinking(completion)
    if text is None:
        return None
    match style:
        case "boxed":
            return _last_box(text)
        case "answer_line":
            return _answer_line(text)
        case "hashes":
            return _after_hashes(text)
        case "whole":
            return text.strip() or None
        case "any":
            return _last_box(text) if _INNER_BOX.search(text) else _last_formula(text)
    raise ValueError(f"unknown extraction style {style!r}; known: {', '.join(STYLES)}")


def gold_answer(gold: str) -> str:
    """A gold answer that comes in a box, alone or at the end of a solution, without it."""
    gold = gold.replace(r"\\boxed", r"\boxed").strip()
    return (_last_box(gold) or gold) if _INNER_BOX.search(gold) else gold


def last_boxed(completion: str) -> str | None:
    """Content of the last box.

    Example: last_boxed(r"so \\boxed{\\frac{1}{2}}.") == r"\\frac{1}{2}"
    """
    return extract(completion, "boxed")


def _after_thinking(text: str) -> str | None:
    text = text[text.rfind("</think>") + len("</think>") :] if "</think>" in text else text
    return None if "<think>" in text else text


def _answer_line(text: str) -> str | None:
    rest = _last_line(text, _ANSWER_LINE)
    if rest is None:
        return None
    if _INNER_BOX.search(rest):
        return _last_box(rest)
    return rest.strip().strip("*_").strip() or None


def _after_hashes(text: str) -> str | None:
    rest = _last_line(text, _HASHES)
    if rest is None:
        return None
    number = _LEADING_NUMBER.fullmatch(rest.strip())
    return number[1] if number else rest.strip() or None


def _last_formula(text: str) -> str | None:
    """A text that starts with a formula is one: $125$ miles."""
    formulas = list(_FORMULA.finditer(text))
    if not formulas or not text[: formulas[0].start()].strip():
        return text.strip() or None
    return next(group for group in formulas[-1].groups() if group is not None).strip() or None


def _last_line(text: str, start: re.Pattern[str]) -> str | None:
    """What follows `start` on the last line that begins with it."""
    for line in reversed(text.split("\n")):
        if match := start.match(line):
            return line[match.end() :]
    return None


def _last_box(text: str) -> str | None:
    closed = _enclosing_last(text)
    if not closed:
        return None
    span = closed[-1]
    for inner in reversed(closed[:-1]):
        if text[span[1] : inner[0]].strip() or text[inner[2] + 1 : span[2]].strip():
            break
        span = inner
    return _INNER_BOX.sub("{", text[span[1] : span[2]]).strip() or None


def _enclosing_last(text: str) -> list[_Span]:
    """The last box and the terminated boxes round it, innermost first; [] when the last one is unterminated."""
    closed: list[_Span] = []
    stack: list[tuple[int, int] | None] = []  # None: a plain brace
    last = -1  # where the content of the last box starts
    for token in _TOKEN.finditer(text):
        if token.lastgroup == "box":
            last = token.end()
            stack.append((token.start(), last))
            closed.clear()  # boxes that ended before this one are not round it
        elif token.lastgroup == "open":
            stack.append(None)
        elif token.lastgroup == "close" and stack:
            box = stack.pop()
            if box is not None:
                closed.append((*box, token.start()))
    return closed if closed and closed[0][1] == last else []
