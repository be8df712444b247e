"""Is this answer the gold answer? The rules round math-verify; ANSWERS.md shows every decision by example.

Kinds are compared before values: words are not mathematics, km are not kg, a number in base 8 is not one in base 10, a
pair is not a set. Where the library would call them equal all the same, it is not asked.
"""

from __future__ import annotations

import re
from fractions import Fraction

from gspo_ray.reward import library, shape, values, words
from gspo_ray.reward.plain import read_number
from gspo_ray.reward.units import UNKNOWN, Unit, is_numeric, split_unit
from gspo_ray.reward.values import DIFFERENT

_CLOCK = re.compile(r"[0-9]{1,2}:[0-9]{2}")
_PERCENT = Unit("number", Fraction(1, 100))
_AS_LATEX = {  # words that have a symbol
    "all real numbers": r"\mathbb{R}",
    "all reals": r"\mathbb{R}",
    "infinity": r"\infty",
    "empty set": r"\emptyset",
    "no solution": r"\emptyset",
}


def difference(gold: str, answer: str) -> str | None:
    """None when tidied `answer` is tidied `gold`, else why not, in a few words.

    Raises UnreadableError when it takes math-verify to tell and the gold answer cannot be read.
    """
    if gold == answer:
        return None
    if len(shape.sides(gold)) == 1 and (value := shape.named_value(answer)):
        return difference(gold, value)
    if shape.based(gold) or shape.based(answer):
        return _base_difference(gold, answer)
    if words.is_words(gold) or words.is_words(answer):
        return _word_difference(gold, answer)
    if _is_group(gold) or _is_group(answer):
        return values.value_difference(gold, answer, difference)  # each part has a unit of its own
    return _unit_difference(gold, answer)


def _is_group(text: str) -> bool:
    """Several values; \\$32,348 is one."""
    return shape.read_group(text) is not None and read_number(split_unit(text)[0]) is None


def check_gold(gold: str) -> None:
    """Raises UnreadableError, with the reason, for a tidied gold answer that can be met to the letter at best."""
    if words.is_placeholder(gold):
        raise library.UngradableError(f"a placeholder ({gold[:40]!r})" if gold else "empty")
    gold = shape.peel(gold)
    if shape.based(gold) or words.is_words(gold) or _CLOCK.fullmatch(gold):
        return
    for part in _parts(gold):
        body, _ = split_unit(part)
        if part != gold:
            check_gold(part)
        elif read_number(body) is None and body != r"\ldots":
            library.parse_gold(body)


def _parts(gold: str) -> list[str]:
    """What is compared by itself: the items of a list, both values of a plus-minus, the parts of a ratio."""
    group = shape.read_group(gold) if _is_group(gold) else None
    if group and not all(map(shape.is_inequality, group.items)):
        return list(group.items)
    sides = shape.sides(gold)
    if len(sides) > 1 and shape.is_name(sides[0]):
        return sides[-1:]
    return shape.alternatives(gold) if len(shape.ratio(gold)) < 3 else shape.ratio(gold)


def _base_difference(gold: str, answer: str) -> str | None:
    """A gold answer with a base wants digits and base; one without takes the digits in whatever base is named."""
    gold_base, answer_base = shape.based(gold), shape.based(answer)
    if gold_base is None or gold_base[1] == "10":
        return difference(gold_base[0] if gold_base else gold, answer_base[0] if answer_base else answer)
    if answer_base is None:
        return "the base is missing"
    return None if gold_base == answer_base else "other digits or another base"


def _word_difference(gold: str, answer: str) -> str | None:
    said, heard = words.spoken(gold), words.spoken(answer)
    if said == heard:
        return None
    if words.is_words(gold) and words.is_words(answer):
        return "different words"
    gold, answer = _AS_LATEX.get(said, gold), _AS_LATEX.get(heard, answer)
    if words.is_words(gold):
        return "words are asked for"
    if words.is_words(answer):
        return "words where mathematics is asked for"
    return difference(gold, answer)


def _unit_difference(gold: str, answer: str) -> str | None:
    gold_body, gold_unit = split_unit(gold)
    answer_body, answer_unit = split_unit(answer, letters=is_numeric(gold_body))
    if gold_unit is None and answer_unit not in (None, UNKNOWN):
        gold_body, gold_unit = split_unit(gold, letters=True)
    factors = _factors(gold_unit, answer_unit)
    reason: str | None = "different units"
    for factor in factors:
        if (reason := _scaled_difference(gold_body, answer_body, factor)) is None:
            return None
    if _is_angle(gold_unit) and answer_unit is None:
        return reason and _radian_difference(rf"({gold_body})\cdot\frac{{\pi}}{{180}}", answer_body)
    if _is_angle(answer_unit) and gold_unit is None:
        return reason and _radian_difference(gold_body, rf"({answer_body})\cdot\frac{{\pi}}{{180}}")
    return reason


def _factors(gold: Unit | None, answer: Unit | None) -> list[Fraction]:
    """What can take the answer to the gold's unit; none for units that contradict each other."""
    ratio = (answer.factor if answer else 1) / (gold.factor if gold else Fraction(1))
    if gold and answer and UNKNOWN not in (gold, answer):
        return [ratio] if gold.kind == answer.kind else []
    if _PERCENT in (gold, answer):
        return [Fraction(1), ratio]  # 50% is 0.5, and 50 where a percentage is asked for
    return [ratio] if "number" in [unit.kind for unit in (gold, answer) if unit] else [Fraction(1)]


def _scaled_difference(gold: str, answer: str, factor: Fraction) -> str | None:
    if factor == 1:
        return values.value_difference(gold, answer, difference)
    gold_number, number = read_number(gold), read_number(answer)
    if isinstance(gold_number, Fraction) and isinstance(number, Fraction):
        return None if gold_number == number * factor else DIFFERENT
    if not shape.is_scalar(answer):
        return DIFFERENT
    scaled = rf"\frac{{{factor.numerator}}}{{{factor.denominator}}}\cdot({answer})"
    return values.value_difference(gold, scaled, difference)


def _is_angle(unit: Unit | None) -> bool:
    return unit is not None and unit.kind == "angle"


def _radian_difference(gold: str, answer: str) -> str | None:
    """Degrees meet what is written with a pi, of which one side holds the factor pi/180."""
    if gold.count(r"\pi") == 0 or answer.count(r"\pi") == 0 or not (shape.is_scalar(gold) and shape.is_scalar(answer)):
        return DIFFERENT
    return values.value_difference(gold, answer, difference)
