"""Replays the recorded vectors against a trainer. Standard library only: this file and vectors/ can be copied anywhere.

python replay.py my_trainer:loss_and_gradient              # a function of one case -> (loss, gradient rows)
python replay.py my_trainer:loss_and_gradient --float32 --only ragged
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

Case = dict[str, Any]
Rows = Sequence[Sequence[float]]
Trainer = Callable[[Case], tuple[float, Rows] | None]

FOLDER = Path(__file__).parent / "vectors"


def load_cases(kind: str = "loss") -> list[Case]:
    files = sorted(FOLDER.glob("*.json"))
    if not files:
        raise FileNotFoundError(f"no vectors in {FOLDER}")
    cases = [case for file in files for case in json.loads(file.read_text(encoding="utf-8"))]
    return [case for case in cases if case["kind"] == kind]


def padded(rows: Sequence[Sequence[Any]], fill: float = math.nan) -> list[list[float]]:
    """Rows of one width; null and what is missing become `fill`."""
    width = max(map(len, rows))
    return [[fill if x is None else x for x in row] + [fill] * (width - len(row)) for row in rows]


class Difference(NamedTuple):
    error: float  # |a - b| / |b| over all elements (0 / 0 = 0)
    cosine: float
    scale: float  # |a| / |b|


def difference(a: Rows, b: Rows) -> Difference:
    pairs = [(x, y) for row_a, row_b in zip(a, b, strict=True) for x, y in zip(row_a, row_b, strict=True)]
    norm_a, norm_b = math.hypot(*(x for x, _ in pairs)), math.hypot(*(y for _, y in pairs))
    gap = math.hypot(*(x - y for x, y in pairs))
    if norm_b == 0:
        return Difference(0.0, 1.0, 1.0) if gap == 0 else Difference(math.inf, 0.0, math.inf)
    cosine = math.fsum(x / norm_a * (y / norm_b) for x, y in pairs) if norm_a else 0.0
    return Difference(gap / norm_b, cosine, norm_a / norm_b)


def complaints(case: Case, loss: float, gradient: Rows, precision: str = "float64") -> list[str]:
    """What differs by more than the case allows; empty when the trainer agrees.

    The loss is compared relative to `loss_scale`, the sum of its terms without their signs: terms that cancel leave
    their rounding behind. The gradient is compared row by row, so that a long row cannot hide behind a short one.
    Only real tokens and padding that the case itself holds are looked at; padding must have gradient 0.
    """
    expected, tolerance = case["expected"], case["tolerance"][precision]
    wanted_rows = expected["gradient"]
    given, needed = [len(row) for row in gradient], [len(row) for row in wanted_rows]
    if len(given) != len(needed) or any(have < need for have, need in zip(given, needed, strict=True)):
        return [f"gradient rows of {given} tokens, expected {needed} (padding on the right is ignored)"]
    rows = [list(row)[: len(wanted)] for row, wanted in zip(gradient, wanted_rows, strict=True)]
    found = []
    # Not `error > tolerance`: NaN must fail.
    if not abs(loss - expected["loss"]) <= tolerance["loss"] * expected["loss_scale"]:
        found.append(f"loss {loss!r}, expected {expected['loss']!r}")
    errors = [difference([row], [wanted]).error for row, wanted in zip(rows, wanted_rows, strict=True)]
    wrong = {number: error for number, error in enumerate(errors) if not error <= tolerance["gradient"]}
    found += [f"gradient of row {number}: relative error {error:.2g}" for number, error in wrong.items()]
    if wrong:
        error, cosine, scale = difference(rows, wanted_rows)
        found.append(f"gradient as a whole: error {error:.2g}, cosine {cosine:.4f}, scale {scale:.4f}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="Replay the recorded vectors against a trainer.")
    parser.add_argument("trainer", help="module:function")
    parser.add_argument("--float32", action="store_true", help="with the tolerances of float32")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    args = parser.parse_args()
    sys.path.insert(0, "")
    module, _, function = args.trainer.partition(":")
    trainer: Trainer = getattr(importlib.import_module(module), function)
    agree = differ = 0
    for case in load_cases():
        result = trainer(case) if args.only in case["name"] else None
        if result is None:
            continue
        wrong = complaints(case, *result, precision="float32" if args.float32 else "float64")
        agree, differ = agree + (not wrong), differ + bool(wrong)
        print("\n          ".join([f"{'differs' if wrong else 'agrees'}  {case['name']}", *wrong]))
    print(f"{agree} agree, {differ} differ")
    return int(differ > 0 or agree == 0)


if __name__ == "__main__":
    sys.exit(main())
