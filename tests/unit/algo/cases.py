"""Ragged batches for the tests of the objective: random rows, the same rows as tensors, one call of the loss."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gspo_ray.algo.advantages import AdvantageKind
from gspo_ray.algo.aggregation import Aggregation, Divisor
from gspo_ray.algo.batch import TrainBatch
from gspo_ray.algo.kl import KlEstimator
from gspo_ray.algo.losses import LossTerms, Objective, Variant, policy_loss
from gspo_ray.types import Group
from tests.unit.algo.oracle import Array, Row
from tests.unit.factories import make_group

VARIANTS: tuple[Variant, ...] = ("gspo", "gspo_token", "grpo")
AGGREGATIONS: tuple[Aggregation, ...] = ("sequence_mean", "token_mean", "constant_length")
KINDS: tuple[AdvantageKind, ...] = ("sample", "population", "mean_only", "leave_one_out", "batch")
ESTIMATORS: tuple[KlEstimator, ...] = ("k1", "k2", "k3")


class Batch(NamedTuple):
    """What goes into one call of the loss, padded."""

    logprobs_BT: Tensor
    old_BT: Tensor
    mask_BT: Tensor
    advantages_B: Tensor
    advantages_BT: Tensor
    weights_BT: Tensor
    reference_BT: Tensor

    def rows(self, index: Sequence[int]) -> Batch:
        return Batch(*(tensor[list(index)] for tensor in self))

    def divisor(self, *, more_sequences: int = 0, more_tokens: int = 0, max_tokens: int = 20) -> Divisor:
        """The counts of these rows, and of others that were not computed."""
        return Divisor(
            num_sequences=len(self.mask_BT) + more_sequences,
            num_tokens=int(self.mask_BT.sum()) + more_tokens,
            max_tokens=max_tokens,
        )


class Result(NamedTuple):
    loss: Tensor
    grad_BT: Tensor
    terms: LossTerms


def random_rows(
    seed: int, lens: Sequence[int], *, spread: float, advantages: Sequence[float] | None = None
) -> list[Row]:
    """Log-probs that differ from the old ones by about `spread` a token; one advantage a row."""
    rng = np.random.default_rng(seed)
    if advantages is None:
        advantages = rng.choice([-1.5, -0.5, 0.7, 1.1], size=len(lens)).tolist()
    rows = []
    for n, advantage in zip(lens, advantages, strict=True):
        logp = -rng.uniform(0.05, 2.5, n)
        rows.append(
            Row(
                logp=logp,
                old=logp - spread * rng.standard_normal(n),
                advantages=np.full(n, advantage),
                weights=np.ones(n),
                reference=logp - 0.3 * rng.standard_normal(n),
            )
        )
    return rows


def with_token_numbers(rows: Sequence[Row], seed: int) -> list[Row]:
    """The same rows with an advantage and a weight of its own for every token."""
    rng = np.random.default_rng(seed)
    return [
        replace(row, advantages=rng.standard_normal(len(row.logp)), weights=rng.uniform(0.1, 2, len(row.logp)))
        for row in rows
    ]


def tensors(rows: Sequence[Row], *, dtype: torch.dtype = torch.float64, padding: float = math.nan) -> Batch:
    """Padded with NaN unless told otherwise: whoever reads it is found out."""
    width = max(len(row.logp) for row in rows)

    def pad(arrays: Sequence[Array]) -> Tensor:
        padded = np.full((len(arrays), width), padding)
        for line, array in zip(padded, arrays, strict=True):
            line[: len(array)] = array
        return torch.tensor(padded, dtype=dtype)

    lens_B = torch.tensor([len(row.logp) for row in rows])
    return Batch(
        logprobs_BT=pad([row.logp for row in rows]),
        old_BT=pad([row.old for row in rows]),
        mask_BT=torch.arange(width) < lens_B[:, None],
        advantages_B=torch.tensor([row.advantages[0] for row in rows], dtype=dtype),
        advantages_BT=pad([row.advantages for row in rows]),
        weights_BT=pad([row.weights for row in rows]),
        reference_BT=pad([row.reference for row in rows]),
    )


def random_batch(
    seed: int = 0,
    lens: Sequence[int] = (5, 2, 7, 1),
    *,
    spread: float = 3e-4,
    dtype: torch.dtype = torch.float64,
    padding: float = math.nan,
) -> Batch:
    return tensors(random_rows(seed, lens, spread=spread), dtype=dtype, padding=padding)


def run(
    batch: Batch,
    objective: Objective,
    divisor: Divisor,
    *,
    advantages: Tensor | None = None,
    weights: Tensor | None = None,
    reference: Tensor | None = None,
) -> Result:
    """Loss and gradient with respect to the current log-probs."""
    logprobs_BT = batch.logprobs_BT.detach().clone().requires_grad_(True)
    loss, terms = policy_loss(
        logprobs_BT,
        batch.old_BT,
        batch.mask_BT,
        batch.advantages_B if advantages is None else advantages,
        objective=objective,
        divisor=divisor,
        weights=weights,
        reference_logprobs_BT=reference,
    )
    loss.backward()
    assert logprobs_BT.grad is not None
    return Result(loss.detach(), logprobs_BT.grad, terms)


def ragged_groups() -> list[Group]:
    """Three groups of two; b is degenerate. Prompts of 4, 1, 2 tokens."""
    return [
        make_group((1.0, 0.0), [(20, 21), (22,)], problem_id="a", prompt_ids=(1, 2, 3, 4)),
        make_group((1.0, 1.0), [(30, 31, 32), (33, 34)], problem_id="b", prompt_ids=(5,)),
        make_group((0.0, 1.0), [(40, 41, 42, 43, 44), (45, 46)], problem_id="c", prompt_ids=(6, 7)),
    ]


def row_tokens(batch: TrainBatch, row: int) -> tuple[list[int], list[int]]:
    """(prompt, completion) of a row, read by its lengths alone."""
    m, n = int(batch.prompt_lens_B[row]), int(batch.completion_lens_B[row])
    ids = batch.token_ids_BL[row].tolist()
    return ids[:m], ids[m : m + n]
