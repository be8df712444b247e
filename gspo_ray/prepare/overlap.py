"""Which training problems are, or nearly are, problems of an evaluation set.

Two tests. Same text: equal after folding case, white space and LaTeX dress. Shared runs: the share of the evaluation
problem's runs of 13 words that occur in the training problem; from 30 % on it counts as contaminated. 13 words is the
length that GPT-3's authors used (arXiv:2005.14165, appendix C). A word is a run of letters or of digits; a Chinese or
Japanese character is a word of its own. A run that more than 10 training problems have is a set phrase ("where m and n
are relatively prime positive integers, find m + n") and says nothing. An evaluation problem of 8 to 12 words is one
run; of fewer, same text alone decides. Drawings in [asy] code do not count as words.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

RUN_WORDS = 13
SHORTEST_RUN = 8
SET_PHRASE_PROBLEMS = 10
CONTAMINATED_SHARE = 0.3

_ASY = re.compile(r"\[asy\].*?\[/asy\]", re.DOTALL)
_DRESS = re.compile(
    r"\\(?:left|right|displaystyle|textstyle|text|textbf|mathrm|mathbf|operatorname|bigl?|bigr?|quad|qquad)(?![a-z])"
    r"|\\[,;:!()\[\]]|[$~]"
)
_FRACTION = re.compile(r"\\[dt]frac(?![a-z])")
_OWN_WORD = re.compile(r"([\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff])")
_WORD = re.compile(r"[^\W\d_]+|\d+")
_TOKEN = re.compile(r"[^\W\d_]+|\d+|[-+*/^=<>|!()]")


@dataclass(frozen=True, slots=True)
class EvalSet:
    name: str
    path: Path
    sha256: str
    questions: tuple[tuple[str, str], ...]  # (id, question)


@dataclass(frozen=True, slots=True)
class Hit:
    """One pair of a training and an evaluation problem."""

    train_id: str
    eval_set: str
    eval_id: str
    same_text: bool
    share: float  # of the evaluation problem's runs, set phrases left out

    @property
    def contaminated(self) -> bool:
        return self.same_text or self.share >= CONTAMINATED_SHARE


def words(text: str) -> list[str]:
    return _WORD.findall(_OWN_WORD.sub(r" \1 ", _undressed(_ASY.sub(" ", text))))


def text_key(text: str) -> str:
    """Equal for texts that differ in case, white space, braces, dollar signs or spacing commands alone."""
    return " ".join(_TOKEN.findall(_undressed(text)))


class OverlapIndex:
    """The evaluation sets, indexed once; then one pass over the training problems.

    Example: index = OverlapIndex(sets); index.add("17", question) ...; index.hits()
    """

    def __init__(self, sets: Sequence[EvalSet]) -> None:
        self._problems = [(item.name, eval_id) for item in sets for eval_id, _ in item.questions]
        questions = [question for item in sets for _, question in item.questions]
        self._same: dict[str, list[int]] = {}
        self._runs: dict[str, list[int]] = {}
        for number, question in enumerate(questions):
            self._same.setdefault(text_key(question), []).append(number)
            split = words(question)
            for run in set(_runs(split, min(len(split), RUN_WORDS))) if len(split) >= SHORTEST_RUN else ():
                self._runs.setdefault(run, []).append(number)
        self._lengths = sorted({run.count(" ") + 1 for run in self._runs})
        self._problems_with: Counter[str] = Counter()
        self._found: list[tuple[str, list[int], list[str]]] = []  # train id, same text as, shared runs

    def add(self, train_id: str, question: str) -> None:
        split = words(question)
        shared = {run for length in self._lengths for run in _runs(split, length) if run in self._runs}
        same = self._same.get(text_key(question), [])
        self._problems_with.update(shared)
        if shared or same:
            self._found.append((train_id, same, sorted(shared)))

    def hits(self) -> list[Hit]:
        """Every pair that shares its text or a run that is no set phrase, in the order of the training problems."""
        totals: Counter[int] = Counter()
        for run, numbers in self._runs.items():
            if not self._is_set_phrase(run):
                totals.update(numbers)
        result = []
        for train_id, same, shared in self._found:
            common = Counter(n for run in shared if not self._is_set_phrase(run) for n in self._runs[run])
            for number in sorted({*same, *common}):
                share = round(common[number] / totals[number], 4) if common[number] else 0.0
                result.append(Hit(train_id, *self._problems[number], number in same, share))
        return result

    def _is_set_phrase(self, run: str) -> bool:
        return self._problems_with[run] > SET_PHRASE_PROBLEMS


def _runs(split: Sequence[str], length: int) -> Iterator[str]:
    return (" ".join(split[start : start + length]) for start in range(len(split) - length + 1))


def _undressed(text: str) -> str:
    text = unicodedata.normalize("NFKC", text).casefold().replace("\u2212", "-")
    return _FRACTION.sub(r"\\frac", _DRESS.sub(" ", text))
