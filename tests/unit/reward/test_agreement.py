"""Recorded labels of a real model's answers: 100 MATH problems x 8 samples (Qwen2.5-Math evaluation data)."""

import json
from collections import Counter
from pathlib import Path

import pytest

from gspo_ray.reward.pool import VerifierProcess
from gspo_ray.types import Outcome

RECORDED = Path(__file__).parents[4] / "shared" / "data" / "outputs" / "qwen25_math_100x8.jsonl"


@pytest.mark.skipif(not RECORDED.exists(), reason=f"recorded outputs are not at {RECORDED}")
def test_agrees_with_recorded_labels() -> None:
    rows = [json.loads(line) for line in RECORDED.read_text(encoding="utf-8").split("\n") if line]
    with VerifierProcess(timeout_s=5, memory_limit_mib=2048) as verifier:
        verdicts = verifier.score([(row["completion"], row["gold"]) for row in rows])
    pairs = Counter((row["correct"], v.outcome is Outcome.CORRECT) for row, v in zip(rows, verdicts, strict=True))
    assert pairs == {(True, True): 728, (False, False): 71, (False, True): 1}
    # the one disagreement is a wrong label: gold 10{,}000, answer 10000
    assert [
        row["id"] for row, v in zip(rows, verdicts, strict=True) if v.outcome is Outcome.CORRECT and not row["correct"]
    ] == ["math-72-7"]
    # a mangled gold is counted as unreadable, not as a wrong answer
    assert {
        (row["gold"], v.outcome)
        for row, v in zip(rows, verdicts, strict=True)
        if v.outcome not in (Outcome.CORRECT, Outcome.WRONG)
    } == {("4:30p..", Outcome.ERROR)}
