"""Published settings of the loss, and the gradient that each takes from the same recorded rollouts.

Legend: B sequences, T tokens of the longest; gradients are for the log-prob of each token.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from gspo_ray.algo.advantages import AdvantageKind, group_advantages
from gspo_ray.algo.aggregation import Divisor
from gspo_ray.algo.losses import Objective, policy_loss
from gspo_ray.errors import DataError
from gspo_ray.lab.recorded import Recorded


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    label: str
    objective: Objective
    advantages: AdvantageKind = "sample"


PAPER = "gspo"  # what the others are compared with
TOKEN_MEAN = "gspo_token_mean"
SETTINGS = {
    PAPER: Setting(label="GSPO, as published", objective=Objective()),
    TOKEN_MEAN: Setting(label="GSPO, token mean", objective=Objective(aggregation="token_mean")),
    "gspo_token": Setting(label="GSPO-token", objective=Objective(variant="gspo_token")),
    "gspo_eps_0.2": Setting(label="GSPO, band 0.2", objective=Objective(eps_low=0.2, eps_high=0.2)),
    "gspo_batch": Setting(label="GSPO, batch advantages", objective=Objective(), advantages="batch"),
    "gspo_snippet": Setting(  # the form that large trainers often show
        label="token form, 0.2, token mean, batch adv.",
        objective=Objective(variant="gspo_token", eps_low=0.2, eps_high=0.2, aggregation="token_mean"),
        advantages="batch",
    ),
    "grpo": Setting(label="GRPO 0.2 / 0.2", objective=Objective(variant="grpo", eps_low=0.2, eps_high=0.2)),
    "dapo": Setting(
        label="DAPO 0.2 / 0.28, token mean",
        objective=Objective(variant="grpo", eps_low=0.2, eps_high=0.28, aggregation="token_mean"),
    ),
    "dr_grpo": Setting(  # divided by the longest recorded completion
        label="Dr. GRPO, constant length",
        objective=Objective(variant="grpo", eps_low=0.2, eps_high=0.2, aggregation="constant_length"),
        advantages="mean_only",
    ),
}


def gradient(setting: Setting, recorded: Recorded, current_BT: Tensor) -> tuple[Tensor, dict[str, float]]:
    """d loss / d log-prob, [B, T], and the loss with its clip shares. Raises DataError for a ratio that overflows."""
    lens_B, total = recorded.lens_B, int(recorded.lens_B.sum())
    advantages_PG = group_advantages(recorded.rewards_PG, kind=setting.advantages)
    logprobs_BT = current_BT.clone().requires_grad_(True)
    try:
        loss, terms = policy_loss(
            logprobs_BT,
            recorded.sampler_logprobs_BT,
            recorded.mask_BT,
            torch.tensor(list(chain.from_iterable(advantages_PG)), dtype=torch.float64),
            objective=setting.objective,
            divisor=Divisor(num_sequences=len(lens_B), num_tokens=total, max_tokens=int(lens_B.max())),
        )
    except ValueError as error:
        raise DataError(f"these log-probs cannot be compared: {error}") from error
    (gradient_BT,) = torch.autograd.grad(loss, logprobs_BT)
    return gradient_BT, {
        "loss": float(loss.detach()),
        "cut_sequences": float((terms.clipped_tokens_B > 0).double().mean()),
        "cut_tokens": int(terms.clipped_tokens_B.sum()) / total,
        "outside_sequences": float((terms.outside_tokens_B > 0).double().mean()),
        "outside_tokens": int(terms.outside_tokens_B.sum()) / total,
    }


def against(gradient_BT: Tensor, paper_BT: Tensor) -> tuple[float | None, float | None]:
    """(cosine, relative error); None where a gradient that is divided by is zero."""
    norm, paper_norm = float(gradient_BT.norm()), float(paper_BT.norm())
    if paper_norm == 0:
        return None, None
    cosine = float((gradient_BT * paper_BT).sum()) / (norm * paper_norm) if norm else None
    return cosine, float((gradient_BT - paper_BT).norm()) / paper_norm


def compare(recorded: Recorded, current_BT: Tensor) -> dict[str, dict[str, Any]]:
    """The numbers of every setting, by name. Raises DataError for a ratio that overflows."""
    measured = {name: gradient(setting, recorded, current_BT) for name, setting in SETTINGS.items()}
    paper_BT = measured[PAPER][0]
    rows = {}
    for name, (gradient_BT, numbers) in measured.items():
        cosine, error = against(gradient_BT, paper_BT)
        setting = SETTINGS[name]
        rows[name] = {
            "label": setting.label,
            **asdict(setting.objective),
            "advantages": setting.advantages,
            **numbers,
            "gradient_norm": float(gradient_BT.norm()),
            "cosine": cosine,
            "relative_error": error,
        }
    return rows


def token_mean_cosine(recorded: Recorded, current_BT: Tensor) -> float | None:
    """Cosine of GSPO under token mean with GSPO under sequence mean, in closed form; None when all is cut.

    A sequence that is not cut has the gradient A s / N / n on each of its n tokens; token mean multiplies it by
    n N / (sum of n). So cos = sum a / sqrt(sum a / n * sum a n), with a = (A s)^2 where nothing is cut, else 0.
    """
    mask_BT, lens_B = recorded.mask_BT, recorded.lens_B.double()
    log_ratio_B = torch.where(mask_BT, current_BT - recorded.sampler_logprobs_BT, 0.0).sum(-1) / lens_B
    ratio_B = log_ratio_B.exp()
    advantages_B = torch.tensor(list(chain.from_iterable(group_advantages(recorded.rewards_PG))), dtype=torch.float64)
    band = SETTINGS[PAPER].objective
    cut_B = ((advantages_B > 0) & (ratio_B > 1 + band.eps_high)) | ((advantages_B < 0) & (ratio_B < 1 - band.eps_low))
    squares_B = torch.where(cut_B, 0.0, advantages_B * ratio_B).square()
    if not bool(squares_B.any()):
        return None
    return float(squares_B.sum() / ((squares_B / lens_B).sum() * (squares_B * lens_B).sum()).sqrt())
