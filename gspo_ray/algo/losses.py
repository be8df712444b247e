"""The GSPO objective (arXiv:2507.18071, eqs. 5, 7 and 13) and GRPO's token form beside it. Numbers in, tensors out; no
config, no model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from gspo_ray.algo.aggregation import Aggregation, Divisor, sequence_weights
from gspo_ray.algo.kl import KlEstimator, token_kl

Variant = Literal["gspo", "gspo_token", "grpo"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """Which loss. The defaults are the paper's."""

    variant: Variant = "gspo"
    eps_low: float = 3e-4
    eps_high: float = 4e-4
    aggregation: Aggregation = "sequence_mean"
    kl_coef: float = 0.0
    kl_estimator: KlEstimator = "k3"

    def __post_init__(self) -> None:
        if self.variant not in get_args(Variant):
            raise ValueError(f"unknown variant {self.variant!r}, known are {', '.join(get_args(Variant))}")
        if not (0 <= self.eps_low < 1 and self.eps_high >= 0):
            raise ValueError(f"the clip band 1 - {self.eps_low}, 1 + {self.eps_high} does not lie around 1")


class LossTerms(NamedTuple):
    """What the loss was made of, detached. Token counts and sums run over completion tokens only."""

    log_ratio_B: Tensor  # log s_i = mean token log-ratio, whatever the variant
    clipped_tokens_B: Tensor  # int64: tokens whose gradient the clip cuts to zero (all or none in gspo)
    outside_tokens_B: Tensor  # int64: tokens whose ratio lies outside the band, cut or not
    token_log_ratio_min_B: Tensor
    token_log_ratio_max_B: Tensor
    kl_loss: Tensor  # scalar, kl_coef included; 0 without a reference
    kl_k1_sum_B: Tensor | None  # sums over tokens; None without a reference
    kl_k3_sum_B: Tensor | None


def token_log_ratio(logprobs_BT: Tensor, old_logprobs_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """log pi_theta - log pi_old, [B, T]; 0 on padding, whatever it holds.

    Padding is replaced before any arithmetic: NaN * 0 is NaN. Raises ValueError for shapes that differ (they would
    broadcast) and for a log-prob that is not finite on a real token.
    """
    if not logprobs_BT.shape == old_logprobs_BT.shape == mask_BT.shape:
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in (logprobs_BT, old_logprobs_BT, mask_BT))
        raise ValueError(f"log-probs, old log-probs and mask differ in shape: {shapes}")
    diff_BT = torch.where(mask_BT, logprobs_BT, 0.0) - torch.where(mask_BT, old_logprobs_BT, 0.0).detach()
    _require_finite(diff_BT, "log-prob")
    return diff_BT


def sequence_log_ratio(
    logprobs_BT: Tensor, old_logprobs_BT: Tensor, mask_BT: Tensor, *, lens_B: Tensor | None = None
) -> Tensor:
    """log s_i = (1 / |y_i|) * sum_t (log pi_theta - log pi_old), [B] (eq. 7).

    `lens_B`: lengths of the whole completions when the columns are only a chunk of them; chunks then add up.
    Raises ValueError for an empty completion or a log-prob that is not finite on a real token.
    """
    return token_log_ratio(logprobs_BT, old_logprobs_BT, mask_BT).sum(-1) / _lengths(mask_BT, lens_B)


def policy_loss(
    logprobs_BT: Tensor,
    old_logprobs_BT: Tensor,
    mask_BT: Tensor,
    advantages: Tensor,
    *,
    objective: Objective,
    divisor: Divisor,
    weights: Tensor | None = None,
    reference_logprobs_BT: Tensor | None = None,
) -> tuple[Tensor, LossTerms]:
    """-sum_i w_i mean_t min(r A, clip(r, 1 - eps_low, 1 + eps_high) A) + kl_coef sum_i w_i mean_t kl, to be minimised.

    The ratio r: gspo      s_i, one ratio and one clip a sequence (eq. 5)
                 gspo_token  sg(s_i) * pi_theta(y_t) / sg(pi_theta(y_t)): the value of s_i, a gradient for each token
                             (eqs. 13 and 14); equal to gspo when the advantage is constant over the tokens
                 grpo      pi_theta(y_t) / pi_old(y_t)
    w_i: `sequence_weights`. `advantages` is [B], or [B, T] for the two token forms. `weights` ([B], or [B, T] for the
    token forms) multiplies the policy term: `mismatch_weights`. Old and reference log-probs, advantages and weights
    get no gradient.
    Raises ValueError for tensors that do not fit each other, for an empty completion, for a number that is not finite
    on a real token, and for a ratio that overflows: clamping it would train on a wrong number in silence.
    """
    if len(advantages) != len(mask_BT) or (weights is not None and len(weights) != len(mask_BT)):
        raise ValueError(f"{len(mask_BT)} sequences need as many advantages and weights")
    lens_B = _lengths(mask_BT, None)
    diff_BT = token_log_ratio(logprobs_BT, old_logprobs_BT, mask_BT)
    log_ratio_B = diff_BT.sum(-1) / lens_B
    token_form = objective.variant != "gspo"
    if not token_form and (advantages.dim() != 1 or (weights is not None and weights.dim() != 1)):
        raise ValueError("gspo has one advantage and one weight a sequence; per-token ones need gspo_token")
    # U: the units that have a ratio and a clip of their own; tokens, or the sequence as a whole (U = 1).
    mask_BU = mask_BT if token_form else torch.ones_like(mask_BT[:, :1])
    log_BU = diff_BT if token_form else log_ratio_B[:, None]
    if objective.variant == "gspo_token":
        valid_BT = torch.where(mask_BT, logprobs_BT, 0.0)
        log_BU = log_ratio_B.detach()[:, None] + (valid_BT - valid_BT.detach())
    ratio_BU = log_BU.exp()
    surrogate_BU, cut_BU, outside_BU = _clip(ratio_BU, _per_unit(advantages, mask_BU, "advantage"), objective)
    if weights is not None:
        surrogate_BU = surrogate_BU * _per_unit(weights, mask_BU, "weight")
    if not bool((finite_BU := ratio_BU.isfinite() & surrogate_BU.isfinite()).all()):
        row = int((~finite_BU).nonzero()[0][0])
        raise ValueError(f"the ratio exp({float(log_BU[row].detach().max()):.1f}) in row {row} overflows")
    units_B = mask_BU.sum(-1)
    surrogate_B = _mean(surrogate_BU, mask_BU, units_B)
    tokens_a_unit_B = lens_B // units_B
    weights_B = sequence_weights(lens_B, objective.aggregation, divisor).to(surrogate_B.dtype)
    kl_loss, kl_k1_sum_B, kl_k3_sum_B = _kl(logprobs_BT, reference_logprobs_BT, mask_BT, lens_B, weights_B, objective)
    terms = LossTerms(
        log_ratio_B=log_ratio_B.detach(),
        clipped_tokens_B=(cut_BU & mask_BU).sum(-1) * tokens_a_unit_B,
        outside_tokens_B=(outside_BU & mask_BU).sum(-1) * tokens_a_unit_B,
        token_log_ratio_min_B=torch.where(mask_BT, diff_BT.detach(), torch.inf).amin(-1),
        token_log_ratio_max_B=torch.where(mask_BT, diff_BT.detach(), -torch.inf).amax(-1),
        kl_loss=kl_loss.detach(),
        kl_k1_sum_B=kl_k1_sum_B,
        kl_k3_sum_B=kl_k3_sum_B,
    )
    return kl_loss - (weights_B * surrogate_B).sum(), terms


def _lengths(mask_BT: Tensor, lens_B: Tensor | None) -> Tensor:
    lens_B = mask_BT.sum(-1) if lens_B is None else lens_B
    if not bool((lens_B > 0).all()):
        raise ValueError(f"completion without tokens in row {int((lens_B == 0).nonzero()[0])}")
    return lens_B


def _clip(ratio_BU: Tensor, advantages_BU: Tensor, objective: Objective) -> tuple[Tensor, Tensor, Tensor]:
    """min(r A, clip(r) A); whether the clip cuts the gradient; whether r lies outside the band."""
    low, high = 1 - objective.eps_low, 1 + objective.eps_high
    unclipped_BU, clipped_BU = ratio_BU * advantages_BU, ratio_BU.clamp(low, high) * advantages_BU
    outside_BU = (ratio_BU < low) | (ratio_BU > high)
    return torch.minimum(unclipped_BU, clipped_BU), (clipped_BU < unclipped_BU).detach(), outside_BU.detach()


def _kl(
    logprobs_BT: Tensor,
    reference_logprobs_BT: Tensor | None,
    mask_BT: Tensor,
    lens_B: Tensor,
    weights_B: Tensor,
    objective: Objective,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The KL term of the loss, and the sums over tokens of k1 and k3 for the log."""
    if reference_logprobs_BT is None:
        if objective.kl_coef:
            raise ValueError("a KL term needs reference log-probs")
        return logprobs_BT.new_zeros(()), None, None
    reference_BT = torch.where(mask_BT, reference_logprobs_BT, 0.0)
    policy_BT = torch.where(mask_BT, logprobs_BT, 0.0)
    _require_finite(reference_BT, "reference log-prob")
    kl_BT = token_kl(policy_BT, reference_BT, objective.kl_estimator)
    _require_finite(kl_BT.detach(), f"the {objective.kl_estimator} estimate of the KL term")
    loss = objective.kl_coef * (weights_B * _mean(kl_BT, mask_BT, lens_B)).sum()
    sums = [token_kl(policy_BT.detach(), reference_BT, kind).sum(-1) for kind in ("k1", "k3")]
    return loss, sums[0], sums[1]


def _per_unit(values: Tensor, mask_BU: Tensor, name: str) -> Tensor:
    """[B] or [B, U] to detached [B, U], 0 on padding."""
    values_BU = torch.where(mask_BU, values if values.dim() == 2 else values[:, None], 0.0).detach()
    _require_finite(values_BU, name)
    return values_BU


def _require_finite(values_BU: Tensor, name: str) -> None:
    if not bool((finite_BU := values_BU.isfinite()).all()):
        row, column = (~finite_BU).nonzero()[0].tolist()
        where = f"of token {column} in row {row}" if values_BU.shape[1] > 1 else f"in row {row}"
        raise ValueError(f"{name} {where} is not finite")


def _mean(values_BU: Tensor, mask_BU: Tensor, counts_B: Tensor) -> Tensor:
    return torch.where(mask_BU, values_BU, 0.0).sum(-1) / counts_B
