"""What an answer is made of: lists, sets, tuples and intervals, equations, ratios. Reads brackets, never values."""

from __future__ import annotations

import re
from typing import NamedTuple

from gspo_ray.reward.plain import read_number
from gspo_ray.reward.units import split_unit
from gspo_ray.reward.words import is_placeholder, is_words

_OPEN, _CLOSE = r"(?P<open>\\[{lL](?:floor|ceil)?|[({\[])", r"(?P<close>\\[}]|\\r(?:floor|ceil)|[)}\]])"
_AND_OR = r"\\text\{[\s,]*(?:and|or)[\s,]*\}|(?<![A-Za-z\\])(?:and|or)(?![a-z])"
_COMMA = re.compile(rf"\s*,?\s*(?:{_AND_OR})|[,;]")
_EQUALS = re.compile(r"(?<![<>!:=])=(?!=)|\\in(?![A-Za-z])")
_COLON = re.compile(":")
_INEQUALITY = re.compile(r"<|>|\\(?:le|ge|ne)(?![A-Za-z])")
_THOUSANDS = re.compile(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))")
_PLUS_MINUS = re.compile(r"\\(?:pm|mp)(?![A-Za-z])")
_BASED = re.compile(
    r"(?:\((?P<inner>[0-9A-Za-z ]*[0-9][0-9A-Za-z ]*)\)|(?P<digits>[0-9A-F ]*[0-9][0-9A-F ]*))"
    r"_(?:\{(?:\\text\{)?\s*(?P<long>[A-Za-z0-9]+)\s*\}{1,2}|(?P<short>[0-9]))"
)
_BASES = {"two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7", "eight": "8", "nine": "9",
          "ten": "10", "twelve": "12", "sixteen": "16"}  # fmt: skip
_FUNCTION = re.compile(r"([A-Za-z](?:_\w|_\{\w+\})?)\s*\(([A-Za-z])\)")
_CALL_OR_INDEX = re.compile(r"(?<=[A-Za-z}])\s*\([^()]*\)|_\{[^{}]*\}|_\w")
_ARITHMETIC = re.compile(
    r"[-+*/^<>!|:\d]|\\(?:frac|[dt]?binom|sqrt|cdot|times|div|pm|mp|sum|prod|int|le|ge|ne|log|ln|sin|cos|tan)(?![A-Za-z])"
)


class Group(NamedTuple):
    """`{1,2}` is a set, `1, 2` a list, `(1,2)` a tuple or an open interval, `[1,2)` an interval."""

    left: str  # "(", "[", "\\{" or "" for a list
    right: str
    items: tuple[str, ...]

    @property
    def is_set(self) -> bool:
        return self.left in ("", r"\{")


def split_top(text: str, separator: re.Pattern[str]) -> list[str]:
    """Split where `separator` matches outside all brackets."""
    parts, start, depth = [], 0, 0
    for token in re.finditer(rf"(?P<separator>{separator.pattern})|(?P<skip>\\[\\|])|{_OPEN}|{_CLOSE}", text):
        if token["open"]:
            depth += 1
        elif token["close"]:
            depth -= 1
        elif token["separator"] and depth == 0:
            parts.append(text[start : token.start()].strip())
            start = token.end()
    return [*parts, text[start:].strip()]


def read_group(text: str) -> Group | None:
    """None for a single value."""
    left = r"\{" if text.startswith(r"\{") else text[:1]
    if left in ("(", "[", r"\{") and _closes_at_end(text):
        right = r"\}" if text.endswith(r"\}") else text[-1]
        items = _items(text[len(left) : len(text) - len(right)])
        if left == r"\{" or len(items) > 1:
            return Group(left, right, items)
        return None
    items = _items(text)
    return Group("", "", items) if len(items) > 1 else None


def peel(text: str) -> str:
    """Without brackets that stand round a single value."""
    while text.startswith("(") and _closes_at_end(text) and text.endswith(")") and read_group(text) is None:
        text = text[1:-1].strip()
    return text


def sides(text: str) -> list[str]:
    """Of `a = b = c` or `x \\in S`; one side when there is no equation."""
    return split_top(text, _EQUALS)


def named_value(text: str) -> str | None:
    """42 of `x = 42`; None for anything else."""
    parts = sides(text)
    return parts[1] if len(parts) == 2 and is_name(parts[0]) else None


def ratio(text: str) -> list[str]:
    """The parts of 3:4:5; one part when it is no ratio."""
    return split_top(text, _COLON)


def is_name(side: str) -> bool:
    """What a value can be given to: x, x_1, f(2), (x,y), \\angle ABC, \\text{Area}; no arithmetic."""
    bare = _CALL_OR_INDEX.sub("", side)
    return not _ARITHMETIC.search(bare) and bool(re.search("[A-Za-z]", bare))


def called(name: str) -> str:
    """A name without spaces, braces and the variable of a function: W(n) and W(x) are one function."""
    function = _FUNCTION.fullmatch(name)
    return re.sub(r"\\text|[\s{}]", "", function[1] if function else name)


def dummies(name: str) -> set[str]:
    """{"x"} of f(x)."""
    function = _FUNCTION.fullmatch(name)
    return {function[2]} if function else set()


def mentions(text: str, name: str) -> bool:
    """Does the variable or function `name` occur in `text`?"""
    return called(name) in re.sub(r"\\[A-Za-z]+|\s", "", text)


def based(text: str) -> tuple[str, str] | None:
    """(digits, base) of 204_5, 204_{5}, (204)_{\\text{five}}."""
    match = _BASED.fullmatch(text)
    if match is None:
        return None
    base = match["long"] or match["short"]
    base = _BASES.get(base, base)
    return ((match["inner"] or match["digits"]).replace(" ", "").lstrip("0"), base) if base.isdigit() else None


def alternatives(item: str) -> list[str]:
    """1 \\pm \\sqrt{2} stands for two values."""
    if not _PLUS_MINUS.search(item):
        return [item]
    signs = ({r"\pm": "+", r"\mp": "-"}, {r"\pm": "-", r"\mp": "+"})
    return [_PLUS_MINUS.sub(lambda match: sign[match[0]], item).strip() for sign in signs]  # noqa: B023 - used at once


def is_inequality(text: str) -> bool:
    return bool(_INEQUALITY.search(text))


def is_scalar(text: str) -> bool:
    """One value: no list, tuple, equation or inequality."""
    return read_group(text) is None and len(sides(text)) == 1 and not is_inequality(text)


def kind_of(text: str) -> str:
    """The type of a tidied answer, for tables: what the rules see in it."""
    if is_placeholder(text):
        return "no answer"
    if based(text):
        return "number in a base"
    if is_words(text):
        return "words"
    body, unit = split_unit(text)
    if unit is not None:
        return "with unit" if unit.kind != "number" else "percent"
    number = read_number(body)
    if number is not None:
        is_whole = isinstance(number, str) or number.denominator == 1
        return "integer" if is_whole else "fraction" if "frac" in body or "/" in body else "decimal"
    if r"\begin" in body:
        return "matrix"
    if group := read_group(body):
        return "list or set" if group.is_set else "tuple or interval"
    if re.search(r"\\c[ua]p(?![A-Za-z])", body):
        return "union of sets"
    if len(sides(body)) > 1:
        return "equation"
    if is_inequality(body):
        return "inequality"
    return "ratio" if len(ratio(body)) > 1 else "expression"


def _items(text: str) -> tuple[str, ...]:
    """Comma-separated parts; 1,000, 2,000 holds two numbers, as its blanks say."""
    if re.search(r"[,;]\s|and|or", text):
        text = _THOUSANDS.sub("", text)
    return tuple(part for part in split_top(text, _COMMA) if part)


def _closes_at_end(text: str) -> bool:
    depth = 0
    for token in re.finditer(rf"(?P<skip>\\[\\|])|{_OPEN}|{_CLOSE}", text):
        depth += bool(token["open"]) - bool(token["close"])
        if depth == 0 and (token["open"] or token["close"]):
            return token.end() == len(text)
    return False
