"""Plain words where the numbers of a step alone would mislead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from gspo_ray.algo.record import StepRecord

FLAT_LIMIT, FLAT_STEPS = 0.9, 5  # groups without signal, steps in a row


class StepNotes:
    """What holds for a whole run is said once."""

    def __init__(
        self, *, eps_low: float, eps_high: float, old_logprobs: Literal["learner", "sampler", "reference"]
    ) -> None:
        self._eps_low, self._eps_high, self._old_logprobs = eps_low, eps_high, old_logprobs
        self._noise_said = False
        self._flat_steps = 0

    def about(self, record: StepRecord, values: Mapping[str, float]) -> list[str]:
        return [
            *self._no_signal(record, values),
            *self._dynamic_sampling(record),
            *self._refused(record),
            *self._noise(values),
            *self._mostly_flat(values),
        ]

    def _no_signal(self, record: StepRecord, values: Mapping[str, float]) -> list[str]:
        if record.sequences:
            return []
        right, wrong = values["groups/all_right_frac"], values["groups/all_wrong_frac"]
        why = (
            "every completion was wrong: the problems are too hard for this model or the answers cannot be read"
            if wrong == 1
            else "every completion was right: nothing left to learn from these problems"
            if right == 1
            else "within each group all rewards are equal"
        )
        return [
            f"No group has a learning signal ({why}). The update is skipped and no new adapter is pushed; going on."
        ]

    def _dynamic_sampling(self, record: StepRecord) -> list[str]:
        if not record.discarded:
            return []
        ids = [group.prompt.problem.problem_id for group in record.discarded]
        left = sum(not any(advantages_G) for advantages_G in record.advantages_PG)
        rest = f"; {left} groups are still without one and stay in the batch" if left else ""
        some = ", ".join(ids[:5]) + (", ..." if len(ids) > 5 else "")
        return [
            f"Dynamic sampling replaced {len(ids)} groups without a learning signal in {record.refills} "
            f"{'try' if record.refills == 1 else 'tries'} (problems {some}){rest}."
        ]

    def _refused(self, record: StepRecord) -> list[str]:
        return [
            f"Update refused: the gradient is not finite in {len(update.nonfinite)} tensors, first "
            f"{update.nonfinite[0]}. Adapter and optimizer are unchanged."
            for update in record.updates
            if update.nonfinite
        ]

    def _noise(self, values: Mapping[str, float]) -> list[str]:
        noise = values.get("mismatch/seq_log_ratio_std", 0.0)
        if self._noise_said or noise <= min(self._eps_low, self._eps_high):
            return []
        self._noise_said = True
        gap = (
            f"The clip band (-{self._eps_low:g} / +{self._eps_high:g}) is narrower than the numeric gap between "
            f"learner and sampler (std {noise:.1e} of the sequence log-ratio before any update; it alone puts "
            f"{values['mismatch/outside_frac']:.0%} of sequences outside)."
        )
        if self._old_logprobs == "learner":
            return [
                f"{gap} algo.old_logprobs=learner keeps the gap out of the ratio; one dtype on both sides "
                "(model.dtype=float32) would make it smaller. Said once."
            ]
        return [
            f"{gap} The clip acts on noise. Two remedies: algo.old_logprobs=learner takes the gap out of the ratio; "
            "one dtype on both sides (model.dtype=float32) makes it smaller. Said once."
        ]

    def _mostly_flat(self, values: Mapping[str, float]) -> list[str]:
        flat = values["groups/degenerate_frac"] > FLAT_LIMIT
        self._flat_steps = self._flat_steps + 1 if flat else 0
        if self._flat_steps != FLAT_STEPS:
            return []
        return [
            f"In each of the last {FLAT_STEPS} steps more than {FLAT_LIMIT:.0%} of the groups had no learning signal: "
            "a flat curve now says nothing about the method. Use problems of other difficulty, larger groups "
            "(rollout.group_size), or algo.dynamic_sampling.max_tries."
        ]
