"""The GSPO objective (arXiv:2507.18071, eqs. 5 and 7). Numbers in, tensors out; no config, no model."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class SequenceTerms(NamedTuple):
    """Per sequence, detached: what the loss was made of."""

    log_ratio_B: Tensor  # log s_i
    clipped_B: Tensor  # bool: the clip cuts this sequence's gradient to zero


def sequence_log_ratio(logprobs_BT: Tensor, old_logprobs_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """log s_i = (1 / |y_i|) * sum_t (log pi_theta - log pi_old), [B] (eq. 7).

    Padding is replaced before any arithmetic: NaN * 0 is NaN. Raises ValueError for an empty completion or a
    log-prob that is not finite on a real token.
    """
    lens_B = mask_BT.sum(-1)
    if not bool((lens_B > 0).all()):
        raise ValueError(f"completion without tokens in row {int((lens_B == 0).nonzero()[0])}")
    diff_BT = torch.where(mask_BT, logprobs_BT, 0.0) - torch.where(mask_BT, old_logprobs_BT, 0.0).detach()
    if not bool(diff_BT.isfinite().all()):
        row, position = (~diff_BT.isfinite()).nonzero()[0].tolist()
        raise ValueError(f"log-prob of token {position} in row {row} is not finite")
    return diff_BT.sum(-1) / lens_B


def gspo_loss(
    logprobs_BT: Tensor,
    old_logprobs_BT: Tensor,
    mask_BT: Tensor,
    advantages_B: Tensor,
    *,
    eps_low: float,
    eps_high: float,
    num_sequences: int,
) -> tuple[Tensor, SequenceTerms]:
    """-(1 / num_sequences) * sum_i min(s_i A_i, clip(s_i, 1 - eps_low, 1 + eps_high) A_i)   (eq. 5, to be minimised).

    `num_sequences` is the size of the whole mini-batch, sequences with zero advantage included, so that micro-batches
    add up to it however they are cut. Old log-probs and advantages get no gradient.
    Raises ValueError for a ratio that overflows: clamping it would train on a wrong number in silence.
    """
    log_ratio_B = sequence_log_ratio(logprobs_BT, old_logprobs_BT, mask_BT)
    ratio_B = log_ratio_B.exp()
    if not bool(ratio_B.isfinite().all()):
        row = int((~ratio_B.isfinite()).nonzero()[0])
        raise ValueError(f"sequence ratio exp({float(log_ratio_B[row]):.1f}) in row {row} overflows")
    advantages_B = advantages_B.detach()
    unclipped_B = ratio_B * advantages_B
    clipped_B = ratio_B.clamp(1 - eps_low, 1 + eps_high) * advantages_B
    loss = -torch.minimum(unclipped_B, clipped_B).sum() / num_sequences
    return loss, SequenceTerms(log_ratio_B.detach(), (clipped_B < unclipped_B).detach())
