"""What is measured about each computed sequence, from the tensors of one micro-batch."""

from __future__ import annotations

import torch
from torch import Tensor

from gspo_ray.algo.batch import TrainBatch
from gspo_ray.algo.losses import LossTerms, sequence_log_ratio
from gspo_ray.algo.mismatch import MismatchWeights
from gspo_ray.algo.stats import MismatchStats, SequenceStats


def at_sampling_weights(part: TrainBatch, current_RT: Tensor) -> Tensor | None:
    """The learner's log-probs at the weights that sampled: kept in the batch, or the current ones before any update.

    None when neither is known: later updates without old log-probs, or rows that older weights sampled.
    """
    if part.old_logprobs_BT is not None:
        return part.old_logprobs_BT
    return current_RT if part.is_first_update and not bool(part.policy_age_B.any()) else None


def sequence_stats(
    part: TrainBatch,
    terms: LossTerms,
    current_RT: Tensor,
    at_sampling_RT: Tensor | None,
    mask_RT: Tensor,
    correction: MismatchWeights | None,
) -> list[SequenceStats]:
    """One entry a row of `part`.

    log(pi_now / pi_sampler) = staleness (now against the sampling weights, both by the learner) + numeric mismatch
    (the sampling weights, learner against engine); each is given when the learner's numbers at those weights are known.
    """
    staleness: list[float | None] = [None] * len(part.row_B)
    mismatch: list[MismatchStats | None] = [None] * len(part.row_B)
    if at_sampling_RT is not None:
        staleness = list(sequence_log_ratio(current_RT, at_sampling_RT, mask_RT).tolist())
        mismatch = list(_mismatch(at_sampling_RT, part.sampler_logprobs_BT, mask_RT, correction))
    k1, k3 = terms.kl_k1_sum_B, terms.kl_k3_sum_B
    return [
        SequenceStats(
            row=row,
            advantage=float(part.advantages_B[i]),
            num_tokens=int(part.completion_lens_B[i]),
            log_ratio=float(terms.log_ratio_B[i]),
            clipped_tokens=int(terms.clipped_tokens_B[i]),
            outside_tokens=int(terms.outside_tokens_B[i]),
            token_log_ratio_min=float(terms.token_log_ratio_min_B[i]),
            token_log_ratio_max=float(terms.token_log_ratio_max_B[i]),
            staleness_log_ratio=staleness[i],
            mismatch=mismatch[i],
            kl_k1_sum=None if k1 is None else float(k1[i]),
            kl_k3_sum=None if k3 is None else float(k3[i]),
        )
        for i, row in enumerate(part.row_B.tolist())
    ]


def _mismatch(
    learner_RT: Tensor, sampler_RT: Tensor, mask_RT: Tensor, correction: MismatchWeights | None
) -> list[MismatchStats]:
    log_ratio_R = sequence_log_ratio(learner_RT, sampler_RT, mask_RT)
    gap_RT = torch.where(mask_RT, learner_RT - sampler_RT, 0.0)
    abs_RT, k3_RT = gap_RT.abs(), gap_RT.expm1() - gap_RT
    return [
        MismatchStats(
            log_ratio=float(log_ratio_R[i]),
            abs_diff_sum=float(abs_RT[i].sum()),
            abs_diff_max=float(abs_RT[i].max()),
            k3_sum=float(k3_RT[i].sum()),
            raw_weight=None if correction is None else float(correction.raw_B[i]),
            touched_tokens=0 if correction is None else int(correction.touched_tokens_B[i]),
        )
        for i in range(len(log_ratio_R))
    ]
