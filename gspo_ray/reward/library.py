"""The only file that talks to math-verify 0.9.0: its LaTeX parser and its grader, for one pair of expressions.

Three settings of its parser are not used, because they make different things equal: it drops what looks like a unit
(4t is 4), ignores case (R - r is 0), and reads a number beside a number as a sum (41 42 is 83, 6(7) is 13). Its SIGALRM
timeouts are off: they work only in a main thread, and not during one long C call.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import sympy  # type: ignore[import-untyped]
from antlr4 import PredictionMode  # type: ignore[import-untyped]
from latex2sympy2_extended.latex2sympy2 import ConversionConfig, NormalizationConfig, _Latex2Sympy, normalize_latex
from latex2sympy2_extended.logic import And
from math_verify import parse as parse_text
from math_verify import verify
from math_verify.grader import should_treat_as_complex
from sympy import Eq, Expr, Float, Ne, Rational, Set, Symbol
from sympy.logic.boolalg import BooleanAtom  # type: ignore[import-untyped]

_NORMALIZATION = NormalizationConfig(
    basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="none", equations=False
)
_CONVERSION = ConversionConfig(lowercase_symbols=False)
_SIDE_BY_SIDE = re.compile(r"[0-9]\s+[0-9]")
_PRODUCT = re.compile(r"(?<![\w^\\{.])([0-9]+(?:\.[0-9]+)?)\s*(?=\()|(\))\s*(?=[(0-9]|\\frac)")
_CAPITAL, _LETTER, _COMMAND = re.compile("[A-Z]"), re.compile("[A-Za-z]"), re.compile(r"\\[A-Za-z]+")
_DOTS = re.compile(r"\\[lc]?dots[cbm]?(?![A-Za-z])")
_GCD = re.compile(r"\\(?:gcd|lcm)(?![A-Za-z])")


class UnreadableError(ValueError):
    """No mathematics that the parser knows."""


class UngradableError(UnreadableError):
    """A gold answer that is none: empty, a placeholder, undefined."""


def bare_verdict(completion: str, gold: str) -> bool:
    """What math-verify says by itself, with its defaults: to compare with. Main thread only (SIGALRM)."""
    return bool(verify(parse_text(f"\\boxed{{{gold}}}"), parse_text(completion)))


def parse_pair(gold: str, answer: str) -> tuple[Any, Any]:
    """Both as sympy objects, None for an answer that cannot be read. Raises UnreadableError for such a gold."""
    real = not (should_treat_as_complex(gold) or should_treat_as_complex(answer))  # or x is not x
    left = parse(gold, real)
    try:
        return left, parse(answer, real)
    except UnreadableError:
        return left, None


@lru_cache(maxsize=64)  # one gold serves a whole group
def parse(latex: str, real: bool) -> Any:
    """Tidied LaTeX as a sympy object; `real`: its variables are real numbers. Decimals stay exact.

    Raises UnreadableError; MemoryError and RecursionError pass.
    """
    if _SIDE_BY_SIDE.search(latex):
        raise UnreadableError("two numbers side by side")
    if _DOTS.search(latex):
        raise UnreadableError("dots")  # the parser drops them
    if _GCD.search(latex) and _LETTER.search(_COMMAND.sub("", latex)):
        raise UnreadableError("the gcd of variables")  # of polynomials, for sympy: gcd(n, p-1) would be 1
    try:
        latex = normalize_latex(_PRODUCT.sub(lambda match: (match[1] or match[2]) + r"\cdot ", latex), _NORMALIZATION)
        return _exact(_convert(latex, real))
    except (MemoryError, RecursionError):
        raise
    except Exception as error:  # its listeners raise bare Exception, its conversions anything
        raise UnreadableError("not readable as LaTeX") from error


def parse_gold(latex: str) -> Any:
    """Raises UngradableError for what is undefined."""
    expression = parse(latex, not should_treat_as_complex(latex))
    if is_undefined(expression):
        raise UngradableError("undefined")
    return expression


def equal(gold: Any, answer: Any) -> bool:
    """Gold first: the grader's rules are not symmetric."""
    if is_undefined(gold) or is_undefined(answer):
        return False
    if isinstance(gold, Eq | Ne) and type(gold) is type(answer):
        if not all(_is_scalar(side) for side in (*gold.args, *answer.args)):
            return gold.lhs == answer.lhs and equal(gold.rhs, answer.rhs)
        if _proportional(gold, answer):
            return True
        # For "not equal" the grader has no rule; without a solution on either side it sees no difference.
        if isinstance(gold, Ne) or not _has_solution(gold):
            return False
    # Lists: verify() takes anything else for one expression and calls it different from all others.
    same = verify([gold], [answer], allow_set_relation_comp=True, timeout_seconds=None, raise_on_error=True)
    if not same and isinstance(gold, And) and isinstance(answer, And) and len(gold.free_symbols) == 1:
        return gold.free_symbols == answer.free_symbols and same_region([gold], [answer])  # 3 > x > 1, 1 < x < 3
    return bool(same) and not _differ_a_little(gold, answer)


def _proportional(gold: Any, answer: Any) -> bool:
    """34x + 45y = 2 and -68x - 90y = -4."""
    ratio = sympy.simplify((gold.lhs - gold.rhs) / (answer.lhs - answer.rhs))
    return bool(ratio.is_number and ratio.is_finite and not ratio.is_zero)


def _has_solution(equation: Any) -> bool:
    try:
        return bool(sympy.solve(equation, *equation.free_symbols))
    except NotImplementedError:
        return False


def _is_scalar(side: Any) -> bool:
    return isinstance(side, Expr) and not side.is_Matrix


def _differ_a_little(gold: Any, answer: Any) -> bool:
    """The grader takes 1 - 2^{-100} for 1 - 3^{-100}: it compares constants to 15 places after the point."""
    if not (isinstance(gold, Expr) and isinstance(answer, Expr)) or gold == answer:
        return False
    difference = gold - answer
    if difference.free_symbols:
        return False
    parts = difference.evalf(15).as_real_imag()
    # Precision 1 is sympy's way to say that it found no digit of what may be zero.
    return any(isinstance(part, Float) and part != 0 and part._prec > 1 for part in parts)


def same_region(gold: Sequence[Any], answer: Sequence[Any]) -> bool:
    """Do both lists of inequalities and sets describe one subset of the real line?"""
    try:
        left, right = (
            sympy.Union(*(item.as_set() if isinstance(item, And | sympy.Rel) else item for item in items))
            for items in (gold, answer)
        )
    except NotImplementedError:
        return False
    return isinstance(left, Set) and isinstance(right, Set) and bool(left.symmetric_difference(right).is_empty)


def rounds_to(exact: str, decimal: str) -> bool:
    """Is `decimal`, digits with a point, what `exact` is when rounded to as many places?"""
    places = len(decimal.partition(".")[2])
    value = parse(exact, True).evalf(places + 20)
    return bool(value.is_Number and Rational(str(value.round(places))) == Rational(decimal))


def is_undefined(expression: Any) -> bool:
    """1/0 and the like, and relations without a variable, which are just true or false."""
    return isinstance(expression, BooleanAtom) or bool(expression.has(sympy.zoo, sympy.nan))


class _Converter(_Latex2Sympy):
    """The library's parser in one of ANTLR's two modes."""

    mode = PredictionMode.LL

    def create_parser(self, latex_str: str) -> Any:
        parser = super().create_parser(latex_str)
        parser._interp.predictionMode = self.mode
        return parser


def _convert(latex: str, real: bool) -> Any:
    """SLL is five times as fast as LL, and gives the same tree or a syntax error."""
    converter = _Converter(is_real=real or None, config=_CONVERSION)
    converter.mode = PredictionMode.SLL
    try:
        return converter.parse(latex)
    except (MemoryError, RecursionError):
        raise
    except Exception:
        converter.mode = PredictionMode.LL
        return converter.parse(latex)


def _exact(expression: Any) -> Any:
    """Floats as the decimals that were written, capitals marked (the grader compares L_1 with l_1, and E with e, as
    equal), and i as the imaginary unit unless it is an index."""
    if isinstance(expression, And):  # in their order, which the grader compares
        return And(*map(_exact, expression._unsorted_args))
    if isinstance(expression, sympy.Rel):  # unevaluated: R = 2i is False for a real R, and so is R = 3i
        return expression.func(_exact(expression.lhs), _exact(expression.rhs), evaluate=False)
    changes: dict[Any, Any] = {number: Rational(str(number)) for number in expression.atoms(Float)}
    for symbol in expression.free_symbols:
        if (marked := _CAPITAL.sub(r"\g<0>'", symbol.name)) != symbol.name:
            changes[symbol] = Symbol(marked, real=symbol.is_real)
    if not expression.has(sympy.Sum, sympy.Product, sympy.Integral):
        changes |= {symbol: sympy.I for symbol in expression.free_symbols if symbol.name == "i"}
    return expression.xreplace(changes) if changes else expression
