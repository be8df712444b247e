"""Writes vectors/*.json: `python -m tests.conformance.make_vectors`. They are never edited by hand (a test checks)."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

from tests.conformance import cases_advantages, cases_by_hand, cases_random, oracle
from tests.conformance.oracle import Case

FOLDER = Path(__file__).parent / "vectors"

FILES = {
    "by_hand": cases_by_hand.cases,
    "ragged": cases_random.ragged,
    "divisor": cases_random.divisors,
    "kl": cases_random.kl,
    "padding": cases_random.padding,
    "mismatch": cases_random.mismatch,
    "advantages": cases_advantages.cases,
}
TOLERANCE = {
    "loss": {"float64": {"loss": 1e-12, "gradient": 1e-10}, "float32": {"loss": 1e-5, "gradient": 1e-5}},
    "advantages": {"float64": {"advantages": 1e-12}},
    "mismatch_weights": {"float64": {"weights": 1e-12}, "float32": {"weights": 1e-5}},
}


def render() -> dict[str, str]:
    """File name -> text. Raises ValueError when a case does not come to what its description derives."""
    return {
        f"{name}.json": "[\n" + ",\n".join(_pretty(finished(case)) for case in cases()) + "\n]\n"
        for name, cases in FILES.items()
    }


def finished(case: Case) -> Case:
    """The case with its expected values; `by_hand` is checked and dropped."""
    if case["kind"] == "loss":
        outcome = oracle.evaluate(case)
        expected: dict[str, Any] = {
            "loss": outcome.loss,
            "loss_scale": outcome.loss_scale,
            "gradient": outcome.gradient,
            "log_ratio": outcome.log_ratio,
            "clipped_tokens": outcome.clipped_tokens,
        }
        derived: Any = (outcome.loss, outcome.gradient)
    elif case["kind"] == "advantages":
        derived = oracle.advantages(case["inputs"]["rewards"], case["settings"]["kind"])
        expected = {"advantages": derived}
    else:
        expected = oracle.mismatch_weights(case)
        derived = None
    if "by_hand" in case and not _near(_floats(derived), case["by_hand"]):
        raise ValueError(f"{case['name']}: derived {case['by_hand']}, computed {_floats(derived)}")
    kept = {key: value for key, value in case.items() if key != "by_hand"}
    return {**kept, "expected": _floats(expected), "tolerance": TOLERANCE[case["kind"]]}


def _near(computed: Any, derived: Any) -> bool:
    if isinstance(derived, (list, tuple)):
        return len(computed) == len(derived) and all(map(_near, computed, derived))
    return abs(computed - derived) < 1e-11


def _floats(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _floats(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_floats(item) for item in value]
    return float(value) + 0.0 if isinstance(value, Decimal) else value  # + 0.0: no negative zeros


def _pretty(value: Any, indent: int = 1) -> str:
    """JSON with one line for each list of plain values."""
    is_flat = isinstance(value, list) and not any(isinstance(item, (list, dict)) for item in value)
    if is_flat or not isinstance(value, (list, dict)):
        return json.dumps(value, separators=(",", ":"))
    pad = " " * indent
    if isinstance(value, list):
        return "[\n" + ",\n".join(pad + _pretty(item, indent + 1) for item in value) + "]"
    items = [f"{pad}{json.dumps(key)}: {_pretty(item, indent + 1)}" for key, item in value.items()]
    return "{\n" + ",\n".join(items) + "}"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, text in render().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
        print(f"{name:18} {len(json.loads(text)):3} cases {len(text):8,} bytes")


if __name__ == "__main__":
    main()
