"""How far numeric noise alone moves the sequence ratio, beside the clip band."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

from gspo_ray.config import AlgoConfig

# Standard deviation of a token's log-prob between engine and learner, by (dtype, device), and where it is from.
TOKEN_NOISE: dict[tuple[str, str], tuple[float, str]] = {
    ("float32", "cpu"): (2.5e-5, "measured here: |s - 1| up to 7e-6 at 12 tokens"),
    ("bfloat16", "cpu"): (0.03, "taken from GPUs: 0.03 a token between vLLM and a trainer in bfloat16 (Fast-LLM 525)"),
    ("float32", "cuda"): (0.002, "published for vLLM and a trainer in float32 (ServiceNow/Fast-LLM issue 525)"),
    ("bfloat16", "cuda"): (0.03, "published for vLLM and a trainer in bfloat16 (ServiceNow/Fast-LLM issue 525)"),
}
TOLERATED = 0.05  # share of sequences outside the band that is not worth a word


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioNoise:
    token_noise: float
    source: str
    tokens: float
    ratio_std: float  # of log s of a sequence
    outside: float  # share of sequences that the noise puts outside the band
    enough_tokens: int  # from this length on less than TOLERATED is outside
    in_the_ratio: bool  # else it is measured, and the loss never sees it


def ratio_noise(
    algo: AlgoConfig, *, tokens: float, dtype: str, device: str, token_noise: float | None = None
) -> RatioNoise:
    """For independent Gaussian noise on every token's log-prob: the mean over n tokens has 1/sqrt(n) of it.

    In grpo every token has a ratio of its own, so nothing is averaged.
    """
    noise, source = TOKEN_NOISE[dtype, device] if token_noise is None else (token_noise, "--token-noise")
    averaged = 1.0 if algo.variant == "grpo" else tokens
    return RatioNoise(
        token_noise=noise,
        source=source,
        tokens=tokens,
        ratio_std=noise / math.sqrt(averaged),
        outside=share_outside(noise / math.sqrt(averaged), algo.eps_low, algo.eps_high),
        enough_tokens=_enough_tokens(noise, algo.eps_low, algo.eps_high),
        in_the_ratio=algo.old_logprobs == "sampler",
    )


def share_outside(std: float, eps_low: float, eps_high: float) -> float:
    """P(s < 1 - eps_low or s > 1 + eps_high) for log s normal with mean 0; as `gspo-ray lab noise` has it."""
    normal = NormalDist()
    return normal.cdf(math.log1p(-eps_low) / std) + normal.cdf(-math.log1p(eps_high) / std)


def _enough_tokens(noise: float, eps_low: float, eps_high: float) -> int:
    """By doubling, then bisection: the share falls with the length."""
    high = 1
    while share_outside(noise / math.sqrt(high), eps_low, eps_high) > TOLERATED:
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        inside = share_outside(noise / math.sqrt(middle), eps_low, eps_high) <= TOLERATED
        low, high = (low, middle) if inside else (middle, high)
    return high
