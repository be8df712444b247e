"""Cases that can be followed with a pocket calculator. `by_hand` repeats what the description derives; the oracle must
come to the same. Old log-probs are -2 everywhere, so that the log-prob of a token is its log-ratio less 2."""

from __future__ import annotations

from math import exp, log
from typing import Any

from tests.conformance.oracle import Case

PAPER = {"variant": "gspo", "aggregation": "sequence_mean", "eps_low": 3e-4, "eps_high": 4e-4}
WIDE = {**PAPER, "eps_low": 0.2, "eps_high": 0.28}
NO_KL = {"kl_coef": 0.0, "kl_estimator": "k3"}

Rows = list[list[float]]


def loss_case(
    name: str,
    description: str,
    log_ratios: Rows,
    advantages: list[Any],
    *,
    settings: dict[str, Any] = PAPER,
    weights: list[Any] | None = None,
    reference: Rows | None = None,
    divisor: dict[str, int] | None = None,
    by_hand: tuple[float, Rows],
) -> Case:
    mask = [[1] * len(row) for row in log_ratios]
    inputs: dict[str, Any] = {
        "logprobs": [[round(value - 2, 12) for value in row] for row in log_ratios],
        "old_logprobs": [[-2.0] * len(row) for row in log_ratios],
        "mask": mask,
        "advantages": advantages,
    }
    if weights is not None:
        inputs["weights"] = weights
    if reference is not None:
        inputs["reference_logprobs"] = reference
    tokens = sum(map(sum, mask))
    return {
        "name": name,
        "kind": "loss",
        "description": description,
        "settings": {**settings, **{key: value for key, value in NO_KL.items() if key not in settings}},
        "divisor": divisor or {"num_sequences": len(mask), "num_tokens": tokens, "max_tokens": max(map(len, mask))},
        "inputs": inputs,
        "by_hand": by_hand,
    }


def clip_corners() -> list[Case]:
    up, down = "mean log-ratio (0.002 + 0) / 2 = 0.001, s = 1.0010005", "mean log-ratio -0.001, s = 0.9990005"
    return [
        loss_case(
            "clip_above_rewarded",
            f"{up}, above 1.0004. A = +1: min(1.0010005, 1.0004) = 1.0004, a constant: no gradient.",
            [[0.002, 0.0]],
            [1.0],
            by_hand=(-1.0004, [[0.0, 0.0]]),
        ),
        loss_case(
            "clip_above_punished",
            f"{up}. A = -1: min(-1.0010005, -1.0004) = -1.0010005, not clipped; each of 2 tokens gets s / 2.",
            [[0.002, 0.0]],
            [-1.0],
            by_hand=(exp(0.001), [[exp(0.001) / 2] * 2]),
        ),
        loss_case(
            "clip_below_rewarded",
            f"{down}, below 0.9997. A = +1: min(0.9990005, 0.9997) = 0.9990005, not clipped; -s / 2 a token.",
            [[-0.002, 0.0]],
            [1.0],
            by_hand=(-exp(-0.001), [[-exp(-0.001) / 2] * 2]),
        ),
        loss_case(
            "clip_below_punished",
            f"{down}. A = -1: min(-0.9990005, -0.9997) = -0.9997, a constant: no gradient.",
            [[-0.002, 0.0]],
            [-1.0],
            by_hand=(0.9997, [[0.0, 0.0]]),
        ),
        loss_case(
            "clip_asymmetric_above",
            "s = exp(0.00035) = 1.00035006 lies between 1 + eps_low and 1 + eps_high: kept. Cut with low and high "
            "swapped, or with one eps for both sides.",
            [[0.00035]],
            [1.0],
            by_hand=(-exp(0.00035), [[-exp(0.00035)]]),
        ),
        loss_case(
            "clip_asymmetric_below",
            "s = exp(-0.00035) = 0.99965006 lies between 1 - eps_high and 1 - eps_low; A = -1: cut at 0.9997.",
            [[-0.00035]],
            [-1.0],
            by_hand=(0.9997, [[0.0]]),
        ),
        loss_case(
            "clip_four_corners_wide",
            "eps 0.2 / 0.28, N = 4, ratios 1.5, 1.5, 0.5, 0.5, A = +2, -2, +2, -2. Objective: (1.28 * 2 - 1.5 * 2 + "
            "0.5 * 2 - 0.8 * 2) / 4 = -0.26. Gradients -r A / 4: 0 (cut), 0.75, -0.25, 0 (cut).",
            [[log(1.5)], [log(1.5)], [log(0.5)], [log(0.5)]],
            [2.0, -2.0, 2.0, -2.0],
            settings=WIDE,
            by_hand=(0.26, [[0.0], [0.75], [-0.25], [0.0]]),
        ),
        loss_case(
            "first_update",
            "Log-probs equal the old ones: s = 1 whatever the length. Loss -(1.5 - 0.5 + 0.25) / 3, gradient "
            "-A / (N n): -1.5 / 3, 0.5 / 6 a token, -0.25 / 12 a token.",
            [[0.0], [0.0] * 2, [0.0] * 4],
            [1.5, -0.5, 0.25],
            by_hand=(-1.25 / 3, [[-0.5], [0.5 / 6] * 2, [-0.25 / 12] * 4]),
        ),
    ]


def ratios() -> list[Case]:
    return [
        loss_case(
            "cancellation_gspo",
            "Token ratios e and 1/e cancel: s = 1, nothing is clipped, each token gets -1 / 2.",
            [[1.0, -1.0]],
            [1.0],
            by_hand=(-1.0, [[-0.5, -0.5]]),
        ),
        loss_case(
            "cancellation_grpo",
            "The same tokens with a ratio each: e is cut at 1.0004, 1/e stays. Loss -(1.0004 + 1/e) / 2.",
            [[1.0, -1.0]],
            [1.0],
            settings={**PAPER, "variant": "grpo"},
            by_hand=(-(1.0004 + exp(-1)) / 2, [[0.0, -exp(-1) / 2]]),
        ),
        loss_case(
            "length_normalisation",
            "Log-ratio 0.0002 on every token, lengths 1, 10, 100: s = exp(0.0002) each, inside the band, -s / (3 n) a "
            "token. Without the 1 / n in the exponent the longest would have s = exp(0.02) and be cut.",
            [[0.0002] * 1, [0.0002] * 10, [0.0002] * 100],
            [1.0, 1.0, 1.0],
            by_hand=(-exp(0.0002), [[-exp(0.0002) / 3 / n] * n for n in (1, 10, 100)]),
        ),
        loss_case(
            "gspo_token_signs",
            "One ratio s = exp(0.001) for both tokens, an advantage each: +1 is cut at 1.0004, -1 is not. "
            "Loss -(1.0004 - s) / 2, gradient 0 and s / 2.",
            [[0.002, 0.0]],
            [[1.0, -1.0]],
            settings={**PAPER, "variant": "gspo_token"},
            by_hand=(-(1.0004 - exp(0.001)) / 2, [[0.0, exp(0.001) / 2]]),
        ),
        loss_case(
            "gspo_token_equals_gspo",
            "clip_above_punished in the token form, the advantage constant: the same loss and gradient.",
            [[0.002, 0.0]],
            [[-1.0, -1.0]],
            settings={**PAPER, "variant": "gspo_token"},
            by_hand=(exp(0.001), [[exp(0.001) / 2] * 2]),
        ),
    ]


def aggregations() -> list[Case]:
    short_and_long: dict[str, Any] = {"log_ratios": [[0.0], [0.0] * 3], "advantages": [1.0, -1.0]}
    divisor = {"num_sequences": 2, "num_tokens": 4, "max_tokens": 5}
    return [
        loss_case(
            "aggregation_sequence_mean",
            "Lengths 1 and 3, A = +1 and -1, s = 1. Every answer counts alike: -(1 - 1) / 2; -1/2, then 1/6 thrice.",
            **short_and_long,
            divisor=divisor,
            by_hand=(0.0, [[-1 / 2], [1 / 6] * 3]),
        ),
        loss_case(
            "aggregation_token_mean",
            "The same; every token counts alike: -(1 - 3) / 4 = 0.5; -1/4, then 1/4 thrice.",
            **short_and_long,
            divisor=divisor,
            settings={**PAPER, "aggregation": "token_mean"},
            by_hand=(0.5, [[-1 / 4], [1 / 4] * 3]),
        ),
        loss_case(
            "aggregation_constant_length",
            "The same; token sums over N * max_tokens = 10: -(1 - 3) / 10 = 0.2; -1/10, then 1/10 thrice.",
            **short_and_long,
            divisor=divisor,
            settings={**PAPER, "aggregation": "constant_length"},
            by_hand=(0.2, [[-1 / 10], [1 / 10] * 3]),
        ),
        loss_case(
            "rows_left_out_of_the_batch",
            "The two rows again, out of a mini-batch of 8 whose other 6 have advantage 0 and were not computed: "
            "the divisor stays 8. -1/8, then 1/24 thrice.",
            **short_and_long,
            divisor={"num_sequences": 8, "num_tokens": 40, "max_tokens": 5},
            by_hand=(0.0, [[-1 / 8], [1 / 24] * 3]),
        ),
    ]


def kl() -> list[Case]:
    about = "One token, log-prob -2, reference -2.5, x = -0.5, A = 0, coefficient 2. "
    values = {
        "k1": ("k1 = -x = 0.5, slope 1.", 1.0, 2.0),
        "k2": ("k2 = x^2 / 2 = 0.125, slope -x = 0.5.", 0.25, 1.0),
        "k3": (
            "k3 = exp(x) - x - 1 = 0.1065307, slope 1 - exp(x) = 0.3934693.",
            2 * (exp(-0.5) - 0.5),
            2 - 2 * exp(-0.5),
        ),
    }
    return [
        loss_case(
            f"kl_{estimator}_alone",
            about + text,
            [[0.0]],
            [0.0],
            reference=[[-2.5]],
            settings={**PAPER, "kl_coef": 2.0, "kl_estimator": estimator},
            by_hand=(loss, [[slope]]),
        )
        for estimator, (text, loss, slope) in values.items()
    ]


def weighted() -> list[Case]:
    return [
        loss_case(
            "weights_a_sequence",
            "s = 1, A = 1 and -1, weights 2 and 0.5 multiply the policy term: -(2 - 0.5) / 2; -2/2, 0.5/4 a token.",
            [[0.0], [0.0, 0.0]],
            [1.0, -1.0],
            weights=[2.0, 0.5],
            by_hand=(-0.75, [[-1.0], [0.125, 0.125]]),
        ),
        loss_case(
            "weights_a_token",
            "grpo, ratios 1 and 1, A = 1, token weights 2 and 0.5: -(2 + 0.5) / 2.",
            [[0.0, 0.0]],
            [1.0],
            weights=[[2.0, 0.5]],
            settings={**PAPER, "variant": "grpo"},
            by_hand=(-1.25, [[-1.0, -0.25]]),
        ),
    ]


def cases() -> list[Case]:
    return [*clip_corners(), *ratios(), *aggregations(), *kl(), *weighted()]
