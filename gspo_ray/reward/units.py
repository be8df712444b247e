"""Units: cut off an answer, compared when both sides name one that is known, else dropped. Standard library only.

Known units of one kind are converted (18 km is 18000 m), of two kinds they contradict (18 km is not 18 kg). A word that
is no known unit ("apples") says what is counted and is dropped. Percent and "million" are units of pure numbers.
"""

from __future__ import annotations

import re
from collections import Counter
from fractions import Fraction
from string import ascii_lowercase
from typing import NamedTuple

from gspo_ray.reward.plain import read_number


class Unit(NamedTuple):
    kind: str  # "length", "length^2", "length/time", "number" ...; "" for a word that is not in the table
    factor: Fraction  # its size in the base unit of the kind


UNKNOWN = Unit("", Fraction(1))

_TABLE = {  # kind -> size in its base unit -> names in the singular
    "length": {
        "1": "m meter metre", "1/1000": "mm millimeter millimetre", "1/100": "cm centimeter centimetre",
        "1/10": "dm decimeter decimetre", "1000": "km kilometer kilometre", "127/5000": "in inch",
        "381/1250": "ft foot feet", "1143/1250": "yd yard", "201168/125": "mi mile",
    },
    "length^3": {
        "1/1000": "l liter litre", "1/1000000": "ml milliliter millilitre cc", "473176473/125000000000": "gal gallon",
        "473176473/500000000000": "qt quart", "473176473/1000000000000": "pint", "473176473/2000000000000": "cup",
    },
    "mass": {
        "1": "g gram gramme", "1/1000": "mg milligram", "1000": "kg kilogram kilo", "45359237/100000": "lb pound",
        "45359237/1600000": "oz ounce", "1000000": "tonne",
    },
    "time": {"1": "s sec second", "60": "min minute", "3600": "h hr hour", "86400": "day", "604800": "week"},
    "calendar": {"1": "month", "12": "yr year"},
    "angle": {"1": "deg degree"},
    "celsius": {"1": "celsius"},
    "fahrenheit": {"1": "fahrenheit"},
    "dollar": {"1": "dollar usd buck", "1/100": "cent penny pennie"},
    "euro": {"1": "euro eur"},
    "sterling": {"1": "gbp"},
    "yen": {"1": "yen"},
    "rupee": {"1": "rupee"},
    "number": {
        "1/100": "percent pct percentage", "12": "dozen", "100": "hundred", "1000": "thousand", "1000000": "million",
        "1000000000": "billion", "1000000000000": "trillion",
    },
}  # fmt: skip
_NAMES = {
    name: Unit(kind, Fraction(size))
    for kind, sizes in _TABLE.items()
    for size, names in sizes.items()
    for name in names.split()
}
_SHORT = {"mph": "mile/hour", "kph": "km/hour", "kmh": "km/hour", "kmph": "km/hour", "per cent": "percent"}
_SYMBOLS = {r"\$": "dollar", "£": "gbp", "€": "euro", "¥": "yen", "₹": "rupee", "US\\$": "dollar", "USD": "dollar"}
_NO_SPACE = re.compile("[cmk]m|[km]g|ml|ft|lb|hr|mph")  # 3cm; but 3in may be a product
_NOT_UNITS = re.compile(
    "(?:and|or|not|is|are|if|for|mod|modulo|no|with|where|when|none|to|pi|inf|infty|infinity|lim|max|gcd|lcm|det|ln|log|exp"
    "|sqrt|sin|cos|tan|cot|csc|arcsin|arccos|arctan)"
)

_NEVER_COUNTED = re.compile(  # 42 squared, 42 at most and 42 minus one are not 42 of something
    "squared|cubed|factorial|most|least|minus|plus|divided|approximately|about|maybe|perhaps|but|except|wrong|false|incorrect"
)
_COUNTED_LAST = re.compile("times|more|less|over|half|twice")  # 3 times, but not 3 times two
_MAX_WORDS = 6  # "plates of steak"; a longer one is a sentence

_CURRENCY = re.compile(r"\s*(?P<sign>[+-]?)\s*(?P<symbol>(?:US)?\\\$|[£€¥₹]|USD(?=[\s0-9]))\s*")
_CURRENCY_AFTER = re.compile(r"\s*(\\\$|[£€¥₹])$")
_PERCENT = re.compile(r"\s*\\?%$")
_DEGREES = re.compile(r"\s*\^\\circ\s*(?:\\text\{\s*)?(?P<scale>[CF]?)\}?$")
_TEXT = re.compile(r"\s*\\text\{(?P<phrase>[^{}]*)\}\s*(?:\^\s*\{?(?P<power>[0-9])\}?)?$")
_NOTE = re.compile(r"\s*\((?P<phrase>[A-Za-z][A-Za-z .'/-]*)\)$")
_BARE = re.compile(r"(?<=[0-9})])(?P<space>\s*)(?P<phrase>[A-Za-z][A-Za-z .'/-]*)(?:\^\s*\{?(?P<power>[0-9])\}?)?$")
_COMMAND = re.compile(r"\\[A-Za-z]+")
_POWER_WORDS = {"square": 2, "sq": 2, "squared": 2, "cubic": 3, "cu": 3, "cubed": 3}


def split_unit(text: str, *, letters: bool = False) -> tuple[str, Unit | None]:
    """Tidied `text` without its unit, and the unit. `letters`: read a bare single letter as one too (18 m).

    Example: split_unit(r"12 \\text{ cm}^2") == ("12", Unit("length^2", Fraction(1, 10000)))
    """
    if currency := _CURRENCY.match(text):
        body, rest = _cut(text[currency.end() :], letters=False)
        phrase = _SYMBOLS[currency["symbol"]]
        if rest.startswith(("per ", "/")):
            phrase = f"{phrase} {rest}"
        return currency["sign"] + body, _unit(phrase)
    body, phrase = _cut(text, letters)
    return (body, _unit(phrase)) if phrase else (text, None)


def is_numeric(text: str) -> bool:
    """No variables: digits, operators and commands alone."""
    return bool(text) and not re.search("[A-Za-z]", _COMMAND.sub("", text))


def _cut(text: str, letters: bool) -> tuple[str, str]:
    """(what stands before the unit, the unit in words, "" when there is none)."""
    if currency := _CURRENCY_AFTER.search(text):
        return text[: currency.start()].strip(), _SYMBOLS[currency[1]]
    if percent := _PERCENT.search(text):
        return text[: percent.start()].strip(), "percent"
    if degrees := _DEGREES.search(text):
        return text[: degrees.start()].strip(), {"C": "celsius", "F": "fahrenheit", "": "degree"}[degrees["scale"]]
    for pattern in (_TEXT, _NOTE, _BARE):
        match = pattern.search(text)
        if match is None or not (body := text[: match.start()].strip()):
            continue
        phrase = " ".join(re.sub("[.()]", " ", match["phrase"].lower()).split())
        if re.search("[0-9]", phrase):
            continue
        if power := match.groupdict().get("power"):
            phrase += f" ^{power}"
        if pattern is _NOTE and read_number(body) is None:  # \\sin (x)
            continue
        if _is_unit(phrase, body, match["space"] if pattern is _BARE else None, letters):
            return body, phrase
    return text, ""


def _is_unit(phrase: str, body: str, space: str | None, letters: bool) -> bool:
    """`space`: what stood before a bare word; None for a word in \\text{} or in brackets."""
    words = phrase.split()
    if not words or len(words) > _MAX_WORDS or any(map(_NOT_UNITS.fullmatch, words)) or body in ("(", "[", "{"):
        return False
    known = _unit(phrase) != UNKNOWN
    if not known and (any(map(_NEVER_COUNTED.fullmatch, words)) or any(map(_COUNTED_LAST.fullmatch, words[:-1]))):
        return False
    if space is None:
        return known or is_numeric(body)
    if len(words[0]) == 1:
        return known and bool(space) and letters
    if known:
        return bool(space) or len(words[0]) > 2 or bool(_NO_SPACE.fullmatch(words[0]))
    is_word = len(words[0]) > 2 and bool(re.search("[aeiouy]", words[0])) and words[0] not in ascii_lowercase  # abc
    return bool(space) and is_numeric(body) and is_word


def _unit(phrase: str) -> Unit:
    """ "square cm", "km/h", "miles per hour", "m ^2". UNKNOWN when a part of it is."""
    for short, long in _SHORT.items():
        phrase = re.sub(rf"(?<![a-z]){short}(?![a-z])", long, phrase)
    powers: Counter[str] = Counter()
    factor = Fraction(1)
    for place, part in enumerate(re.split(r"\s*/\s*|\s*\bper\b\s*", phrase)):
        power, names = -1 if place else 1, []
        for word in part.split():
            if word in _POWER_WORDS:
                power *= _POWER_WORDS[word]
            elif word.startswith("^"):
                power *= int(word[1:])
            else:
                names.append(word)
        base = _known(" ".join(names))
        if base is None:
            return UNKNOWN
        kind, _, exponent = base.kind.partition("^")
        powers[kind] += power * int(exponent or 1)
        factor *= base.factor**power
    return Unit(_kind(powers), factor)


def _kind(powers: Counter[str]) -> str:
    above, below = (
        "*".join(f"{kind}^{sign * power}" if sign * power > 1 else kind for kind, power in sorted(powers.items())
                 if sign * power > 0)
        for sign in (1, -1)
    )  # fmt: skip
    return f"{above}/{below}" if below else above


def _known(name: str) -> Unit | None:
    for singular in (name, name.removesuffix("s"), name.removesuffix("es")):
        if singular in _NAMES:
            return _NAMES[singular]
    return None
