"""The objective a second time: float64 NumPy, one completion after the other, from the papers' equations alone.

Nothing is imported from the package and nothing is vectorised over completions. Where the two could share a mistake the
form differs on purpose: the sequence ratio is the root of a product (not the exponential of a mean), whether a term is
cut is decided by the side of the band (not by comparing the two products), and the gradients are written out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One completion of n tokens; every array is [n]."""

    logp: Array
    old: Array
    advantages: Array
    weights: Array
    reference: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    variant: str
    aggregation: str
    low: float  # 1 - eps_low
    high: float  # 1 + eps_high
    num_sequences: int
    num_tokens: int
    max_tokens: int
    kl_coef: float = 0.0
    kl: str = "k3"


def advantages(rewards_PG: Sequence[Sequence[float | None]], kind: str) -> list[list[float]]:
    """arXiv:2507.18071 eq. 6 and the named variants; no reward: 0, fewer than two rewards: 0."""

    def of(rewards: Sequence[float | None], everybody: Sequence[float | None]) -> list[float]:
        known = np.array([reward for reward in everybody if reward is not None], dtype=np.float64)
        result = []
        for place, reward in enumerate(rewards):
            if reward is None or len(known) < 2:
                result.append(0.0)
            elif kind == "leave_one_out":
                others = [r for other, r in enumerate(rewards) if r is not None and other != place]
                result.append(reward - float(np.mean(others)))
            elif kind == "mean_only":
                result.append(reward - float(known.mean()))
            else:
                std = known.std(ddof=0 if kind == "population" else 1)
                result.append(float((reward - known.mean()) / (std + 1e-8)))
        return result

    if kind == "batch":
        everybody = [reward for rewards in rewards_PG for reward in rewards]
        return [of(rewards, everybody) for rewards in rewards_PG]
    return [of(rewards, rewards) for rewards in rewards_PG]


def sequence_ratio(logp: Array, old: Array) -> float:
    """s = (pi(y) / pi_old(y)) ^ (1 / |y|) (eq. 7)."""
    return float(np.prod(np.exp(logp) / np.exp(old)) ** (1 / len(logp)))


def ratios(row: Row, variant: str, frozen: Row) -> Array:
    """The ratio of every token. `frozen` holds what stands inside sg[...] (eq. 14)."""
    if variant == "gspo":
        return np.full(len(row.logp), sequence_ratio(row.logp, row.old))
    if variant == "gspo_token":
        return sequence_ratio(frozen.logp, frozen.old) * np.exp(row.logp) / np.exp(frozen.logp)
    assert variant == "grpo"
    return np.exp(row.logp) / np.exp(row.old)


def token_weight(row: Row, setting: Setting) -> float:
    """What one token's term is multiplied by: GSPO eq. 5 / 13, DAPO (arXiv:2503.14476 eq. 8), Dr. GRPO (2503.20783)."""
    return {
        "sequence_mean": 1 / setting.num_sequences / len(row.logp),
        "token_mean": 1 / setting.num_tokens,
        "constant_length": 1 / setting.num_sequences / setting.max_tokens,
    }[setting.aggregation]


def kl_terms(row: Row, kind: str) -> tuple[Array, Array]:
    """Estimate of KL(pi || reference) of every token, and its derivative with respect to log pi."""
    r = np.exp(row.reference) / np.exp(row.logp)
    if kind == "k1":
        return -np.log(r), np.ones_like(r)
    if kind == "k2":
        return np.log(r) ** 2 / 2, -np.log(r)
    assert kind == "k3"
    return (r - 1) - np.log(r), 1 - r


def kl_loss(rows: Sequence[Row], setting: Setting) -> float:
    terms = [token_weight(row, setting) * kl_terms(row, setting.kl)[0].sum() for row in rows]
    return float(setting.kl_coef * sum(terms))


def loss(rows: Sequence[Row], setting: Setting, *, frozen: Sequence[Row] | None = None) -> float:
    total = 0.0
    for row, fixed in zip(rows, frozen or rows, strict=True):
        for ratio, advantage, weight in zip(
            ratios(row, setting.variant, fixed), row.advantages, row.weights, strict=True
        ):
            clipped = min(max(ratio, setting.low), setting.high)
            total += token_weight(row, setting) * weight * min(ratio * advantage, clipped * advantage)
    return kl_loss(rows, setting) - total


def cut(row: Row, setting: Setting) -> NDArray[np.bool_]:
    """Whether a token's term has no gradient: rewarded above the band, or punished below it."""
    ratio = ratios(row, setting.variant, row)
    return ((row.advantages > 0) & (ratio > setting.high)) | ((row.advantages < 0) & (ratio < setting.low))


def outside(row: Row, setting: Setting) -> NDArray[np.bool_]:
    ratio = ratios(row, setting.variant, row)
    return (ratio < setting.low) | (ratio > setting.high)


def gradient(rows: Sequence[Row], setting: Setting) -> list[Array]:
    """d loss / d log pi(y_t), for every completion."""
    result = []
    for row in rows:
        pulls = np.where(cut(row, setting), 0.0, row.weights * row.advantages * ratios(row, setting.variant, row))
        if setting.variant == "gspo":  # d s / d log pi(y_t) = s / |y|, for each of the |y| equal terms
            pulls = np.full(len(pulls), pulls.sum() / len(pulls))
        result.append(token_weight(row, setting) * (setting.kl_coef * kl_terms(row, setting.kl)[1] - pulls))
    return result


def mismatch(row_learner: Array, row_sampler: Array, mode: str, cap: float, band: tuple[float, float]) -> Array:
    """The weight of every token for the gap between engine and learner."""
    sequence = sequence_ratio(row_learner, row_sampler)
    n = len(row_learner)
    if mode == "token_truncate":
        return np.minimum(np.exp(row_learner) / np.exp(row_sampler), cap)
    if mode == "sequence_truncate":
        return np.full(n, min(sequence, cap))
    if mode == "sequence_mask":
        return np.full(n, 1.0 if band[0] <= sequence <= band[1] else 0.0)
    return np.ones(n)
