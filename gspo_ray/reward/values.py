"""Values without units and words: numbers, equations, lists, tuples, ratios, and the rest by math-verify.

`compare` is `match.difference`: the parts of a list may have units and words again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from gspo_ray.reward import library, shape
from gspo_ray.reward.plain import Number, read_number
from gspo_ray.reward.shape import Group

Compare = Callable[[str, str], str | None]

DIFFERENT = "different value"
UNREADABLE = "the answer cannot be read"

_MAX_PAIRS = 2500  # items of two lists compared one with another
_APPROX = re.compile(r"\s*\\approx(?![A-Za-z])\s*")
_POINT_NUMBER = re.compile(r"[+-]?[0-9]*\.[0-9]+")
_DECIMAL_COMMA = re.compile(r"([+-]?[0-9]+),([0-9]+)")
_COMMA_NUMBER = re.compile(r"[+-]?[0-9]{1,3}(?:,[0-9]{3})+")
_REGION = re.compile(r"\\c[ua]p(?![A-Za-z])|\\mathbb|\\emptyset|\\setminus|\\begin")


def value_difference(gold: str, answer: str, compare: Compare) -> str | None:
    """None when they are equal, else why not. Raises UnreadableError for a gold that cannot be read."""
    gold, answer = shape.peel(gold), shape.peel(answer)
    if gold == answer:
        return None
    gold_number, number = read_number(gold), read_number(answer)
    if gold_number is not None and number is not None:
        return None if gold_number == number else DIFFERENT
    if _APPROX.search(answer):
        return _approximate_difference(gold, answer, compare)
    if _is_decimal_comma(gold, number) or _is_decimal_comma(answer, gold_number):
        return None
    gold_group, answer_group = shape.read_group(gold), shape.read_group(answer)
    gold_sides, answer_sides = shape.sides(gold), shape.sides(answer)
    if gold_group is None and len(gold_sides) > 1:
        return _equation_difference(gold, answer, compare)
    if answer_group is None and len(answer_sides) > 1:
        if gold_group and (pairs := _assignments(answer_sides)) and _have_own_names(gold_group.items):
            return _set_difference(gold_group.items, pairs, compare)
        # x = 42 and 6 \cdot 7 = 42 are 42; 41 = 42 and a+b = 42 are not.
        values = answer_sides[1:] if shape.is_name(answer_sides[0]) else answer_sides
        return next((reason for value in values if (reason := compare(gold, value))), None)
    if len(shape.alternatives(gold)) + len(shape.alternatives(answer)) > 2 and gold_group is answer_group is None:
        return _set_difference((gold,), (answer,), compare)
    if gold_group or answer_group:
        return _group_difference(gold, gold_group, answer, answer_group, compare)
    if max(len(shape.ratio(gold)), len(shape.ratio(answer))) > 2:
        return _ratio_difference(shape.ratio(gold), shape.ratio(answer))
    return _expression_difference(gold, answer)


def _expression_difference(gold: str, answer: str) -> str | None:
    left, right = library.parse_pair(gold, answer)
    if right is None:
        return UNREADABLE
    return None if library.equal(left, right) else DIFFERENT


def _approximate_difference(gold: str, answer: str, compare: Compare) -> str | None:
    """What stands before the sign counts; for a gold answer with a point also that value rounded, after the sign."""
    exact, *_, rounded = _APPROX.split(answer)
    if not exact or shape.is_name(exact):
        return compare(gold, rounded)
    value = shape.sides(exact)[-1]
    if (reason := compare(gold, exact)) is None:
        return None
    if "." not in gold or not _POINT_NUMBER.fullmatch(rounded) or compare(gold, rounded) is not None:
        return reason
    try:
        return None if library.rounds_to(value, rounded) else reason
    except library.UnreadableError:
        return UNREADABLE


def _is_decimal_comma(text: str, other: Number | None) -> bool:
    """1,22 for 1.22, when the other side is such a number; 1,220 stays a whole number."""
    match = _DECIMAL_COMMA.fullmatch(text)
    return match is not None and other is not None and read_number(f"{match[1]}.{match[2]}") == other


def _ratio_difference(gold: Sequence[str], answer: Sequence[str]) -> str | None:
    if len(gold) != len(answer):
        return DIFFERENT
    pairs = [
        (rf"\frac{{{one}}}{{{gold[0]}}}", rf"\frac{{{two}}}{{{answer[0]}}}")
        for one, two in zip(gold, answer, strict=True)
    ]
    return next((reason for one, two in pairs[1:] if (reason := _expression_difference(one, two))), None)


def _equation_difference(gold: str, answer: str, compare: Compare) -> str | None:
    """A gold answer with "=": x = 42 is met by 42 and by x = 42, not by y = 42; 2x + z = 1 only by an equation."""
    gold_sides, answer_sides = shape.sides(gold), shape.sides(answer)
    group = shape.read_group(answer)
    if group and (pairs := _assignments(gold_sides)) and _have_own_names(group.items):
        return _set_difference(pairs, group.items, compare)
    names = _names_of_chain(gold_sides)
    if not names or not shape.is_name(gold_sides[0]):
        return _expression_difference(gold, answer)
    if group is not None or len(answer_sides) == 1:
        return compare(gold_sides[-1], answer)
    if _names_of_chain(answer_sides) == names:
        variables = shape.dummies(gold_sides[0]) ^ shape.dummies(answer_sides[0])
        depends = any(shape.mentions(side, name) for side in (gold_sides[-1], answer_sides[-1]) for name in variables)
        return DIFFERENT if depends else compare(gold_sides[-1], answer_sides[-1])  # W(n) = 1 is W(x) = 1
    if len(names) > 1 or (shape.is_name(answer_sides[0]) and not shape.mentions(gold_sides[-1], answer_sides[0])):
        return "another name"
    return _expression_difference(gold, answer)


def _names_of_chain(sides: Sequence[str]) -> set[str]:
    return {shape.called(side) for side in sides[:-1] if shape.is_name(side)}


def _assignments(sides: Sequence[str]) -> tuple[str, ...] | None:
    """(x,y) = (1,2) as x=1 and y=2."""
    if len(sides) != 2 or not shape.is_name(sides[0]):
        return None
    names, values = shape.read_group(sides[0]), shape.read_group(sides[1])
    if names is None or values is None or len(names.items) != len(values.items):
        return None
    return tuple(f"{name}={value}" for name, value in zip(names.items, values.items, strict=True))


def _group_difference(
    gold: str, gold_group: Group | None, answer: str, answer_group: Group | None, compare: Compare
) -> str | None:
    if answer_group and answer_group.is_set and _is_list_too(gold, answer, answer_group):
        gold_group = Group("", "", tuple(gold.split(",")))
    if gold_group and gold_group.is_set and _is_list_too(answer, gold, gold_group):
        answer_group = Group("", "", tuple(answer.split(",")))
    if _is_region(gold, gold_group) and _is_region(answer, answer_group) and not (gold_group and answer_group):
        return _region_difference(gold, gold_group, answer, answer_group)
    gold_items = gold_group.items if gold_group else (gold,)
    answer_items = answer_group.items if answer_group else (answer,)
    if gold_group is None or gold_group.is_set:
        if answer_group and not answer_group.is_set:
            return "a tuple or interval"
        return _set_difference(gold_items, answer_items, compare)
    if answer_group is None or answer_group.is_set:
        return "a tuple or interval is asked for"
    if (gold_group.left, gold_group.right) != (answer_group.left, answer_group.right):
        return "other brackets"
    return _sequence_difference(gold_items, answer_items, compare)


def _is_list_too(text: str, other: str, group: Group) -> bool:
    """98,118,122 is a number, unless the other side is that list in braces or with blanks."""
    return bool(_COMMA_NUMBER.fullmatch(text)) and (group.left == r"\{" or other.replace(" ", "") == text)


def _is_region(text: str, group: Group | None) -> bool:
    """An interval, a union, inequalities: what can be a part of the real line. Matrices are left to the library too."""
    if group is None:
        return bool(_REGION.search(text)) or shape.is_inequality(text)
    if group.is_set:
        return group.left == "" and all(shape.is_inequality(item) for item in group.items) and "and" not in text
    return len(group.items) == 2


def _region_difference(gold: str, gold_group: Group | None, answer: str, answer_group: Group | None) -> str | None:
    parts = [
        (group.items if group and group.is_set else (text,))
        for text, group in ((gold, gold_group), (answer, answer_group))
    ]
    if max(map(len, parts)) == 1:
        return _expression_difference(gold, answer)
    left = [library.parse(item, True) for item in parts[0]]
    try:
        right = [library.parse(item, True) for item in parts[1]]
    except library.UnreadableError:
        return UNREADABLE
    return None if library.same_region(left, right) else DIFFERENT


def _sequence_difference(gold: Sequence[str], answer: Sequence[str], compare: Compare) -> str | None:
    if len(gold) != len(answer):
        return f"{len(gold)} values are asked for"
    return next((reason for one, two in zip(gold, answer, strict=True) if (reason := compare(one, two))), None)


def _set_difference(gold: Sequence[str], answer: Sequence[str], compare: Compare) -> str | None:
    """In any order, repeated or not; but a gold list that repeats a value is a sequence."""
    gold = [value for item in gold for value in shape.alternatives(item)]
    answer = [value for item in answer for value in shape.alternatives(item)]
    if len(set(map(_key, gold))) < len(gold):
        return _sequence_difference(gold, answer, compare)
    if _have_own_names(gold) and not any(map(_is_named, answer)):  # x=5, y=6 given as 5, 6
        return _sequence_difference([shape.sides(item)[-1] for item in gold], answer, compare)
    gold_keys, answer_keys = set(map(_key, gold)), set(map(_key, answer))
    missing = [item for item in gold if _key(item) not in answer_keys]
    extra = [item for item in answer if _key(item) not in gold_keys]
    if len(missing) * len(answer) + len(extra) * len(gold) > _MAX_PAIRS:
        return DIFFERENT
    if any(all(compare(item, other) for other in answer) for item in missing):
        return "a value is missing"
    if any(all(compare(item, other) for item in gold) for other in extra):
        return "a value too many"
    return None


def _key(item: str) -> Number:
    number = read_number(item)
    return item.replace(" ", "") if number is None else number


def _is_named(item: str) -> bool:
    parts = shape.sides(item)
    return len(parts) > 1 and shape.is_name(parts[0])


def _have_own_names(items: Sequence[str]) -> bool:
    """x=5, y=6: each value has a name of its own."""
    names = {shape.called(shape.sides(item)[0]) for item in items}
    return len(items) > 1 and len(names) == len(items) and all(map(_is_named, items))
