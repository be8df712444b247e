"""One spelling; expected values are written by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gspo_ray.reward.tidy import closing, tidy


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"$\dfrac12\text{ cm}.$", r"\frac{1}{2}\text{ cm}"),
        (r"\( \tfrac{1}{2} \)", r"\frac{1}{2}"),
        (r"\[x\]", "x"),
        ("**42**", "42"),
        ("$125$ miles", "125 miles"),
        ("$18", r"\$18"),
        (r"\left( 3, \frac{\pi}{2} \right)", r"( 3, \frac{\pi}{2} )"),
        (r"\bigl(1,2\bigr]", "(1,2]"),
        (r"10{,}000", "10,000"),
        (r"11,\! 111", "11,111"),
        (r"10\,000", "10 000"),
        (r"\frac9{19}", r"\frac{9}{19}"),
        (r"\frac{270}7", r"\frac{270}{7}"),
        (r"\frac 34", r"\frac{3}{4}"),
        ("\u22125", "-5"),
        ("\uff14\uff12", "42"),
        ("\u221a2", r"\sqrt 2"),
        ("x\u00b2", "x^{2}"),
        ("30\u00b0", r"30^\circ"),
        (r"30^{\circ}", r"30^\circ"),
        (r"x \leq 2", r"x \le 2"),
        (r"\{1,2\}", r"\{1,2\}"),
        (r"\lbrace 1 \rbrace", r"\{ 1 \}"),
        ("{1,2}", "1,2"),
        ("{1},{2}", r"1 , 2"),
        (r"\mathbf{42}", "42"),
        (r"\mathrm{cm}", r"\text{cm}"),
        (r"\mathrm{e}", "e"),
        (r"\text{42}", "42"),
        (r"\text{(C)}", r"\text{(C)}"),
        (r"\textbf{Yes}", r"\text{Yes}"),
        (r"\textcolor{red}{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\color{red}42", "42"),
        ("Answer: 42", "42"),
        (r"\text{The final answer is: } 42", "42"),
        (r"\text{Answer: 42}", "42"),
        (r"\therefore x = 2", "x = 2"),
        ("= 42", "42"),
        (r"42 \text{ and not } 41", "42"),
        ("42, but not 41", "42"),
        ("42.", "42"),
        ("4:30p..", "4:30p.."),  # two marks are not one
        (r"\\frac{1}{2}", r"\frac{1}{2}"),  # escaped twice
        (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}"),
        (r"41\\ 42", r"41\\ 42"),
        ("3!", "3!"),
        ("\u200b42\u00a0", "42"),
        ("2pi", r"2\pi"),
        ("sqrt(2)", r"\sqrt{2}"),
        (r"(1,+\infty)", r"(1,\infty)"),
    ],
)
def test_one_spelling(text: str, expected: str) -> None:
    assert tidy(text) == expected


@pytest.mark.parametrize(
    "text", ["42", r"\frac{1}{2}", r"\text{does not exist}", "x = 5", "(1,2]", r"2\sqrt{3}", "f(x)"]
)
def test_what_is_tidy_stays(text: str) -> None:
    assert tidy(text) == text


@given(st.text(alphabet=r"\{}$()[]text,.:=-+^_ \frac sqrt 0159abAnswer%°²√" + "\n\0", max_size=60))
def test_any_text_is_taken_and_once_is_enough(text: str) -> None:
    assert isinstance(tidy(text), str)


@pytest.mark.parametrize(("text", "index"), [("{}", 1), ("{a{b}c}", 6), (r"{\}}", 3), ("{", -1), ("{{}", -1)])
def test_closing(text: str, index: int) -> None:
    assert closing(text, 0) == index
