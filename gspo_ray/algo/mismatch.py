"""Corrections for the numeric gap between the engine that sampled and the learner that scores.

Not the policy ratio: that compares the learner with itself before the update. Here the learner at the sampling weights
is compared with the engine's own log-probs; both ought to be equal and never quite are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from gspo_ray.algo.losses import token_log_ratio

MismatchMode = Literal["none", "sequence_truncate", "sequence_mask", "token_truncate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MismatchCorrection:
    mode: MismatchMode = "none"
    cap: float = 2.0  # largest weight of the truncating modes
    band_low: float = 0.99  # sequence_mask keeps a sequence whose weight lies in [band_low, band_high]
    band_high: float = 1.01

    def __post_init__(self) -> None:
        if self.mode not in get_args(MismatchMode):
            raise ValueError(f"unknown mismatch mode {self.mode!r}, known are {', '.join(get_args(MismatchMode))}")


class MismatchWeights(NamedTuple):
    """Detached. `weights` multiplies the objective of a sequence [B] or of a token [B, T]."""

    weights: Tensor
    raw_B: Tensor  # before truncation or mask; token_truncate: mean over the tokens
    touched_tokens_B: Tensor  # int64, tokens whose weight was cut or masked


def mismatch_weights(
    learner_logprobs_BT: Tensor, sampler_logprobs_BT: Tensor, mask_BT: Tensor, correction: MismatchCorrection
) -> MismatchWeights:
    """How much more probable the learner, at the sampling weights, finds what the engine drew.

    sequence_truncate  min(w_i, cap), w_i = exp(mean_t gap): the length-normalised weight. The plain product
                       exp(sum_t gap) vanishes or explodes with length and would switch learning off in silence.
    sequence_mask      1 inside [band_low, band_high] of w_i, else 0; a masked sequence stays in the divisor
    token_truncate     min(exp(gap_t), cap) for each token (truncated importance sampling)

    Raises ValueError for a log-prob that is not finite on a real token.
    """
    gap_BT = token_log_ratio(learner_logprobs_BT, sampler_logprobs_BT, mask_BT).detach()
    lens_B = mask_BT.sum(-1)
    if correction.mode == "token_truncate":
        raw_BT = gap_BT.exp()
        cut_BT = mask_BT & (raw_BT > correction.cap)
        raw_B = torch.where(mask_BT, raw_BT, 0.0).sum(-1) / lens_B
        return MismatchWeights(raw_BT.clamp(max=correction.cap), raw_B, cut_BT.sum(-1))
    raw_B = (gap_BT.sum(-1) / lens_B).exp()
    if correction.mode == "sequence_truncate":
        return MismatchWeights(raw_B.clamp(max=correction.cap), raw_B, (raw_B > correction.cap) * lens_B)
    if correction.mode == "sequence_mask":
        kept_B = (raw_B >= correction.band_low) & (raw_B <= correction.band_high)
        return MismatchWeights(kept_B.to(raw_B.dtype), raw_B, ~kept_B * lens_B)
    return MismatchWeights(torch.ones_like(raw_B), raw_B, torch.zeros_like(lens_B))
