"""Values are worked out by hand, or by Python's own Fraction and int."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gspo_ray.reward.plain import MAX_DIGITS, read_number


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("42", 42),
        ("+42", 42),
        ("- 42", -42),
        ("042", 42),
        ("0", 0),
        ("-0", 0),
        ("42.0", 42),
        ("42.", 42),
        (".5", Fraction(1, 2)),
        ("-0.25", Fraction(-1, 4)),
        ("1,080", 1080),
        ("1 000 000", 10**6),
        ("1,000.50", Fraction(2001, 2)),
        ("(42)", 42),
        ("-(1/3)", Fraction(-1, 3)),
        (r"\frac{1}{2}", Fraction(1, 2)),
        (r"-\frac{1}{2}", Fraction(-1, 2)),
        (r"\frac{-1}{2}", Fraction(-1, 2)),
        ("25 / 3", Fraction(25, 3)),
        ("12/3", 4),
        (r"2\frac{1}{2}", Fraction(5, 2)),
        ("2 1/2", Fraction(5, 2)),
        (r"-2\frac{1}{2}", Fraction(-5, 2)),
        (r"2\frac{3}{2}", 3),  # improper: a product
        ("1.5e3", 1500),
        ("1.5E-3", Fraction(3, 2000)),
        (r"1.5\times 10^{3}", 1500),
        (r"1.5 \cdot 10^3", 1500),
        (r"0.\overline{3}", Fraction(1, 3)),
        (r"0.1\overline{6}", Fraction(1, 6)),
        (r"0.\overline{142857}", Fraction(1, 7)),
    ],
)
def test_reads(text: str, value: Fraction | int) -> None:
    assert read_number(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "41 42",
        "1,22",
        "1,2345",
        "32, 349",
        "1/0",
        r"\frac{1}{0}",
        "2 3/2",
        "1/2/3",
        "1.2.3",
        "3!",
        "2^3",
        "--1",
        r"3\overline{3}",
        "1e99999",
        "1e1001",
        "5%",
        "1-2",
        "0x10",
    ],
)
def test_reads_nothing_else(text: str) -> None:
    assert read_number(text) is None


def test_numbers_too_long_for_int() -> None:
    digits = "7" * 200_000
    assert read_number(digits) == read_number("+0" + digits + ".0")
    assert read_number(digits) != read_number(digits[:-1] + "8")
    assert read_number("-" + digits) != read_number(digits)
    assert read_number("0" * 200_000) == read_number("-" + "0" * 200_000)
    assert read_number("9" * MAX_DIGITS) == int("9" * MAX_DIGITS)


@given(st.integers(), st.integers(1, 10**6))
def test_fractions_as_python_has_them(top: int, bottom: int) -> None:
    assert read_number(f"{top}/{bottom}" if top >= 0 else f"-{-top}/{bottom}") == Fraction(top, bottom)
    assert read_number(f"\\frac{{{top}}}{{{bottom}}}") == Fraction(top, bottom)


@given(st.decimals(allow_nan=False, allow_infinity=False, places=6, min_value=-(10**9), max_value=10**9))
def test_decimals_as_python_has_them(value: object) -> None:
    assert read_number(f"{value:f}") == Fraction(str(value))
