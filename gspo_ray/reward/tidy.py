"""One spelling for an answer: Unicode, LaTeX decoration, sloppy phrases. Standard library only.

`tidy` changes how an answer is written and never what it says; what it cannot place it leaves alone. Everything that
reads an answer (numbers, units, words, shapes, math-verify) gets tidied text.
"""

from __future__ import annotations

import re

_SIGNS = {
    0xD7: r"\times", 0xB7: r"\cdot", 0x22C5: r"\cdot", 0xF7: r"\div", 0xB1: r"\pm", 0x2213: r"\mp",
    0x2264: r"\le", 0x2265: r"\ge", 0x2260: r"\ne", 0x2248: r"\approx", 0x221E: r"\infty", 0x221A: r"\sqrt",
    0x222A: r"\cup", 0x2229: r"\cap", 0x2208: r"\in", 0x2205: r"\emptyset",
    0x211D: r"\mathbb{R}", 0x2124: r"\mathbb{Z}", 0x2115: r"\mathbb{N}",
    0x3C0: r"\pi", 0x3B8: r"\theta", 0x3B1: r"\alpha", 0x3B2: r"\beta", 0x3BB: r"\lambda",
    0xBD: r"\frac{1}{2}", 0xBC: r"\frac{1}{4}", 0xBE: r"\frac{3}{4}", 0x2153: r"\frac{1}{3}", 0x2154: r"\frac{2}{3}",
}  # fmt: skip
_CHARACTERS = {
    **{code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)},  # full-width forms
    **dict.fromkeys([0x2212, 0x2010, 0x2011, 0x2012, 0x2013, 0xFE63], "-"),  # minus, hyphens, en dash
    **dict.fromkeys([0xA0, 0x2009, 0x202F, 0x2003, 0x3000], " "),  # spaces that separate
    **dict.fromkeys([0x200B, 0x2060, 0xFEFF, 0xAD]),  # ... and such that do not show
    **{code: f" {latex} " for code, latex in _SIGNS.items()},
    0xB0: r"^\circ",
    0x2019: "'",
}
_SUPERSCRIPT = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+")

_Rules = tuple[tuple[re.Pattern[str], str], ...]


def _rules(*pairs: tuple[str, str]) -> _Rules:
    return tuple((re.compile(pattern), replacement) for pattern, replacement in pairs)


_DECORATION = _rules(
    (r"\\(?:display|text|script)style(?![A-Za-z])|\\(?:no)?limits(?![A-Za-z])|\\rm(?![A-Za-z])", " "),
    (r"\\(?:left|right|middle)\s*\.", ""),
    (r"\\(?:left|right|middle|[bB]igg?[lrm]?)(?![A-Za-z])", ""),
    (r"\\!\s*|\\phantom\{[^{}]*\}", ""),
    (r"(?<!\\)\\[,;:> ]|~|\\q?quad|\\hspace\*?\{[^{}]*\}|[\t\n\r]", " "),
    (r"\\color\{[^{}]*\}|\\color(?=\s*\{)", ""),
    (r"\\textcolor\s*\{[^{}]*\}", r"\\text"),
    (r"\\[dtc]frac(?![A-Za-z])", r"\\frac"),
    (r"\{,\}", ","),
    (r"\\leq(?:slant)?(?![A-Za-z])", r"\\le"),
    (r"\\geq(?:slant)?(?![A-Za-z])", r"\\ge"),
    (r"\\neq(?![A-Za-z])", r"\\ne"),
    (r"\\lt(?![A-Za-z])", "<"),
    (r"\\gt(?![A-Za-z])", ">"),
    (r"\\(?:simeq|doteq|approxeq)(?![A-Za-z])", r"\\approx"),
    (r"\\lbrace(?![A-Za-z])", r"\\{"),
    (r"\\rbrace(?![A-Za-z])", r"\\}"),
    (r"\\langle(?![A-Za-z])", "("),  # a vector is a tuple
    (r"\\rangle(?![A-Za-z])", ")"),
    (r"\\varnothing(?![A-Za-z])", r"\\emptyset"),
    (r"\\colon(?![A-Za-z])", ":"),
    (r"\\(?:pounds|textsterling)(?![A-Za-z])", "£"),
    (r"\\(?:euro|texteuro)(?![A-Za-z])", "€"),
    (r"\\degree(?![A-Za-z])|\{\s*\^\s*\\circ\s*\}|\^\s*\{\s*\\circ\s*\}|\^\s*\\circ", r"^\\circ"),
    (r"\+\s*\\infty", r"\\infty"),
    (r"(?<![A-Za-z\\])pi(?![A-Za-z])", r"\\pi "),
    (r"(?<![A-Za-z\\])sqrt(?=\s*[({])|\\sqrt(?=\s*\()", r"\\sqrt"),
    (r"\\sqrt\s*\(([^()]*)\)", r"\\sqrt{\1}"),
    (r"\\frac\s*([0-9])\s*([0-9])", r"\\frac{\1}{\2}"),
    (r"\\frac\s*([0-9])\s*\{", r"\\frac{\1}{"),
    (r"\\frac\s*\{([^{}]*)\}\s*([0-9])", r"\\frac{\1}{\2}"),
    (r"(\\[A-Za-z]+|[}\]^_])\s+(?=\{)", r"\1"),
)
_DOUBLED = re.compile(r"\\\\(?=[A-Za-z])")
_SUPERSCRIPTS = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺]+")
_DELIMITERS = (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"), ("**", "**"), ("`", "`"))
_DOLLAR = re.compile(r"(?<!\\)\$")
_WRAPPER = re.compile(
    r"\\(text(?:bf|it|rm|normal|sf|tt|up)?|[mh]box|math(?:rm|bf|it|sf|tt|normal)|boldsymbol|bm|operatorname)\s*\{"
)
_MATHEMATICAL = re.compile(
    r"\s*\(?[+-]?\s*[$£€\\]*\s*[0-9.]|.*\\[A-Za-z]"
)  # what stands in \text{42}, \mathbf{\frac12}
_LEAD_IN = re.compile(
    r"(?:\\text\{)?\s*(?:(?:so|thus|hence|therefore),?\s+)?(?:the\s+)?(?:final\s+|correct\s+)?"
    r"(?:answer|result|solution)\s*(?:is\b\s*:?|:|=)\s*(?P<brace>\})?|\\(?:therefore|[Rr]ightarrow|implies)(?![A-Za-z])|=",
    re.IGNORECASE,
)
_AND_NOT = re.compile(r"(?<=[\w})])[\s,]*(?:\\text\{\s*(?:and|but) not\s*\}|\b(?:and|but) not\b).*", re.DOTALL)
_TRAILING_MARK = re.compile(r"(?<![.,;:\\\s])\s*[.,;:]\s*$")
_LONE_GROUP = re.compile(r"(?<![A-Za-z}\]^_\\])\{([0-9]+)\}")


def tidy(text: str) -> str:
    """The same answer in one spelling.

    Example: tidy(r"$\\dfrac12\\text{ cm}.$") == r"\\frac{1}{2}\\text{ cm}"
    """
    text = _SUPERSCRIPTS.sub(lambda match: f"^{{{match[0].translate(_SUPERSCRIPT)}}}", text).translate(_CHARACTERS)
    if r"\begin" not in text:  # there \\ ends a row
        text = _DOUBLED.sub(lambda _: "\\", text)
    text = _without_delimiters(text.strip())
    for pattern, replacement in _DECORATION:
        text = pattern.sub(replacement, text)
    text = _without_lead_in(_unwrap(text))
    text = _AND_NOT.sub("", text)
    text = _TRAILING_MARK.sub("", text)
    for _ in range(2):
        text = _LONE_GROUP.sub(r" \1 ", text)
    return " ".join(_without_outer_braces(text).split())


def closing(text: str, start: int) -> int:
    """Index of the brace that closes the one at `start`, or -1. Escaped braces are text."""
    depth, index = 0, start
    while index < len(text):
        match text[index]:
            case "\\":
                index += 1
            case "{":
                depth += 1
            case "}":
                depth -= 1
                if depth == 0:
                    return index
        index += 1
    return -1


def _without_delimiters(text: str) -> str:
    for _ in range(4):
        for left, right in _DELIMITERS:
            inner = text[len(left) : -len(right)]
            if len(text) > len(left + right) and text.startswith(left) and text.endswith(right) and left not in inner:
                text = inner.strip()
    dollars = len(_DOLLAR.findall(text))
    return _DOLLAR.sub(lambda _: r"\$" if dollars % 2 else " ", text)  # one alone is a currency


def _unwrap(text: str) -> str:
    """\\mathbf{42} -> 42; other wrappers become \\text{...}, whose content is left as it is."""
    pieces, end = [], 0
    for match in _WRAPPER.finditer(text):
        close = closing(text, match.end() - 1)
        if match.start() < end or close < 0:
            continue
        content = text[match.end() : close]
        mathematical = match[1].startswith(("math", "bold", "bm"))
        bare = _MATHEMATICAL.match(content) or (mathematical and len(content.strip()) == 1)
        pieces += [text[end : match.start()], f" {content} " if bare else rf"\text{{{content}}}"]
        end = close + 1
    return "".join([*pieces, text[end:]])


def _without_lead_in(text: str) -> str:
    """Answer: 42, \\text{The answer is } 42, \\approx 42, = 42."""
    text = text.strip()
    while (match := _LEAD_IN.match(text)) and match.end() < len(text):
        rest = text[match.end() :].strip()
        if match[0].startswith(r"\text{") and match["brace"] is None:
            rest = rest.replace("}", "", 1)
        text = rest
    return text


def _without_outer_braces(text: str) -> str:
    text = text.strip()
    while text.startswith("{") and closing(text, 0) == len(text) - 1:
        text = text[1:-1].strip()
    return text
