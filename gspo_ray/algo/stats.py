"""What one optimizer update reports: plain numbers per sequence that cross process borders and can be re-read later."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceStats:
    """One trained sequence; `row` is its place in the mini-batch."""

    row: int
    advantage: float
    log_ratio: float  # log s_i against the old log-probs
    clipped: bool  # gradient cut by the clip
    mismatch_log_ratio: float | None  # learner at the sampling weights against the sampler; None: not known
    token_abs_diff_sum: float  # sum over tokens of |learner - sampler|, at the sampling weights
    token_abs_diff_max: float
    num_tokens: int  # of the completion


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateStats:
    loss: float
    grad_norm: float  # before clipping
    learning_rate: float
    updated: bool  # False: nothing to train on, or refused
    nonfinite: tuple[str, ...]  # parameters whose gradient was not finite; then the update was refused
    num_sequences: int  # the divisor
    sequences: tuple[SequenceStats, ...]  # those with a non-zero advantage
    tokens: int  # real tokens through forward and backward
    seconds: float
