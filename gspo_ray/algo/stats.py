"""What one optimizer update reports: plain numbers per sequence that cross process borders and can be re-read later."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MismatchStats:
    """One sequence: the learner at the sampling weights against the sampler, d = difference of their log-probs."""

    log_ratio: float  # mean of d
    abs_diff_sum: float  # over tokens
    abs_diff_max: float
    k3_sum: float  # over tokens of exp(d) - 1 - d: KL(sampler || learner)
    raw_weight: float | None = None  # of `mismatch_weights`, before it was cut; None: no correction
    touched_tokens: int = 0  # tokens whose weight the correction cut or masked


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceStats:
    """One computed sequence; `row` is its place in the rollout batch."""

    row: int
    advantage: float
    num_tokens: int  # of the completion
    log_ratio: float  # log s_i against the old log-probs
    clipped_tokens: int  # gradient cut by the clip
    outside_tokens: int  # ratio outside the band, cut or not
    token_log_ratio_min: float
    token_log_ratio_max: float
    staleness_log_ratio: float | None  # learner now against learner at the sampling weights; None: not known
    mismatch: MismatchStats | None  # None: not known
    kl_k1_sum: float | None = None  # over tokens, against the reference; None: no reference
    kl_k3_sum: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateStats:
    loss: float
    kl_loss: float  # the part of `loss` that is the KL term
    grad_norm: float  # before clipping
    learning_rate: float
    updated: bool  # False: nothing to train on, or refused
    nonfinite: tuple[str, ...]  # parameters whose gradient was not finite; then the update was refused
    num_sequences: int  # the divisor
    sequences: tuple[SequenceStats, ...]  # those that were computed: advantage not zero, or all with a KL term
    tokens: int  # of the computed sequences, the prompt counted for each
    computed_tokens: int  # that went through forward and backward: a shared prompt counts once
    seconds: float
