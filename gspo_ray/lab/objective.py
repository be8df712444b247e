"""`lab objective`: the objective taken apart: cancellation, clipping, length, the lost identity, advantages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import torch
from torch import Tensor

from gspo_ray.algo.advantages import AdvantageKind, group_advantages
from gspo_ray.algo.aggregation import Divisor
from gspo_ray.algo.losses import Objective, Variant, policy_loss, sequence_log_ratio
from gspo_ray.lab import bounds
from gspo_ray.lab.experiment import Experiment, Table
from gspo_ray.lab.figures_toy import draw_objective
from gspo_ray.lab.golden import Check, equal

GOLDEN_EPSILON = 0.2
# Two tokens with ratios 0.5 and 2: (variant, advantage) -> gradient of the objective for each token's log-prob.
GOLDEN_GRADIENTS = {
    ("grpo", 1): (0.25, 0.0),
    ("grpo", -1): (0.0, -1.0),
    ("gspo", 1): (0.5, 0.5),
    ("gspo", -1): (-0.5, -0.5),
    ("gspo_token", 1): (0.5, 0.5),
    ("gspo_token", -1): (-0.5, -0.5),
}
GOLDEN_VALUES = {("grpo", 1): 0.85, ("gspo", 1): 1.0, ("gspo_token", 1): 1.0}
# Two equal tokens: (ratio, advantage) -> gradient for each; 0 where the clip cuts.
GOLDEN_CORNERS = {(1.3, 1): 0.0, (0.7, 1): 0.35, (1.3, -1): -0.65, (0.7, -1): 0.0}
GOLDEN_RAW_RATIOS = {2: 1.0201, 100: 2.7048, 1000: 20959.16}  # product of n token ratios of 1.01
GOLDEN_IDENTITY = (0.8, 0.63246)  # raw ratio, length-normalised ratio
# Rewards 1, 0, 0, 0: std with N - 1 and with N in the divisor.
GOLDEN_ADVANTAGES = {"sample": (1.5, -0.5, -0.5, -0.5), "population": (1.7320, -0.5774, -0.5774, -0.5774)}


def run(*, epsilon: float = GOLDEN_EPSILON) -> Experiment:
    """Raises ConfigError for an epsilon that is not between 0 and 1."""
    bounds.epsilon(epsilon)
    report: dict[str, Any] = {
        "experiment": "objective",
        "scope": "the loss function alone, float64; no model, no sampling",
        "torch": torch.__version__,
        "epsilon": epsilon,
        "cancellation": _cancellation(epsilon),
        "clipping": _clipping(epsilon),
        "length_normalization": _length_normalization(),
        "is_identity": _is_identity(),
        "advantages": _advantages(),
    }
    return Experiment(
        name="objective",
        title=f"The objective taken apart, epsilon {epsilon:g}",
        report=report,
        checks=_checks(report, bands_known=epsilon == GOLDEN_EPSILON),
        tables=[_table(report["cancellation"])],
        notes=[
            "Ratios 0.5 and 2 cancel in the sequence ratio: GSPO sees no change and keeps both tokens, GRPO clips one.",
            "The root in the sequence ratio bounds it at any length, and it breaks the importance-sampling identity:",
            "an expectation of 0.8 becomes 0.632. Golden values: a public GSPO tutorial; clips known for epsilon 0.2.",
        ],
        size_inches=(13.0, 4.8),
        draw=draw_objective,
    )


def _objective(variant: Variant, ratios_T: Sequence[float], advantage: float, epsilon: float) -> dict[str, Any]:
    """Value and gradient (for the log-probs) of one sequence whose tokens have these ratios; to be maximised."""
    logprobs_BT = torch.tensor([ratios_T], dtype=torch.float64).log().requires_grad_(True)
    loss, terms = policy_loss(
        logprobs_BT,
        torch.zeros_like(logprobs_BT),
        torch.ones_like(logprobs_BT, dtype=torch.bool),
        torch.tensor([advantage], dtype=torch.float64),
        objective=Objective(variant=variant, eps_low=epsilon, eps_high=epsilon),
        divisor=Divisor(num_sequences=1, num_tokens=len(ratios_T), max_tokens=len(ratios_T)),
    )
    (gradient_BT,) = torch.autograd.grad(-loss, logprobs_BT)
    return {
        "value": -float(loss.detach()),
        "gradient": [value + 0.0 for value in gradient_BT[0].tolist()],  # no -0.0
        "clipped_tokens": int(terms.clipped_tokens_B[0]),
    }


def _cancellation(epsilon: float) -> list[dict[str, Any]]:
    return [
        {
            "variant": variant,
            "advantage": advantage,
            "token_ratios": [0.5, 2.0],
            **_objective(variant, (0.5, 2.0), advantage, epsilon),
        }
        for variant in get_args(Variant)
        for advantage in (1, -1)
    ]


def _clipping(epsilon: float) -> list[dict[str, Any]]:
    return [
        {"ratio": ratio, "advantage": advantage, **_objective("gspo", (ratio, ratio), advantage, epsilon)}
        for ratio, advantage in GOLDEN_CORNERS
    ]


def _length_normalization() -> list[dict[str, Any]]:
    rows = []
    for length in GOLDEN_RAW_RATIOS:
        logprobs_BT = torch.full((1, length), 1.01, dtype=torch.float64).log()
        log_ratio = float(_log_ratio(logprobs_BT, torch.zeros_like(logprobs_BT)))
        raw = float(torch.tensor(log_ratio * length, dtype=torch.float64).exp())
        gspo = float(torch.tensor(log_ratio, dtype=torch.float64).exp())
        rows.append({"length": length, "token_ratio": 1.01, "raw_ratio": raw, "gspo_ratio": gspo})
    return rows


def _is_identity() -> dict[str, Any]:
    """Two answers of two tokens, the second token certain: old 0.5 and 0.5, new 0.8 and 0.2; one is paid."""
    old_BT = torch.tensor([[0.5, 1.0], [0.5, 1.0]], dtype=torch.float64).log()
    new_BT = torch.tensor([[0.8, 1.0], [0.2, 1.0]], dtype=torch.float64).log()
    rewards_B = torch.tensor([1.0, 0.0], dtype=torch.float64)
    log_ratio_B = _log_ratio(new_BT, old_BT)
    old_B, new_B = old_BT.sum(-1).exp(), new_BT.sum(-1).exp()
    return {
        "expected_reward_under_new": float((new_B * rewards_B).sum()),
        "reweighted_by_raw_ratio": float((old_B * (2 * log_ratio_B).exp() * rewards_B).sum()),
        "reweighted_by_gspo_ratio": float((old_B * log_ratio_B.exp() * rewards_B).sum()),
    }


def _advantages() -> list[dict[str, Any]]:
    return [
        {"kind": kind, "rewards": rewards_G, "advantages": group_advantages([rewards_G], kind=kind)[0]}
        for rewards_G in ([1.0, 0.0, 0.0, 0.0], [0.0, 0.5, 0.5, 1.0], [1.0, 1.0, 1.0, 1.0])
        for kind in get_args(AdvantageKind)
    ]


def _log_ratio(logprobs_BT: Tensor, old_BT: Tensor) -> Tensor:
    return sequence_log_ratio(logprobs_BT, old_BT, torch.ones_like(logprobs_BT, dtype=torch.bool))


def _checks(report: dict[str, Any], *, bands_known: bool) -> list[Check]:
    checks = []
    if bands_known:
        for row in report["cancellation"]:
            key = (row["variant"], row["advantage"])
            name = f"ratios 0.5 and 2, A={row['advantage']:+d}, {row['variant']}"
            if key in GOLDEN_VALUES:
                checks.append(equal(f"{name}: value", GOLDEN_VALUES[key], row["value"], within=1e-12))
            for token, golden in enumerate(GOLDEN_GRADIENTS[key]):
                checks.append(equal(f"{name}: gradient {token + 1}", golden, row["gradient"][token], within=1e-12))
        for row in report["clipping"]:
            golden = GOLDEN_CORNERS[row["ratio"], row["advantage"]]
            name = f"gspo s={row['ratio']:g}, A={row['advantage']:+d}: gradient a token"
            checks.append(equal(name, golden, row["gradient"][0], within=1e-12))
    for row in report["length_normalization"]:
        raw = GOLDEN_RAW_RATIOS[row["length"]]
        digits = 5e-3 if raw > 100 else 5e-5
        checks.append(equal(f"{row['length']} tokens of 1.01: raw ratio", raw, row["raw_ratio"], within=digits))
        checks.append(equal(f"{row['length']} tokens of 1.01: GSPO ratio", 1.01, row["gspo_ratio"], within=1e-12))
    for ratio, golden in zip(("raw", "gspo"), GOLDEN_IDENTITY, strict=True):
        ours = report["is_identity"][f"reweighted_by_{ratio}_ratio"]
        checks.append(equal(f"importance-sampled 0.8 with the {ratio} ratio", golden, ours, within=5e-6))
    for row in report["advantages"]:
        if row["rewards"] == [1.0, 0.0, 0.0, 0.0] and row["kind"] in GOLDEN_ADVANTAGES:
            for i in (0, 1):
                golden = GOLDEN_ADVANTAGES[row["kind"]][i]
                name = f"rewards 1 0 0 0, {row['kind']} std: advantage {i + 1}"
                checks.append(equal(name, golden, row["advantages"][i], within=1e-4))
    return checks


def _table(cancellation: Sequence[dict[str, Any]]) -> Table:
    rows = [["variant", "A", "value", "gradient of token 1", "gradient of token 2"]]
    rows += [
        [
            row["variant"],
            f"{row['advantage']:+d}",
            f"{row['value']:.4f}",
            *(f"{value:.4f}" for value in row["gradient"]),
        ]
        for row in cancellation
    ]
    return Table(title="two tokens with ratios 0.5 and 2", rows=rows)
