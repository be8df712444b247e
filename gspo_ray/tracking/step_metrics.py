"""From the groups and updates of one step to its numbers, and to plain words where numbers alone would mislead."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from gspo_ray.algo.stats import SequenceStats, UpdateStats
from gspo_ray.types import Finish, Group, Outcome, StepMetrics

NOISE_NOTE_EVERY = 20  # steps


def step_metrics(
    step: int,
    groups_P: Sequence[Group],
    updates: Sequence[UpdateStats],
    *,
    extra: Mapping[str, float],
    eps_low: float,
    eps_high: float,
) -> StepMetrics:
    """`extra` holds what the controller measured itself: time/*, sync/*, data/*, memory/*."""
    sequences = [sequence for update in updates for sequence in update.sequences]
    values = {
        **_rewards(groups_P),
        **_completions(groups_P),
        **_ratios(updates, sequences, eps_low=eps_low, eps_high=eps_high),
        **_updates(updates, sequences),
        **extra,
    }
    if (rollout_s := extra.get("time/rollout_s", 0.0)) > 0:
        values["sampler/tokens_per_s"] = values["completion/tokens"] / rollout_s
    return StepMetrics(step=step, values=values, notes=tuple(_notes(step, values, updates, eps_low, eps_high)))


def _rewards(groups_P: Sequence[Group]) -> dict[str, float]:
    verdicts = [verdict for group in groups_P for verdict in group.verdicts]
    values = {
        f"outcome/{outcome.value}_frac": sum(v.outcome is outcome for v in verdicts) / len(verdicts)
        for outcome in Outcome
    }
    all_right = [all(v.outcome is Outcome.CORRECT for v in group.verdicts) for group in groups_P]
    all_wrong = [all(v.outcome is not Outcome.CORRECT for v in group.verdicts) for group in groups_P]
    return values | {
        "reward/mean": statistics.fmean(v.reward for v in verdicts),
        "reward/seconds_max": max(v.seconds for v in verdicts),
        "groups/degenerate_frac": statistics.fmean(group.is_degenerate for group in groups_P),
        "groups/all_right_frac": statistics.fmean(all_right),
        "groups/all_wrong_frac": statistics.fmean(all_wrong),
    }


def _completions(groups_P: Sequence[Group]) -> dict[str, float]:
    completions = [completion for group in groups_P for completion in group.completions]
    lengths = [len(completion.token_ids) for completion in completions]
    return {
        "completion/tokens": float(sum(lengths)),
        "completion/len_mean": statistics.fmean(lengths),
        "completion/len_max": float(max(lengths)),
        "completion/truncated_frac": statistics.fmean(c.finish is Finish.LENGTH for c in completions),
    }


def _ratios(
    updates: Sequence[UpdateStats], sequences: Sequence[SequenceStats], *, eps_low: float, eps_high: float
) -> dict[str, float]:
    if not sequences:
        return {}
    ratios = [math.exp(sequence.log_ratio) for sequence in sequences]
    values = {
        "gspo/loss": statistics.fmean(update.loss for update in updates),
        "gspo/ratio_mean": statistics.fmean(ratios),
        "gspo/ratio_std": statistics.pstdev(ratios),
        "gspo/ratio_min": min(ratios),
        "gspo/ratio_max": max(ratios),
        "gspo/clip_frac": statistics.fmean(s.clipped for s in sequences),
        "gspo/clip_frac_low": statistics.fmean(s.clipped and s.advantage < 0 for s in sequences),
        "gspo/clip_frac_high": statistics.fmean(s.clipped and s.advantage > 0 for s in sequences),
    }
    gaps = [s.mismatch_log_ratio for s in sequences if s.mismatch_log_ratio is not None]
    if gaps:
        known = [s for s in sequences if s.mismatch_log_ratio is not None]
        values |= {
            "mismatch/seq_log_ratio_mean": statistics.fmean(gaps),
            "mismatch/seq_log_ratio_std": statistics.pstdev(gaps),
            "mismatch/seq_log_ratio_max": max(abs(gap) for gap in gaps),
            "mismatch/clip_frac": statistics.fmean(not 1 - eps_low <= math.exp(gap) <= 1 + eps_high for gap in gaps),
            "mismatch/token_abs_diff_mean": sum(s.token_abs_diff_sum for s in known) / sum(s.num_tokens for s in known),
            "mismatch/token_abs_diff_max": max(s.token_abs_diff_max for s in known),
        }
    return values


def _updates(updates: Sequence[UpdateStats], sequences: Sequence[SequenceStats]) -> dict[str, float]:
    values = {
        "learner/updates": float(sum(update.updated for update in updates)),
        "learner/nonfinite_updates": float(sum(bool(update.nonfinite) for update in updates)),
        "learner/learning_rate": updates[-1].learning_rate,
        "learner/trained_sequences": float(len(sequences)),
        "learner/tokens": float(sum(update.tokens for update in updates)),
    }
    if norms := [update.grad_norm for update in updates if update.updated]:
        values["learner/grad_norm"] = statistics.fmean(norms)
    if values["learner/tokens"]:
        values["learner/tokens_per_s"] = values["learner/tokens"] / sum(update.seconds for update in updates)
    return values


def _notes(
    step: int, values: Mapping[str, float], updates: Sequence[UpdateStats], eps_low: float, eps_high: float
) -> list[str]:
    notes = []
    if not any(update.sequences for update in updates):
        right, wrong = values["groups/all_right_frac"], values["groups/all_wrong_frac"]
        why = (
            "every completion was wrong: the problems are too hard for this model or the answers cannot be read"
            if wrong == 1
            else "every completion was right: nothing left to learn from these problems"
            if right == 1
            else "within each group all rewards are equal"
        )
        notes.append(
            f"No group has a learning signal ({why}). The update is skipped and no new adapter is pushed; going on."
        )
    for update in updates:
        if update.nonfinite:
            notes.append(
                f"Update refused: the gradient is not finite in {len(update.nonfinite)} tensors, first "
                f"{update.nonfinite[0]}. Adapter and optimizer are unchanged."
            )
    noise = values.get("mismatch/seq_log_ratio_std", 0.0)
    if noise > min(eps_low, eps_high) and step % NOISE_NOTE_EVERY == 1:
        notes.append(
            f"The clip band (-{eps_low:g} / +{eps_high:g}) is narrower than the numeric gap between learner and "
            f"sampler (std {noise:.1e}; it alone puts {values['mismatch/clip_frac']:.0%} of sequences outside). "
            "Use one dtype on both sides (model.dtype=float32), or keep algo.old_logprobs=learner: it cancels the gap."
        )
    return notes
