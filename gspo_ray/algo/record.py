"""Everything that one training step was made of, for whoever looks at it afterwards."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from gspo_ray.algo.advantages import Reward
from gspo_ray.algo.stats import SequenceStats, UpdateStats
from gspo_ray.types import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """Rows of the batch are the completions of `groups_P`, group after group."""

    step: int
    groups_P: Sequence[Group]  # the batch
    rewards_PG: Sequence[Sequence[Reward]] = ()  # as compared: with length penalty, None where never judged
    advantages_PG: Sequence[Sequence[float]] = ()
    counted_PG: Sequence[Sequence[bool]] = ()  # False: neither in the loss nor in its divisor
    discarded: Sequence[Group] = ()  # without a learning signal, replaced by dynamic sampling
    refills: int = 0  # how often some were replaced
    updates: Sequence[UpdateStats] = ()

    @property
    def sampled(self) -> list[Group]:
        """All groups of the step, those that were discarded too."""
        return [*self.groups_P, *self.discarded]

    @property
    def sequences(self) -> list[SequenceStats]:
        """One entry for each row and each update that it was in."""
        return [sequence for update in self.updates for sequence in update.sequences]

    def sequences_by_row(self) -> dict[int, list[SequenceStats]]:
        """For each computed row its numbers, one entry an update."""
        rows: dict[int, list[SequenceStats]] = defaultdict(list)
        for sequence in self.sequences:
            rows[sequence.row].append(sequence)
        return dict(rows)
