"""Where the final answer of a completion is: the last \\boxed{...}. Standard library only, linear time.

The contract, strict on purpose (a reward that is paid for less is what a policy learns to give):
    - \\boxed{...} and \\fbox{...}, blanks allowed before the brace; escaped braces do not count as depth.
    - Only the LAST box counts. When it is unterminated or empty there is no answer: a truncated or withdrawn
      answer is not paid for an earlier box.
    - Only text after the last </think> counts; a <think> that is never closed leaves no answer.
    - A box inside a box belongs to the outer one; boxes that wrap nothing but a box are peeled off.
"""

from __future__ import annotations

import re

_BOX = r"\\(?:boxed|fbox)\s*"
# A command at the very end of the text (\Z) is a box cut off before its brace.
_TOKEN = re.compile(rf"(?P<box>{_BOX}(?:\{{|\Z))|(?P<escaped>\\.)|(?P<open>\{{)|(?P<close>\}})", re.DOTALL)
_INNER_BOX = re.compile(rf"{_BOX}\{{")

_Span = tuple[int, int, int]  # start of the command, start of the content, end of the content


def last_boxed(text: str) -> str | None:
    """Content of the last box, stripped; None when there is no answer by the contract above.

    Example: last_boxed(r"so \\boxed{\\frac{1}{2}}.") == r"\\frac{1}{2}"
    """
    text = text[text.rfind("</think>") + len("</think>") :] if "</think>" in text else text
    if "<think>" in text:
        return None
    closed = _enclosing_last(text)
    if not closed:
        return None
    span = closed[-1]
    for inner in reversed(closed[:-1]):
        if text[span[1] : inner[0]].strip() or text[inner[2] + 1 : span[2]].strip():
            break
        span = inner
    return _INNER_BOX.sub("{", text[span[1] : span[2]]).strip() or None


def _enclosing_last(text: str) -> list[_Span]:
    """The last box and the terminated boxes round it, innermost first; [] when the last one is unterminated."""
    closed: list[_Span] = []
    stack: list[tuple[int, int] | None] = []  # None: a plain brace
    last = -1  # where the content of the last box starts
    for token in _TOKEN.finditer(text):
        if token.lastgroup == "box":
            last = token.end()
            stack.append((token.start(), last))
            closed.clear()  # boxes that ended before this one are not round it
        elif token.lastgroup == "open":
            stack.append(None)
        elif token.lastgroup == "close" and stack:
            box = stack.pop()
            if box is not None:
                closed.append((*box, token.start()))
    return closed if closed and closed[0][1] == last else []
