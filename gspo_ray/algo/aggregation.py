"""How per-sequence values add up to one loss. The divisors are those of the whole mini-batch, fixed before any split,
so that micro-batches and ranks add up to the same number however the rows are cut."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

Aggregation = Literal["sequence_mean", "token_mean", "constant_length"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Divisor:
    """Counts of a whole mini-batch; sequences whose advantage is zero are in them."""

    num_sequences: int
    num_tokens: int  # completion tokens
    max_tokens: int  # the length that `constant_length` divides by, usually the sampling limit


def sequence_weights(lens_B: Tensor, aggregation: Aggregation, divisor: Divisor) -> Tensor:
    """[B]: the weight of each sequence's token mean in the loss, for completions of `lens_B` tokens.

    sequence_mean    1 / N                     every answer counts alike (GSPO paper, eq. 5)
    token_mean       n / (tokens of all N)     every token counts alike: long answers weigh more (DAPO, eq. 8)
    constant_length  n / (N * max_tokens)      token sums over a constant (Dr. GRPO)

    Raises ValueError for a divisor that is smaller than what is divided: it was taken after rows were dropped, or from
    another sampling limit.
    """
    lens_B = lens_B.double()
    if divisor.num_sequences < len(lens_B) or divisor.num_tokens < int(lens_B.sum()):
        raise ValueError(
            f"the divisor ({divisor.num_sequences} sequences, {divisor.num_tokens} tokens) is smaller than the batch "
            f"({len(lens_B)} sequences, {int(lens_B.sum())} tokens)"
        )
    if aggregation == "sequence_mean":
        return torch.full_like(lens_B, 1 / divisor.num_sequences)
    if aggregation == "token_mean":
        return lens_B / divisor.num_tokens
    if aggregation != "constant_length":
        raise ValueError(f"unknown aggregation {aggregation!r}, known are {', '.join(get_args(Aggregation))}")
    if bool((lens_B > divisor.max_tokens).any()):
        row = int(lens_B.argmax())
        raise ValueError(f"row {row} has {int(lens_B[row])} tokens, more than the divisor's {divisor.max_tokens}")
    return lens_B / (divisor.num_sequences * divisor.max_tokens)
