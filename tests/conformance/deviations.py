"""How far other settings lie from the paper's, on one ragged batch: `python -m tests.conformance.deviations`.

The settings are defaults and documented examples of other trainers. The formulas are the oracle's; no trainer runs here
(test_trl.py runs one). Prints the table of README.md.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import Decimal
from random import Random
from typing import Any

from tests.conformance import oracle
from tests.conformance.cases_by_hand import PAPER
from tests.conformance.cases_random import Batch, draw, loss_case
from tests.conformance.oracle import Case
from tests.conformance.replay import difference

GROUP_SIZE = 4
REWARDS: list[list[float | None]] = [[1, 0, 0, 0], [1, 1, 0, 1], [0, 1, 1, 0], [0, 0, 0, 0]]  # the last is degenerate
# In every group the wrong answers are the longer ones.
LENGTHS = (212, 1434, 705, 1987, 50, 167, 1160, 388, 846, 97, 301, 1630, 540, 1999, 1250, 73)


def ragged_batch(*, token_noise: float, sequence_drift: float) -> Case:
    batch: Batch = draw(9, LENGTHS, token_noise=token_noise, sequence_drift=sequence_drift)
    batch.inputs["advantages"] = [float(a) for group in oracle.advantages(REWARDS, "sample") for a in group]
    return loss_case("paper", "", batch, PAPER)


def settings(**changed: Any) -> Callable[[Case], Case]:
    return lambda case: {**case, "settings": {**case["settings"], **changed}}


def scaled_advantages(factor: Callable[[list[float | None]], float]) -> Callable[[Case], Case]:
    def change(case: Case) -> Case:
        values = case["inputs"]["advantages"]
        scaled = [a * factor(REWARDS[row // GROUP_SIZE]) for row, a in enumerate(values)]
        return {**case, "inputs": {**case["inputs"], "advantages": scaled}}

    return change


def std(rewards: list[float | None]) -> float:
    """With N - 1."""
    values = [float(r) for r in rewards if r is not None]
    mean = sum(values) / len(values)
    return float((sum((v - mean) ** 2 for v in values) / (len(values) - 1)) ** 0.5)


def only_live_rows_counted(case: Case) -> Case:
    live = sum(a != 0 for a in case["inputs"]["advantages"])
    return {**case, "divisor": {**case["divisor"], "num_sequences": live}}


def bfloat16(value: float) -> float:
    """To nearest, ties to even."""
    (bits,) = struct.unpack(">I", struct.pack(">f", value))
    bits += 0x7FFF + (bits >> 16 & 1)
    return float(struct.unpack(">f", struct.pack(">I", bits & 0xFFFF0000))[0])


def rounded_logprobs(case: Case) -> Case:
    changed = {
        name: [[bfloat16(x) for x in row] for row in case["inputs"][name]] for name in ("logprobs", "old_logprobs")
    }
    return {**case, "inputs": {**case["inputs"], **changed}}


def engine_logprobs(case: Case) -> Case:
    """The engine's numbers have a standard deviation of 0.01 a token, on top of what the policy has moved since."""
    rng, rows = Random(10), case["inputs"]["old_logprobs"]
    old = [[o + (rng.random() + rng.random() + rng.random() - 1.5) * 0.02 for o in row] for row in rows]
    return {**case, "inputs": {**case["inputs"], "old_logprobs": old}}


def dual_clip(bound: float) -> Callable[[Case], Case]:
    """No gradient for A < 0 above `bound`: the same as an advantage of 0 there."""

    def change(case: Case) -> Case:
        ratios = [r.exp() for r in oracle.evaluate(case).log_ratio]
        cut = [a < 0 and ratio > Decimal(bound) for a, ratio in zip(case["inputs"]["advantages"], ratios, strict=True)]
        advantages = [0.0 if c else a for c, a in zip(cut, case["inputs"]["advantages"], strict=True)]
        return {**case, "inputs": {**case["inputs"], "advantages": advantages}}

    return change


ROWS: tuple[tuple[str, str, Callable[[Case], Case]], ...] = (
    ("the paper in token form (gspo_token)", "verl, SkyRL", settings(variant="gspo_token")),
    ("token mean", "AReaL; `token_mean` of SkyRL; `dapo` of TRL", settings(aggregation="token_mean")),
    ("token sums over a constant", "`dr_grpo` of TRL", settings(aggregation="constant_length")),
    (
        "eps 0.2 / 0.2",
        "defaults of verl, OpenRLHF, slime, ROLL, NeMo-RL",
        settings(eps_low=0.2, eps_high=0.2),
    ),
    ("eps 4e-4 / 4e-4", "slime (one script)", settings(eps_low=4e-4)),
    (
        "token mean, eps 0.2 / 0.2",
        "SkyRL without its KL",
        settings(aggregation="token_mean", eps_low=0.2, eps_high=0.2),
    ),
    (
        "token ratio, token mean, eps 0.2 / 0.2",
        "TRL defaults",
        settings(variant="grpo", aggregation="token_mean", eps_low=0.2, eps_high=0.2),
    ),
    ("token ratio, sequence mean", "GRPO with the paper's eps", settings(variant="grpo")),
    ("dual clip at 1 + 2 eps_low", "ROLL", dual_clip(1 + 6e-4)),
    ("zero-advantage rows out of the divisor", "filters before the mean", only_live_rows_counted),
    ("standard deviation with N", "`numpy.std`", scaled_advantages(lambda g: (GROUP_SIZE / (GROUP_SIZE - 1)) ** 0.5)),
    ("1e-4 added to the standard deviation", "TRL", scaled_advantages(lambda g: (std(g) + 1e-8) / (std(g) + 1e-4))),
    ("log-probs held in bfloat16", "autocast output kept", rounded_logprobs),
    ("old log-probs of an engine that scatters by 0.01", "bypass modes", engine_logprobs),
)


def gradient(case: Case) -> list[list[float]]:
    return [[float(value) for value in row] for row in oracle.evaluate(case).gradient]


def table() -> str:
    """At the first update the old log-probs are the current ones; later, token log-ratios scatter by 0.01."""
    cases = [ragged_batch(token_noise=0.0, sequence_drift=0.0), ragged_batch(token_noise=0.02, sequence_drift=0.002)]
    papers = [gradient(case) for case in cases]
    lines = [
        "| setting | where | first update: error | cosine | later update: error | cosine |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, where, change in ROWS:
        numbers = [difference(gradient(change(case)), paper) for case, paper in zip(cases, papers, strict=True)]
        lines.append(f"| {name} | {where} | " + " | ".join(f"{n.error:.2g} | {n.cosine:.3f}" for n in numbers) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(table(), end="")
