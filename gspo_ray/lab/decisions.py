"""The smallest policy with sequences: two independent binary decisions, a 2 x 2 table of logits.

An answer is two tokens of 0 or 1, its reward the mean of its bits; expectations are exact by enumeration.
Legend: B answers, T = 2 tokens, V = 2 values of a token.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gspo_ray.algo.advantages import group_advantages
from gspo_ray.algo.aggregation import Divisor
from gspo_ray.algo.losses import LossTerms, Objective, policy_loss

NUM_TOKENS = 2


def uniform_logits() -> Tensor:
    """[T, V] float64, to be trained."""
    return torch.zeros(NUM_TOKENS, 2, dtype=torch.float64, requires_grad=True)


def token_logprobs(logits_TV: Tensor, answers_BT: Tensor) -> Tensor:
    """[B, T]: log-prob of each token of each answer."""
    return logits_TV.log_softmax(-1).expand(len(answers_BT), -1, -1).gather(-1, answers_BT[..., None])[..., 0]


def sample(logits_TV: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """[count, T]; all first tokens are drawn, then all second ones."""
    probabilities_TV = logits_TV.detach().softmax(-1)
    return torch.multinomial(probabilities_TV, count, replacement=True, generator=generator).T.contiguous()


def rewards(answers_BT: Tensor) -> Tensor:
    return answers_BT.double().mean(-1)


def expected_reward(logits_TV: Tensor) -> float:
    return float(logits_TV.detach().softmax(-1)[:, 1].mean())


def exact_kl(logits_TV: Tensor, reference_TV: Tensor) -> Tensor:
    """KL(policy || reference) of whole answers; `reference_TV` holds log-probs. With a gradient."""
    logprobs_TV = logits_TV.log_softmax(-1)
    return (logprobs_TV.exp() * (logprobs_TV - reference_TV)).sum()


def population_advantages(rewards_PG: Sequence[Sequence[float]]) -> Tensor:
    """[P * G] float64, std with N in the divisor."""
    return torch.tensor(group_advantages(rewards_PG, kind="population"), dtype=torch.float64).flatten()


def gspo(
    logprobs_BT: Tensor, old_logprobs_BT: Tensor, advantages_B: Tensor, epsilon: float
) -> tuple[Tensor, LossTerms]:
    """The loss (minus the objective) of full-length rows with the same band on both sides."""
    return policy_loss(
        logprobs_BT,
        old_logprobs_BT,
        torch.ones_like(logprobs_BT, dtype=torch.bool),
        advantages_B,
        objective=Objective(eps_low=epsilon, eps_high=epsilon),
        divisor=Divisor(
            num_sequences=len(logprobs_BT), num_tokens=logprobs_BT.numel(), max_tokens=logprobs_BT.shape[-1]
        ),
    )
