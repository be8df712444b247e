"""Answers in words: recognised, and compared as words. math-verify multiplies their letters, so that No equals on."""

from __future__ import annotations

import re

_SAME = {  # several ways to say one thing, in the form that `spoken` gives
    "doesn't exist": "does not exist",
    "dne": "does not exist",
    "limit does not exist": "does not exist",
    "no solutions": "no solution",
    "there is no solution": "no solution",
    "there are no solutions": "no solution",
    "infinitely many solutions": "infinitely many",
    "neither even nor odd": "neither",
    "neither odd nor even": "neither",
}
_PLACEHOLDER = re.compile(  # no answers, whatever stands in the data's answer column
    "see (?:figure|solution|above|below|explanation|proof|image|text)|n/?a|nan|null|no answer|(?:none|not) given"
    "|unknown|tbd|todo|answers? (?:will )?var(?:y|ies)|proof|prove|omitted"
)
_SHORT_WORD = re.compile("yes|no|odd|even|true|false|up|left|right|red")
_PARTICLE = re.compile("a|of|to|is|in|at|by|or|on|not|the|and|all|any|are|for|has|one|two")  # words only beside others
_MATHEMATICAL = re.compile(
    "a?(?:sin|cos|tan|cot|sec|csc)h?|arc(?:sin|cos|tan)|log|ln|exp|sqrt|pi|lim|max|min|sup|inf|gcd|lcm|det|mod|infty"
    "|infinity|deg|dim|ker|rank|tr"
)
_TEXT = re.compile(r"\\text\{([^{}]*)\}")
_SPOKEN = re.compile(r"[A-Za-zÀ-ÿ0-9(][A-Za-zÀ-ÿ0-9 .,'\"&/:;!?()-]*")
_WORD = re.compile(r"[A-Za-zÀ-ÿ']{2,}")
_CHOICE = re.compile(r"\(([A-Za-z])\)|([A-Za-z])\)|([A-Za-z])\.")
_DATE = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})")
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})\s*([ap])\s*\.?\s*m\s*\.?", re.IGNORECASE)


def is_placeholder(text: str) -> bool:
    """ "see figure", "n/a": the place of an answer without one. No letters and no digits: the same."""
    return not re.search(r"\w|\\", text) or bool(_PLACEHOLDER.fullmatch(spoken(text)))


def is_words(text: str) -> bool:
    """Is tidied `text` language, not mathematics? xy, abc and pi are not; No, Evelyn and \\text{C} are."""
    bare = _TEXT.sub(r" \1 ", text).strip()
    if _DATE.fullmatch(bare) or _CLOCK.fullmatch(bare):
        return True
    if not _SPOKEN.fullmatch(bare) or not re.search("[A-Za-z]", bare):
        return False
    if not bare[0].isalpha() and not _CHOICE.fullmatch(bare):
        return False
    outside = _TEXT.sub(" ", text)
    if not re.search("[A-Za-z0-9]", outside):
        return r"\text{" in text
    return all(_is_word(word) for word in re.findall(r"[A-Za-z0-9À-ÿ']+", outside)) and (
        any(len(word) > 2 or word.istitle() or _SHORT_WORD.fullmatch(word.lower()) for word in _WORD.findall(bare))
    )


def spoken(text: str) -> str:
    """Words in one form: no wrappers, brackets round a choice, punctuation or case; "DNE" is "does not exist".

    Example: spoken(r"\\text{(C)}") == "C"; a single letter keeps its case, it may be a name.
    """
    bare = " ".join(_TEXT.sub(r" \1 ", text).split())
    if date := _DATE.fullmatch(bare):
        return "-".join(str(int(part)) for part in date.groups())
    if clock := _CLOCK.fullmatch(bare):
        return f"{int(clock[1])}:{clock[2]} {clock[3].lower()}m"
    if choice := _CHOICE.fullmatch(bare):
        return choice[1] or choice[2] or choice[3]
    if len(bare) == 1:
        return bare
    bare = re.sub(r"[\"“”.,;:!?]+(?=\s|$)|^[\"“”]", "", bare).lower()
    bare = re.sub(r"^(?:the|an|a) (?=\w)", "", bare)
    return _SAME.get(bare, bare)


def _is_word(token: str) -> bool:
    """A bare token of letters that is not a product of variables."""
    lower = token.lower()
    if _SHORT_WORD.fullmatch(lower) or _PARTICLE.fullmatch(lower) or token == "DNE":
        return True
    if _MATHEMATICAL.fullmatch(lower) or not token.replace("'", "").isalpha():
        return False
    return (len(token) > 3 and bool(re.search("[aeiouyÀ-ÿ]", lower))) or (len(token) > 1 and token.istitle())
