"""Every metric name of a run is spelled here, once, with what it means.

The README's glossary is made from this table.
"""

from __future__ import annotations

from itertools import pairwise

LENGTH_EDGES = (0, 32, 128, 512, 2048, 8192)  # completion lengths in tokens; the last bucket is open


def length_buckets() -> list[tuple[str, int, float]]:
    """(label, first length, length after the last): ("0_31", 0, 32) ... ("8192_up", 8192, inf)."""
    closed = [(f"{low}_{high - 1}", low, float(high)) for low, high in pairwise(LENGTH_EDGES)]
    return [*closed, (f"{LENGTH_EDGES[-1]}_up", LENGTH_EDGES[-1], float("inf"))]


METRICS: dict[str, str] = {
    "reward/mean": "mean reward over all completions of the step, discarded groups too",
    "reward/shaped_mean": "mean of the rewards that are compared: with length penalty, without those never judged",
    "reward/seconds_max": "longest verification of one completion, in seconds",
    "outcome/correct_frac": "share of completions judged CORRECT",
    "outcome/wrong_frac": "share judged WRONG: an answer was read and it is not the gold answer",
    "outcome/no_answer_frac": "share with NO_ANSWER: no complete \\boxed{} after the thinking block",
    "outcome/timeout_frac": "share whose verification hit the hard time limit; paid 0",
    "outcome/error_frac": "share that the verifier could not judge (unreadable gold, crash); left out of the update",
    "groups/degenerate_frac": "share of groups whose rewards are all equal: no advantage, no gradient",
    "groups/all_right_frac": "share of groups with every completion right (too easy)",
    "groups/all_wrong_frac": "share of groups with every completion wrong (too hard)",
    "groups/effective_frac": "share of sampled groups that have a learning signal",
    "groups/discarded": "groups without a signal that dynamic sampling replaced by new problems",
    "groups/refills": "how often it did so in this step",
    "advantage/mean": "mean advantage over the batch",
    "advantage/std": "standard deviation of the advantages",
    "advantage/min": "smallest advantage",
    "advantage/max": "largest advantage",
    "completion/tokens": "sampled tokens of the step, EOS included",
    "completion/len_mean": "mean completion length in tokens, EOS included",
    "completion/len_p50": "median completion length",
    "completion/len_p95": "95th percentile of the completion length",
    "completion/len_max": "longest completion in tokens",
    "completion/len_correct_mean": "mean length of the correct completions",
    "completion/len_wrong_mean": "mean length of the others",
    "completion/truncated_frac": "share cut off by max_tokens",
    "completion/truncated_correct_frac": "share of the correct completions that were cut off",
    "completion/truncated_wrong_frac": "share of the others that were cut off",
    "completion/masked_frac": "share left out of the loss and its divisor (never judged, or truncated and masked)",
    "gspo/loss": "negative clipped objective (GSPO paper, eq. 5) plus KL term, mean over ALL sequences of a mini-batch",
    "gspo/ratio_mean": "mean sequence ratio s_i = exp(mean token log-ratio), over trained sequences",
    "gspo/ratio_std": "spread of the sequence ratio",
    "gspo/ratio_min": "smallest sequence ratio",
    "gspo/ratio_max": "largest sequence ratio",
    "gspo/ratio_p01": "1st percentile of the sequence ratio",
    "gspo/ratio_p99": "99th percentile of the sequence ratio",
    "gspo/token_ratio_min": "smallest ratio of a single token",
    "gspo/token_ratio_max": "largest ratio of a single token",
    "gspo/clip_frac": "share of trained sequences whose gradient the clip cuts to zero (clip(s) * A < s * A); "
    "with algo.variant=grpo the mean share of their tokens",
    "gspo/clip_frac_low": "of those, cut at 1 - eps_low (A < 0)",
    "gspo/clip_frac_high": "of those, cut at 1 + eps_high (A > 0)",
    "gspo/clip_frac_positive": "share of the sequences with A > 0 that are cut",
    "gspo/clip_frac_negative": "share of the sequences with A < 0 that are cut",
    "gspo/outside_frac": "share whose ratio lies outside the band, cut or not",
    "gspo/clip_token_frac": "tokens whose gradient is cut, over all trained tokens",
    **{
        f"gspo/clip_frac_len_{label}": f"share of the sequences of {label.replace('_', ' to ')} tokens that are cut"
        for label, _, _ in length_buckets()
    },
    "staleness/seq_log_ratio_mean": "learner now against learner at the sampling weights: mean sequence log-ratio",
    "staleness/seq_log_ratio_std": "its standard deviation: what the updates on this batch have moved",
    "staleness/seq_log_ratio_max": "its largest absolute value",
    "mismatch/seq_log_ratio_mean": "learner against sampler before the update: mean of the sequence log-ratio",
    "mismatch/seq_log_ratio_std": "its standard deviation: the numeric noise that the clip band must exceed",
    "mismatch/seq_log_ratio_max": "its largest absolute value",
    "mismatch/outside_frac": "share of sequences that this noise alone puts outside the clip band",
    "mismatch/clip_frac": "share of sequences whose gradient it alone would cut",
    "mismatch/k3": "mean over tokens of exp(d) - 1 - d, d = learner - sampler: KL(sampler || learner)",
    "mismatch/token_abs_diff_mean": "mean |log-prob gap| of a token, learner against sampler",
    "mismatch/token_abs_diff_max": "largest |log-prob gap| of a token",
    "mismatch/raw_weight_mean": "algo.mismatch: mean weight before it is cut; far from 1 it switches learning off",
    "mismatch/raw_weight_min": "smallest such weight",
    "mismatch/raw_weight_max": "largest such weight",
    "mismatch/touched_frac": "share of trained tokens whose weight the correction cut or masked",
    "kl/loss": "KL term of the loss, coefficient included",
    "kl/k1": "policy against reference, mean over tokens of log policy - log reference",
    "kl/k3": "the same by k3 = exp(x) - 1 - x, x = log reference - log policy: never negative",
    "learner/updates": "optimizer updates of the step (0: every group was degenerate)",
    "learner/nonfinite_updates": "updates refused because a gradient was not finite; the adapter is untouched",
    "learner/grad_norm": "gradient norm before clipping, mean over updates",
    "learner/learning_rate": "learning rate of the step",
    "learner/trained_sequences": "sequences with a gradient, the only ones computed, over all updates of the step",
    "learner/tokens": "real tokens of the trained sequences, the prompt counted for each",
    "learner/computed_tokens": "tokens that went through forward and backward: a shared prompt counts once",
    "learner/tokens_per_s": "learner/tokens over the seconds of the update",
    "sampler/tokens_per_s": "completion/tokens over the seconds of the rollout",
    "sync/version": "step of the adapter that the engines hold after this step",
    "sync/adapter_bytes": "size of the pushed adapter",
    "sync/probe_gap": "mean |log-prob gap| of a probe token, learner against the worst engine, after the push",
    "sync/probe_tolerance": "largest gap allowed; above it the run stops",
    "sync/probe_shift": "mean |change| of the probe's log-probs by this update, as the learner sees it",
    "eval/average": "evaluation: share of right answers, avg@n = pass@1 estimated from n answers a problem",
    "eval/average_low": "lower end of its 95 % interval (bootstrap over problems)",
    "eval/average_high": "upper end of it",
    "eval/pass_at_n": "share of problems with at least one right answer in n",
    "eval/majority": "share of problems whose most frequent answer is right, maj@n",
    "eval/format_rate": "share of answers with a complete \\boxed{}",
    "eval/truncated_frac": "share of answers cut off by eval.max_tokens",
    "eval/tokens_mean": "mean answer length in tokens",
    "eval/failed_problems": "problems without a result; left out of all rates",
    "eval/difference": "eval/average minus that of the base model, problem by problem",
    "eval/p_value": "of that difference: paired sign-flip test",
    "data/problems_seen": "problems taken so far, discarded ones too: the data cursor",
    "time/rollout_s": "seconds sampling",
    "time/reward_s": "seconds verifying",
    "time/train_s": "seconds in old and reference log-probs and updates",
    "time/sync_s": "seconds exporting, pushing and probing the adapter",
    "time/step_s": "seconds of the whole step",
    "time/eval_s": "seconds of an evaluation",
    "memory/driver_mib": "peak resident memory of the driver process",
    "memory/learner_mib": "peak resident memory of the learner process",
    "memory/engine_mib": "peak resident memory of the largest engine, its child processes included",
}
