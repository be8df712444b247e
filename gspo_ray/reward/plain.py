"""Numbers that need no algebra: integers of any size, decimals, fractions, mixed numbers. Exact; stdlib only."""

from __future__ import annotations

import re
from fractions import Fraction

Number = Fraction | str  # str: canonical digits of a number too long for int()

MAX_DIGITS = 4000  # int() refuses more than 4300
_MAX_EXPONENT = 1000

_WHOLE = r"[0-9]{1,3}(?:,[0-9]{3})+|[0-9]{1,3}(?: [0-9]{3})+|[0-9]+"
_DECIMAL = re.compile(
    rf"(?P<sign>[+-]?)\s*(?:(?P<whole>{_WHOLE})(?:\.(?P<part>[0-9]*))?|\.(?P<only>[0-9]+))"
    r"(?:\\overline\{(?P<repeated>[0-9]{1,50})\})?"
    r"(?:[eE](?P<e>[+-]?[0-9]{1,5})|\s*\\(?:times|cdot)\s*10\^(?:(?P<digit>[0-9])|\{\s*(?P<power>[+-]?[0-9]{1,5})\s*\}))?"
)
_FRACTION = re.compile(
    r"(?P<sign>[+-]?)\s*(?:(?P<whole>[0-9]+)\s*)?"
    r"(?:\\frac\{\s*(?P<top>[+-]?[0-9]+)\s*\}\{\s*(?P<bottom>[+-]?[0-9]+)\s*\}"
    r"|(?:(?<=[0-9])\s+|(?<![0-9\s])\s*|^)(?P<over>[0-9]+)\s*/\s*(?P<under>[0-9]+))"
)
_BRACKETED = re.compile(r"([+-]?)\s*\(([^()]*)\)")


def read_number(text: str) -> Number | None:
    """The value of tidied `text`; None for what is no such number, or is undefined.

    Commas and blanks group by three. A whole number before a proper fraction makes a mixed number.

    Example: read_number(r"-1\\frac{3}{4}") == Fraction(-7, 4)
    """
    bracketed = _BRACKETED.fullmatch(text)
    if bracketed:
        text = bracketed[1] + bracketed[2].strip()
    if decimal := _DECIMAL.fullmatch(text):
        return _decimal(decimal)
    if fraction := _FRACTION.fullmatch(text):
        return _fraction(fraction)
    return None


def _decimal(match: re.Match[str]) -> Number | None:
    whole = (match["whole"] or "0").replace(",", "").replace(" ", "").lstrip("0") or "0"
    part = match["part"] or match["only"] or ""
    exponent = int(match["e"] or match["digit"] or match["power"] or 0)
    if abs(exponent) > _MAX_EXPONENT or (match["repeated"] and match["part"] is None and match["only"] is None):
        return None
    negative = match["sign"] == "-"
    if len(whole) + len(part) > MAX_DIGITS:
        if exponent or match["repeated"]:
            return None
        digits = f"{whole}.{part}".rstrip("0").rstrip(".") if part else whole
        return f"-{digits}" if negative and digits != "0" else digits
    value = Fraction(int(whole + part), 10 ** len(part))
    if repeated := match["repeated"]:
        value += Fraction(int(repeated), (10 ** len(repeated) - 1) * 10 ** len(part))
    value *= Fraction(10) ** exponent
    return -value if negative else value


def _fraction(match: re.Match[str]) -> Number | None:
    top, bottom = match["top"] or match["over"], match["bottom"] or match["under"]
    if max(len(top), len(bottom), len(match["whole"] or "")) > MAX_DIGITS or not int(bottom):
        return None
    value = Fraction(int(top), int(bottom))
    if match["whole"]:
        whole = int(match["whole"])
        if top.isdigit() and bottom.isdigit() and value < 1:
            value += whole
        elif match["top"]:
            value *= whole  # 2\frac{3}{2} is a product
        else:
            return None
    return -value if match["sign"] == "-" else value
