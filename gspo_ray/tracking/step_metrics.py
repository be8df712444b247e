"""From the record of one step to its numbers, under the names of metrics.py."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

import numpy as np

from gspo_ray.algo.advantages import is_degenerate
from gspo_ray.algo.record import StepRecord
from gspo_ray.tracking.objective_metrics import objective_metrics
from gspo_ray.types import Completion, Finish, Outcome


def step_metrics(
    record: StepRecord, *, extra: Mapping[str, float], eps_low: float, eps_high: float
) -> dict[str, float]:
    """`extra` holds what the controller measured itself: time/*, sync/*, data/*, memory/*."""
    values = {
        **_rewards(record),
        **_groups(record),
        **_completions(record),
        **objective_metrics(record.updates, eps_low=eps_low, eps_high=eps_high),
        **_updates(record),
        **extra,
    }
    if (rollout_s := extra.get("time/rollout_s", 0.0)) > 0:
        values["sampler/tokens_per_s"] = values["completion/tokens"] / rollout_s
    return values


def _rewards(record: StepRecord) -> dict[str, float]:
    verdicts = [verdict for group in record.sampled for verdict in group.verdicts]
    values = {
        f"outcome/{outcome.value}_frac": sum(v.outcome is outcome for v in verdicts) / len(verdicts)
        for outcome in Outcome
    }
    values["reward/mean"] = statistics.fmean(verdict.reward for verdict in verdicts)
    values["reward/seconds_max"] = max(verdict.seconds for verdict in verdicts)
    if compared := [reward for rewards_G in record.rewards_PG for reward in rewards_G if reward is not None]:
        values["reward/shaped_mean"] = statistics.fmean(compared)
    return values


def _groups(record: StepRecord) -> dict[str, float]:
    sampled = record.sampled
    all_right = [all(v.outcome is Outcome.CORRECT for v in group.verdicts) for group in sampled]
    all_wrong = [all(v.outcome is not Outcome.CORRECT for v in group.verdicts) for group in sampled]
    flat = sum(is_degenerate(rewards_G) for rewards_G in record.rewards_PG) + len(record.discarded)
    values = {
        "groups/degenerate_frac": flat / len(sampled),
        "groups/all_right_frac": statistics.fmean(all_right),
        "groups/all_wrong_frac": statistics.fmean(all_wrong),
        "groups/discarded": float(len(record.discarded)),
        "groups/refills": float(record.refills),
        "groups/effective_frac": sum(any(advantages_G) for advantages_G in record.advantages_PG) / len(sampled),
    }
    advantages = [advantage for advantages_G in record.advantages_PG for advantage in advantages_G]
    return values | {
        "advantage/mean": statistics.fmean(advantages),
        "advantage/std": statistics.pstdev(advantages),
        "advantage/min": min(advantages),
        "advantage/max": max(advantages),
    }


def _completions(record: StepRecord) -> dict[str, float]:
    pairs = [pair for group in record.sampled for pair in zip(group.completions, group.verdicts, strict=True)]
    lengths = [len(completion.token_ids) for completion, _ in pairs]
    correct = [completion for completion, verdict in pairs if verdict.outcome is Outcome.CORRECT]
    wrong = [completion for completion, verdict in pairs if verdict.outcome is not Outcome.CORRECT]
    median, p95 = np.percentile(lengths, [50, 95])
    values = {
        "completion/tokens": float(sum(lengths)),
        "completion/len_mean": statistics.fmean(lengths),
        "completion/len_p50": float(median),
        "completion/len_p95": float(p95),
        "completion/len_max": float(max(lengths)),
        "completion/truncated_frac": statistics.fmean(_truncated(completion) for completion, _ in pairs),
        "completion/masked_frac": statistics.fmean(not kept for kept_G in record.counted_PG for kept in kept_G),
    }
    for name, some in (("correct", correct), ("wrong", wrong)):
        if some:
            values[f"completion/len_{name}_mean"] = statistics.fmean(len(c.token_ids) for c in some)
            values[f"completion/truncated_{name}_frac"] = statistics.fmean(_truncated(c) for c in some)
    return values


def _truncated(completion: Completion) -> bool:
    return completion.finish is Finish.LENGTH


def _updates(record: StepRecord) -> dict[str, float]:
    updates = record.updates
    values = {
        "learner/updates": float(sum(update.updated for update in updates)),
        "learner/nonfinite_updates": float(sum(bool(update.nonfinite) for update in updates)),
        "learner/learning_rate": updates[-1].learning_rate,
        "learner/trained_sequences": float(len(record.sequences)),
        "learner/tokens": float(sum(update.tokens for update in updates)),
        "learner/computed_tokens": float(sum(update.computed_tokens for update in updates)),
    }
    if norms := [update.grad_norm for update in updates if update.updated]:
        values["learner/grad_norm"] = statistics.fmean(norms)
    if values["learner/tokens"]:
        values["learner/tokens_per_s"] = values["learner/tokens"] / sum(update.seconds for update in updates)
    return values
