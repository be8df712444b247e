"""Is the boxed answer of a completion the gold answer? Pure, one process, no time limit of its own.

math-verify 0.9.0 decides, with its SIGALRM timeouts off (they work only in a main thread, and not during one long C
call): the hard limit comes from `pool.VerifierProcess`. Two rules stand round it: plain integers are compared
exactly, and an equation must be true of the gold on every side (the library looks at the last side only).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NamedTuple

from math_verify import LatexExtractionConfig, parse, verify
from math_verify.parser import parse_latex_cached

from gspo_ray.reward.extract import last_boxed
from gspo_ray.types import Outcome

# The box as a whole or nothing: the default config goes on to search a box that it cannot parse for any number.
_BOX_ONLY = LatexExtractionConfig(boxed_match_priority=0, try_extract_without_anchor=False)

_INTEGER = re.compile(r"([+\-\u2212]?)\s*([0-9]{1,3}(?:(?:,|\{,\})[0-9]{3})+|[0-9]+)")
_EQUALS = re.compile(r"(?<![\\<>!:=])=(?!=)")
_SEPARATOR = re.compile(r"[,;]|\\text\{[\s,]*(?:and|or)\s*\}|\b(?:and|or)\b|(?P<open>\\?[({\[])|(?P<close>\\?[)}\]])")
_CALL_OR_INDEX = re.compile(r"(?<=[A-Za-z}])\s*\([^()]*\)|_\{[^{}]*\}|_\w")
_ARITHMETIC = re.compile(
    r"[-+*/^<>!\u2212\d]|\\(?:[dt]?frac|[dt]?binom|sqrt|cdot|times|div|pm|mp|sum|prod|int|leq?|geq?|neq?)(?![A-Za-z])"
)


class Judgement(NamedTuple):
    outcome: Outcome
    extracted: str | None  # content of the last box, None when there is no answer
    reason: str = ""  # why the outcome is ERROR


def judge(completion: str, gold: str) -> Judgement:
    """Compare the last box of `completion` (generated text only, never the prompt) with `gold` (bare LaTeX).

    Never raises for a hard input: an exception, or a gold that math-verify cannot read, is Outcome.ERROR with its
    reason. May run for ever and take any amount of memory, as sympy does: call it in a process that can be killed.

    Example: judge(r"so \\boxed{0.5}", r"\\frac{1}{2}").outcome is Outcome.CORRECT
    """
    answer = last_boxed(completion)
    if answer is None:
        return Judgement(Outcome.NO_ANSWER, None)
    try:
        return Judgement(Outcome.CORRECT if _matches(gold.strip(), answer) else Outcome.WRONG, answer)
    except Exception as error:
        return Judgement(Outcome.ERROR, answer, f"{type(error).__name__}: {str(error)[:300]}")


def _matches(gold: str, answer: str) -> bool:
    gold_integer, answer_integer = _integer(gold), _integer(answer)
    if gold_integer is not None and answer_integer is not None:
        return gold_integer == answer_integer
    if gold == answer:
        return True
    if not _parse_gold(gold):
        raise ValueError(f"math-verify cannot read the gold answer {gold[:100]!r}")
    if "=" in gold or not _EQUALS.search(answer):
        return _equal(gold, answer)
    return _equations_match(gold, answer)


def _integer(text: str) -> str | None:
    """Canonical digits of a plain integer, None for anything else. Text, as int() refuses more than 4300 digits."""
    bare = text.strip()
    for dollar in (r"\$", "$"):
        bare = bare.removeprefix(dollar).removesuffix(dollar).strip()
    match = _INTEGER.fullmatch(bare)
    if match is None:
        return None
    digits = match[2].replace("{,}", "").replace(",", "").lstrip("0") or "0"
    return "-" + digits if match[1] in ("-", "\u2212") and digits != "0" else digits


def _equations_match(gold: str, answer: str) -> bool:
    """For a gold without '=': the answers `x = 42` and `6 \\cdot 7 = 42` are 42; `41 = 42` and `a+b = 42` are not."""
    parts = _split_top(answer)
    sides_of_parts = [_EQUALS.split(part) for part in parts]
    if len(parts) > 1:  # x=5, y=6
        named = all(len(sides) == 1 or (len(sides) == 2 and _is_name(sides[0])) for sides in sides_of_parts)
        return named and _equal(gold, answer)
    sides = sides_of_parts[0]
    return all(_equal(gold, side) for side in (sides[1:] if _is_name(sides[0]) else sides))


def _split_top(text: str) -> list[str]:
    """Split at commas, semicolons, 'and', 'or' that stand outside all brackets."""
    parts, start, depth = [], 0, 0
    for token in _SEPARATOR.finditer(text):
        if token["open"]:
            depth += 1
        elif token["close"]:
            depth -= 1
        elif depth == 0:
            parts.append(text[start : token.start()])
            start = token.end()
    return [*parts, text[start:]]


def _is_name(side: str) -> bool:
    """What a value can be given to: x, x_1, f(2), (x,y), \\angle ABC, \\text{Area}; no arithmetic."""
    bare = _CALL_OR_INDEX.sub("", side)
    return not _ARITHMETIC.search(bare) and bool(re.search("[A-Za-z]", bare))


def _equal(gold: str, answer: str) -> bool:
    """math-verify's comparison. Gold first: its rules are not symmetric."""
    parsed = _parse(answer)
    if parsed and all(isinstance(item, str) for item in parsed):
        _raise_if_exhausted(parsed[0])
    # A list, not a tuple: verify() takes anything else for one expression and calls it different from all others.
    return bool(verify(list(_parse_gold(gold)), parsed, timeout_seconds=None, raise_on_error=True))


def _parse(latex: str) -> list[Any]:
    """[sympy object, normalised text], or [normalised text] when it cannot be read, or []. Bare LaTeX needs the box."""
    parsed: list[Any] = parse(
        f"\\boxed{{{latex}}}",
        extraction_config=[_BOX_ONLY],
        extraction_mode="first_match",
        parsing_timeout=None,
        raise_on_error=True,
    )
    return parsed


@lru_cache(maxsize=64)  # one gold serves a whole group
def _parse_gold(gold: str) -> tuple[Any, ...]:
    """() for a gold that cannot be read."""
    parsed = _parse(gold)
    return () if all(isinstance(item, str) for item in parsed) else tuple(parsed)


def _raise_if_exhausted(latex: str) -> None:
    """The library reports running out of memory or stack as an answer that cannot be read; parse again to tell."""
    try:
        parse_latex_cached(latex)
    except (MemoryError, RecursionError):
        raise
    except Exception:
        return  # no mathematics: simply a wrong answer
