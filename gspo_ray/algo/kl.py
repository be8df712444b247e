"""How far the policy is from the reference, token by token, estimated on the policy's own samples."""

from __future__ import annotations

from typing import Literal, get_args

from torch import Tensor

KlEstimator = Literal["k1", "k2", "k3"]


def token_kl(logprobs_BT: Tensor, reference_logprobs_BT: Tensor, estimator: KlEstimator) -> Tensor:
    """Estimate of KL(policy || reference) a token, [B, T] (Schulman, "Approximating KL divergence", 2020).

    With x = log reference - log policy:  k1 = -x;  k2 = x^2 / 2;  k3 = exp(x) - x - 1.
    Used as a loss on the policy's own samples, k2 has the gradient of the divergence itself in expectation; k3 that of
    KL(reference || policy); k1 has none (the mean score is zero): it measures, it does not pull.
    """
    x_BT = reference_logprobs_BT.detach() - logprobs_BT
    if estimator == "k1":
        return -x_BT
    if estimator == "k2":
        return x_BT.square() / 2
    if estimator != "k3":
        raise ValueError(f"unknown KL estimator {estimator!r}, known are {', '.join(get_args(KlEstimator))}")
    return x_BT.expm1() - x_BT
