"""GSM8K questions as a choice among six numbers: features and rewards made from a seed, the gold answer one of them.

Legend: M questions, C = 6 candidates, F = 8 features.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gspo_ray.data.rows import read_rows
from gspo_ray.errors import ConfigError, DataError

Floats = npt.NDArray[np.float64]

NUM_CANDIDATES = 6
FEATURES = (
    "bias",
    "tanh(value / 100)",
    "tanh(|value| / 100)",
    "is an integer",
    "1 / steps",
    "more than one step",
    "min(steps / 4, 1)",
    "noisy self-check",
)
REWARD_WEIGHTS = (0.7, 0.05, 0.2, 0.05)  # outcome, format (an integer), process (noisy), brevity
MIN_VALIDATION = 32
HOW_TO_GET = (
    "put GSM8K's train.jsonl and test.jsonl into one folder and name it: --data DIR. Both are in the folder "
    "grade_school_math/data of https://github.com/openai/grade-school-math (MIT)"
)
_GOLD = re.compile(r"####\s*(-?[\d,]+(?:\.\d+)?)")
_OFFSETS = (0.0, -3.0, -1.0, 1.0, 2.0, 5.0)  # from the gold answer, in units of 6 % of it, at least 1
_STEPS = np.arange(NUM_CANDIDATES) % 4 + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    features_CF: Floats
    rewards_C: Floats
    lens_C: npt.NDArray[np.int64]  # pseudo length of a candidate, in tokens
    gold: int


def load(folder: Path | None, *, examples: int, seed: int) -> tuple[list[Question], list[Question]]:
    """(training, validation): the first `examples` training rows, and a quarter as many (at least 32) test rows.

    Rows without "#### number" are left out. Raises ConfigError without a folder, DataError for its files.
    """
    if folder is None:
        raise ConfigError(f"lab candidates needs real questions: {HOW_TO_GET}")
    for name in ("train.jsonl", "test.jsonl"):
        if not (folder / name).is_file():
            raise DataError(f"{folder / name}: no such file; {HOW_TO_GET}")
    train = _questions(folder / "train.jsonl", examples, seed)
    return train, _questions(folder / "test.jsonl", max(MIN_VALIDATION, examples // 4), seed + 1)


def _questions(path: Path, count: int, seed: int) -> list[Question]:
    rng = np.random.default_rng(seed)
    questions = [_question(gold, rng) for gold in _gold_answers(path, count)]
    if not questions:
        raise DataError(
            f'{path}: no answer among the first {count} rows ends in "#### number", as GSM8K marks the gold'
        )
    return questions


def _gold_answers(path: Path, count: int) -> Iterator[float]:
    for row in islice(read_rows(path), count):
        answer = row.fields.get("answer")
        if not isinstance(answer, str):
            raise DataError(f"{row.where}: no text under `answer`; {HOW_TO_GET}")
        if match := _GOLD.search(answer):
            yield float(match[1].replace(",", ""))


def _question(gold: float, rng: np.random.Generator) -> Question:
    """Draws, in this order: the order of the candidates, the process scores, the self-checks."""
    scale = max(1.0, 0.06 * abs(gold))
    offsets_C = np.array(_OFFSETS) * scale
    rng.shuffle(offsets_C)
    values_C = gold + offsets_C
    process_C = np.clip(1 - np.abs(offsets_C) / (5 * scale) + rng.normal(0, 0.18, NUM_CANDIDATES), 0, 1)
    checks_C = np.clip(process_C + rng.normal(0, 0.12, NUM_CANDIDATES), 0, 1)
    integer_C = (values_C == np.floor(values_C)).astype(float)
    features = [
        np.ones(NUM_CANDIDATES),
        np.tanh(values_C / 100),
        np.tanh(np.abs(values_C) / 100),
        integer_C,
        1 / _STEPS,
        (_STEPS > 1).astype(float),
        np.minimum(_STEPS / 4, 1),
        checks_C,
    ]
    outcome_C = (offsets_C == 0).astype(float)
    return Question(
        features_CF=np.stack(features, axis=1),
        rewards_C=np.stack([outcome_C, integer_C, process_C, 1 / _STEPS], axis=1) @ np.array(REWARD_WEIGHTS),
        lens_C=_STEPS,
        gold=int(outcome_C.argmax()),
    )
