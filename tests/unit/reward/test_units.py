"""Units cut off; sizes are the definitions (inch 2.54 cm, mile 1609.344 m, pound 453.59237 g)."""

from fractions import Fraction

import pytest

from gspo_ray.reward.units import UNKNOWN, Unit, split_unit


def unit(kind: str, size: str | int | Fraction) -> Unit:
    return Unit(kind, Fraction(size))


@pytest.mark.parametrize(
    ("text", "body", "expected"),
    [
        (r"18 \text{ km}", "18", unit("length", 1000)),
        ("18 km", "18", unit("length", 1000)),
        ("18km", "18", unit("length", 1000)),
        (r"18 \text{ inches}", "18", unit("length", "0.0254")),
        (r"18 \text{ Meters}", "18", unit("length", 1)),
        (r"12 \text{ cm}^2", "12", unit("length^2", "1/10000")),
        (r"12 \text{ cm}^{3}", "12", unit("length^3", "1/1000000")),
        ("12 cm^2", "12", unit("length^2", "1/10000")),
        (r"12 \text{ square feet}", "12", unit("length^2", "0.09290304")),
        (r"12 \text{ sq. ft.}", "12", unit("length^2", "0.09290304")),
        (r"12 \text{ cubic meters}", "12", unit("length^3", 1)),
        (r"2 \text{ liters}", "2", unit("length^3", "1/1000")),
        (r"60 \text{ km/h}", "60", unit("length/time", Fraction(1000, 3600))),
        ("60 mph", "60", unit("length/time", Fraction("1609.344") / 3600)),
        (r"60 \text{ miles per hour}", "60", unit("length/time", Fraction("1609.344") / 3600)),
        (r"9.8 \text{ m/s}^2", "9.8", unit("length/time^2", 1)),
        (r"\$18.90", "18.90", unit("dollar", 1)),
        (r"-\$5", "-5", unit("dollar", 1)),
        ("1,000.99€", "1,000.99", unit("euro", 1)),
        (r"\$15 \text{ per hour}", "15", unit("dollar/time", Fraction(1, 3600))),
        (r"18 \text{ dollars}", "18", unit("dollar", 1)),
        (r"50 \text{ cents}", "50", unit("dollar", "1/100")),
        (r"50\%", "50", unit("number", "1/100")),
        ("50 percent", "50", unit("number", "1/100")),
        (r"5 \text{ million}", "5", unit("number", 10**6)),
        (r"90^\circ", "90", unit("angle", 1)),
        (r"20^\circ\text{C}", "20", unit("celsius", 1)),
        (r"\frac{1}{2} \text{ pounds}", r"\frac{1}{2}", unit("mass", "453.59237")),
        ("9 (apples)", "9", UNKNOWN),
        ("150 (g)", "150", unit("mass", 1)),
        ("42 apples", "42", UNKNOWN),
        (r"3 \text{ times}", "3", UNKNOWN),
        (r"4\pi \text{ apples}", r"4\pi", UNKNOWN),
        (r"x \text{ cm}", "x", unit("length", "1/100")),
    ],
)
def test_cut_off(text: str, body: str, expected: Unit) -> None:
    assert split_unit(text) == (body, expected)


@pytest.mark.parametrize(
    "text",
    [
        "42",
        "x",
        "4t",
        "5m",
        "5 m",
        "3ab",
        "2xy",
        "3 abc",
        r"\sin(x)",
        r"2\sin (x)",
        r"\sec^2(y)",
        "2 sin",
        "5 mod",
        "cm",
        r"\text{cm}",
        r"n \text{ is even}",
        r"x \text{ apples}",
        r"5 \text{ or }",
        "3in",
        r"42 \text{ squared}",
        r"42 \text{ times two}",
        r"42 \text{ (approximately)}",
        r"42 \text{ perhaps 41}",
        "7 " + "very " * 9 + "long",
    ],
)
def test_no_unit(text: str) -> None:
    assert split_unit(text) == (text, None)


def test_a_single_letter_when_allowed() -> None:
    assert split_unit("18 m", letters=True) == ("18", unit("length", 1))
    assert split_unit("18m", letters=True) == ("18m", None)
    assert split_unit("18 x", letters=True) == ("18 x", None)
