"""The numbers of the loss: ratios, clips, staleness, mismatch, KL. Clip shares are over sequences with an advantage."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence

import numpy as np

from gspo_ray.algo.stats import MismatchStats, SequenceStats, UpdateStats
from gspo_ray.tracking.metrics import length_buckets


def objective_metrics(updates: Sequence[UpdateStats], *, eps_low: float, eps_high: float) -> dict[str, float]:
    """{} when nothing was computed."""
    sequences = [sequence for update in updates for sequence in update.sequences]
    if not sequences:
        return {}
    values = {"gspo/loss": statistics.fmean(update.loss for update in updates)} | _kl(updates, sequences)
    if trained := [sequence for sequence in sequences if sequence.advantage]:
        values |= _ratios(trained) | _clips(trained)
    if staleness := [s.staleness_log_ratio for s in sequences if s.staleness_log_ratio is not None]:
        values |= _spread("staleness/seq_log_ratio", staleness)
    if known := [(s, s.mismatch) for s in sequences if s.mismatch is not None]:
        values |= _mismatch(known, eps_low=eps_low, eps_high=eps_high)
    return values


def _ratios(trained: Sequence[SequenceStats]) -> dict[str, float]:
    ratios = [math.exp(sequence.log_ratio) for sequence in trained]
    p01, p99 = np.percentile(ratios, [1, 99])
    return {
        "gspo/ratio_mean": statistics.fmean(ratios),
        "gspo/ratio_std": statistics.pstdev(ratios),
        "gspo/ratio_min": min(ratios),
        "gspo/ratio_max": max(ratios),
        "gspo/ratio_p01": float(p01),
        "gspo/ratio_p99": float(p99),
        "gspo/token_ratio_min": math.exp(min(s.token_log_ratio_min for s in trained)),
        "gspo/token_ratio_max": math.exp(max(s.token_log_ratio_max for s in trained)),
    }


def _clips(trained: Sequence[SequenceStats]) -> dict[str, float]:
    positive = [s for s in trained if s.advantage > 0]
    negative = [s for s in trained if s.advantage < 0]
    values = {
        "gspo/clip_frac": _cut_share(trained),
        "gspo/clip_frac_low": sum(_cut(s) for s in negative) / len(trained),
        "gspo/clip_frac_high": sum(_cut(s) for s in positive) / len(trained),
        "gspo/outside_frac": statistics.fmean(s.outside_tokens / s.num_tokens for s in trained),
        "gspo/clip_token_frac": sum(s.clipped_tokens for s in trained) / sum(s.num_tokens for s in trained),
    }
    shares = [("positive", positive), ("negative", negative)]
    for label, low, high in length_buckets():
        shares.append((f"len_{label}", [s for s in trained if low <= s.num_tokens < high]))
    return values | {f"gspo/clip_frac_{name}": _cut_share(some) for name, some in shares if some}


def _cut(sequence: SequenceStats) -> float:
    """1 or 0 for one clip a sequence, the share of its tokens for token clips."""
    return sequence.clipped_tokens / sequence.num_tokens


def _cut_share(sequences: Sequence[SequenceStats]) -> float:
    return statistics.fmean(_cut(sequence) for sequence in sequences)


def _mismatch(
    known: Sequence[tuple[SequenceStats, MismatchStats]], *, eps_low: float, eps_high: float
) -> dict[str, float]:
    low, high = 1 - eps_low, 1 + eps_high
    ratios = [(s.advantage, math.exp(m.log_ratio)) for s, m in known]
    tokens = sum(s.num_tokens for s, _ in known)
    values = _spread("mismatch/seq_log_ratio", [m.log_ratio for _, m in known]) | {
        "mismatch/outside_frac": statistics.fmean(not low <= ratio <= high for _, ratio in ratios),
        "mismatch/k3": sum(m.k3_sum for _, m in known) / tokens,
        "mismatch/token_abs_diff_mean": sum(m.abs_diff_sum for _, m in known) / tokens,
        "mismatch/token_abs_diff_max": max(m.abs_diff_max for _, m in known),
    }
    if cut := [(a > 0 and ratio > high) or (a < 0 and ratio < low) for a, ratio in ratios if a]:
        values["mismatch/clip_frac"] = statistics.fmean(cut)
    if weights := [m.raw_weight for _, m in known if m.raw_weight is not None]:
        values |= {
            "mismatch/raw_weight_mean": statistics.fmean(weights),
            "mismatch/raw_weight_min": min(weights),
            "mismatch/raw_weight_max": max(weights),
            "mismatch/touched_frac": sum(m.touched_tokens for _, m in known) / tokens,
        }
    return values


def _kl(updates: Sequence[UpdateStats], sequences: Sequence[SequenceStats]) -> dict[str, float]:
    """Empty without a reference policy."""
    known = [s for s in sequences if s.kl_k1_sum is not None]
    tokens = sum(s.num_tokens for s in known)
    if not tokens:
        return {}
    return {
        "kl/loss": statistics.fmean(update.kl_loss for update in updates),
        "kl/k1": _total(s.kl_k1_sum for s in known) / tokens,
        "kl/k3": _total(s.kl_k3_sum for s in known) / tokens,
    }


def _total(sums: Iterable[float | None]) -> float:
    return math.fsum(value for value in sums if value is not None)


def _spread(name: str, log_ratios: Sequence[float]) -> dict[str, float]:
    return {
        f"{name}_mean": statistics.fmean(log_ratios),
        f"{name}_std": statistics.pstdev(log_ratios),
        f"{name}_max": max(abs(log_ratio) for log_ratio in log_ratios),
    }
