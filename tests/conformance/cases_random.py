"""Ragged batches of random numbers, for what no hand-made case would notice. All numbers are decimals with six places,
from `Random.random()` alone: the one generator whose sequence Python guarantees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.conformance.cases_by_hand import NO_KL, PAPER, WIDE
from tests.conformance.oracle import Case

RAGGED = (1, 2, 7, 64, 250, 2000)  # tokens
SHORT = (3, 1, 6, 4)
REFERENCE_NOISE = 0.8


@dataclass
class Batch:
    lengths: Sequence[int]
    inputs: dict[str, Any]

    @property
    def divisor(self) -> dict[str, int]:
        return {
            "num_sequences": len(self.lengths),
            "num_tokens": sum(self.lengths),
            "max_tokens": max(self.lengths),
        }

    def rows(self, start: int, stop: int) -> Batch:
        return Batch(self.lengths[start:stop], {name: rows[start:stop] for name, rows in self.inputs.items()})


def draw(seed: int, lengths: Sequence[int], *, token_noise: float, sequence_drift: float) -> Batch:
    """Token log-ratios scatter by half of `token_noise` around the row's drift, drifts by half of `sequence_drift`."""
    rng = Random(seed)

    def symmetric(scale: float) -> float:
        """Within 1.5 * scale of 0, standard deviation scale / 2."""
        return (rng.random() + rng.random() + rng.random() - 1.5) * scale

    below_zero = 1.5 * max(token_noise + sequence_drift, REFERENCE_NOISE) + 0.01  # no log-prob comes out positive
    old = [[round(-4 * rng.random() ** 2 - below_zero, 6) for _ in range(n)] for n in lengths]
    drift = [symmetric(sequence_drift) for _ in lengths]
    new = [[round(o + d + symmetric(token_noise), 6) for o in row] for row, d in zip(old, drift, strict=True)]
    reference = [[round(o + symmetric(REFERENCE_NOISE), 6) for o in row] for row in old]
    return Batch(
        lengths,
        {
            "logprobs": new,
            "old_logprobs": old,
            "mask": [[1] * n for n in lengths],
            "advantages": [round(symmetric(3.0), 6) for _ in lengths],
            "reference_logprobs": reference,
        },
    )


def loss_case(
    name: str,
    description: str,
    batch: Batch,
    settings: dict[str, Any],
    *,
    divisor: dict[str, int] | None = None,
    **replaced: Any,
) -> Case:
    inputs = {**batch.inputs, **replaced}
    if "kl_coef" not in settings:
        del inputs["reference_logprobs"]
    return {
        "name": name,
        "kind": "loss",
        "description": description,
        "settings": {**NO_KL, **settings},
        "divisor": divisor or batch.divisor,
        "inputs": inputs,
    }


def ragged() -> list[Case]:
    """1 to 2000 tokens in a batch. Drift and noise put sequence ratios on both sides of both bounds."""
    batch = draw(1, RAGGED, token_noise=0.002, sequence_drift=0.002)
    wide = draw(20, RAGGED[:-1], token_noise=0.6, sequence_drift=1.2)
    per_token = [
        [round((1 - t / n) * (1 if row % 2 else -1), 6) for t in range(n)] for row, n in enumerate(RAGGED[:-1])
    ]
    return [
        loss_case("ragged_gspo", "The paper's setting on 1 to 2000 tokens.", batch, PAPER),
        loss_case(
            "ragged_gspo_token_mean",
            "The same batch; a token counts alike wherever it stands, so the longest answer has most of the loss.",
            batch,
            {**PAPER, "aggregation": "token_mean"},
        ),
        loss_case(
            "ragged_gspo_constant_length",
            "The same batch; token sums over N * max_tokens, with a limit above the longest answer.",
            batch,
            {**PAPER, "aggregation": "constant_length"},
            divisor={**batch.divisor, "max_tokens": 2048},
        ),
        loss_case(
            "ragged_gspo_wide",
            "1 to 250 tokens, token ratios far from 1, eps 0.2 / 0.28.",
            wide,
            WIDE,
        ),
        loss_case(
            "ragged_gspo_token",
            "1 to 250 tokens, an advantage for each token that falls along the answer: gspo_token.",
            wide,
            {**WIDE, "variant": "gspo_token"},
            advantages=per_token,
        ),
        loss_case(
            "ragged_grpo",
            "The token ratio with the wide band, mean over the tokens of a sequence, then over sequences (GRPO).",
            wide,
            {**WIDE, "variant": "grpo"},
        ),
        loss_case(
            "ragged_grpo_token_mean",
            "The token ratio, every token counting alike (DAPO).",
            wide,
            {**WIDE, "variant": "grpo", "aggregation": "token_mean"},
        ),
        loss_case(
            "ragged_grpo_constant_length",
            "The token ratio, an advantage for each token, token sums over N * max_tokens (Dr. GRPO).",
            wide,
            {**WIDE, "variant": "grpo", "aggregation": "constant_length"},
            advantages=per_token,
        ),
    ]


def divisors() -> list[Case]:
    """A rollout batch of 8 in groups of 4; the second group has equal rewards."""
    batch = draw(45, (5, 2, 9, 4, 7, 3, 8, 6), token_noise=0.002, sequence_drift=0.002)
    batch.inputs["advantages"][4:] = [0.0] * 4
    whole = batch.divisor
    other = draw(17, (5, 2, 9, 4, 7, 3), token_noise=0.002, sequence_drift=0.002)
    own = other.rows(0, 4).divisor
    return [
        loss_case("degenerate_group_computed", "Rows 5 to 8 have advantage 0: no gradient, but N = 8.", batch, PAPER),
        loss_case(
            "degenerate_group_left_out",
            "The same without computing rows 5 to 8, N still 8: loss and gradient of degenerate_group_computed.",
            batch.rows(0, 4),
            PAPER,
            divisor=whole,
        ),
        loss_case(
            "degenerate_group_left_out_token_mean",
            "The same for token means: the tokens of the rows left out stay in the divisor.",
            batch.rows(0, 4),
            {**PAPER, "aggregation": "token_mean"},
            divisor=whole,
        ),
        loss_case(
            "minibatch",
            "The first 4 of 6 rows as a mini-batch: one optimizer update, divided by its own 4.",
            other.rows(0, 4),
            PAPER,
            divisor=own,
        ),
        loss_case(
            "minibatch_first_micro_batch",
            "Rows 1 to 3 of that mini-batch, N = 4: adds up with the next case to `minibatch`.",
            other.rows(0, 3),
            PAPER,
            divisor=own,
        ),
        loss_case(
            "minibatch_second_micro_batch",
            "Row 4 of that mini-batch, N = 4.",
            other.rows(3, 4),
            PAPER,
            divisor=own,
        ),
    ]


def kl() -> list[Case]:
    batch = draw(11, SHORT, token_noise=0.6, sequence_drift=0.9)
    batch.inputs["advantages"][0] = 0.0
    made = [
        loss_case(
            f"kl_{estimator}",
            f"Policy term plus 0.05 * {estimator} to a reference; row 1 has advantage 0 and is pulled all the same.",
            batch,
            {**WIDE, "kl_coef": 0.05, "kl_estimator": estimator},
        )
        for estimator in ("k1", "k2", "k3")
    ]
    return [
        *made,
        loss_case(
            "kl_k3_token_mean",
            "The KL term is aggregated as the policy term is.",
            batch,
            {**WIDE, "variant": "grpo", "aggregation": "token_mean", "kl_coef": 0.05, "kl_estimator": "k3"},
        ),
    ]


def padding() -> list[Case]:
    """One batch without padding, and with padding and holes that must not be read."""
    batch = draw(6, SHORT, token_noise=0.6, sequence_drift=0.5)
    names = ("logprobs", "old_logprobs", "reference_logprobs")
    width = max(batch.lengths)

    def filled(fill: float | None) -> dict[str, Any]:
        return {
            **{name: [row + [fill] * (width - len(row)) for row in batch.inputs[name]] for name in names},
            "mask": [row + [0] * (width - len(row)) for row in batch.inputs["mask"]],
        }

    def with_hole(row: list[Any], value: Any) -> list[Any]:
        return [row[0], value, *row[1:]]

    holes: dict[str, Any] = {name: [with_hole(row, None) for row in batch.inputs[name]] for name in names}
    with_kl = {**WIDE, "kl_coef": 0.05, "kl_estimator": "k3"}
    return [
        loss_case("padding_none", "No padding.", batch, WIDE),
        loss_case("padding_null", "null = NaN after the last token: as padding_none.", batch, WIDE, **filled(None)),
        loss_case("padding_huge", "1e30 after the last token: as padding_none.", batch, WIDE, **filled(1e30)),
        loss_case(
            "mask_with_holes",
            "null and mask 0 in second place of every row (a tool's output): the loss of padding_none; lengths count "
            "the ones of the mask.",
            batch,
            WIDE,
            **holes,
            mask=[with_hole(row, 0) for row in batch.inputs["mask"]],
        ),
        loss_case("padding_null_with_kl", "A reference with null in its padding too.", batch, with_kl, **filled(None)),
        loss_case("padding_huge_with_kl", "The same with 1e30.", batch, with_kl, **filled(1e30)),
    ]


def mismatch() -> list[Case]:
    batch = draw(7, SHORT, token_noise=1.5, sequence_drift=1.2)
    inputs = {
        "learner_logprobs": batch.inputs["logprobs"],
        "sampler_logprobs": batch.inputs["old_logprobs"],
        "mask": batch.inputs["mask"],
    }
    about = {
        "none": "Weight 1; the ratio is measured all the same.",
        "sequence_truncate": "min(exp(mean gap), cap): the length-normalised ratio, not the product.",
        "sequence_mask": "1 inside the band, 0 outside.",
        "token_truncate": "min(exp(gap), cap) for each token; `raw` is its mean before the cut.",
    }
    made: list[Case] = [
        {
            "name": f"mismatch_{mode}",
            "kind": "mismatch_weights",
            "description": text,
            "settings": {"mode": mode, "cap": 1.25, "band_low": 0.8, "band_high": 1.25},
            "inputs": inputs,
        }
        for mode, text in about.items()
    ]
    after = draw(3, SHORT, token_noise=0.6, sequence_drift=0.9)
    return [
        *made,
        loss_case("mismatch_gspo", "gspo with a weight for each sequence.", after, WIDE, weights=[1.25, 0.0, 0.9, 1.1]),
        loss_case(
            "mismatch_gspo_token",
            "gspo_token with a weight for each token.",
            after,
            {**WIDE, "variant": "gspo_token"},
            weights=[[round(0.5 + 0.25 * t, 6) for t in range(n)] for n in SHORT],
        ),
        loss_case(
            "mismatch_with_kl",
            "The weights multiply the policy term, not the KL term.",
            after,
            {**WIDE, "kl_coef": 0.05, "kl_estimator": "k3"},
            weights=[1.25, 0.0, 0.9, 1.1],
        ),
    ]
