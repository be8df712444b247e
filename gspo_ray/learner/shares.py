"""Which rank computes which rows: as many tokens for one as for another, groups whole where that is even enough."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import Tensor

from gspo_ray.algo.batch import TrainBatch

EVEN_ENOUGH = 1.01  # heaviest rank against the mean: below this no group is taken apart for a better balance


def share(batch: TrainBatch, rows_R: Tensor, num_ranks: int, *, shared_prompts: bool) -> list[Tensor]:
    """`rows_R` dealt to the ranks, each share in the order of `rows_R`; a rank may get none.

    A function of its arguments alone: every rank works out all shares for itself. Whole groups first, the largest to
    the rank with the fewest tokens so far; then single rows go from the heaviest rank to the lightest while that makes
    the heavier of the two lighter. `shared_prompts`: a rank computes a prompt once for all its completions of a group.
    """
    rows = _Rows(batch, rows_R, shared_prompts)
    loads = [_Load(rows) for _ in range(num_ranks)]
    groups = sorted(rows.groups(), key=lambda members: (-rows.tokens(members), members[0]))
    for members in groups:
        lightest = min(loads, key=lambda load: load.tokens)
        for row in members:
            lightest.take(row)
    while _even_out(loads):
        pass
    return [torch.tensor(sorted(load.rows, key=rows.place.__getitem__), dtype=torch.int64) for load in loads]


class _Rows:
    """Lengths of the rows, and which of them share a prompt."""

    def __init__(self, batch: TrainBatch, rows_R: Tensor, shared_prompts: bool) -> None:
        order = rows_R.tolist()
        self.place = {row: place for place, row in enumerate(order)}
        self.prompt = {row: int(batch.prompt_lens_B[row]) for row in order}
        self.length = {row: int(batch.completion_lens_B[row]) for row in order}
        # Without sharing every row is a group of its own.
        self.group = {row: int(batch.group_B[row]) if shared_prompts else row for row in order}

    def groups(self) -> Iterable[list[int]]:
        members = defaultdict(list)
        for row, group in self.group.items():
            members[group].append(row)
        return members.values()

    def tokens(self, members: list[int]) -> int:
        return self.prompt[members[0]] + sum(self.length[row] for row in members)


class _Load:
    """What one rank has so far."""

    def __init__(self, lengths: _Rows) -> None:
        self._of = lengths
        self._members: dict[int, int] = defaultdict(int)  # rows of each group
        self.rows: set[int] = set()
        self.tokens = 0

    def with_row(self, row: int) -> int:
        """Tokens after `take(row)`."""
        return self.tokens + self._of.length[row] + (0 if self._members[self._of.group[row]] else self._of.prompt[row])

    def without_row(self, row: int) -> int:
        last = self._members[self._of.group[row]] == 1
        return self.tokens - self._of.length[row] - (self._of.prompt[row] if last else 0)

    def take(self, row: int) -> None:
        self.tokens = self.with_row(row)
        self.rows.add(row)
        self._members[self._of.group[row]] += 1

    def give(self, row: int) -> None:
        self.tokens = self.without_row(row)
        self.rows.remove(row)
        self._members[self._of.group[row]] -= 1


def _even_out(loads: list[_Load]) -> bool:
    """Moves the row that helps most; False when none helps or none is needed."""
    heavy, light = max(loads, key=lambda load: load.tokens), min(loads, key=lambda load: load.tokens)
    if heavy.tokens * len(loads) <= EVEN_ENOUGH * sum(load.tokens for load in loads):
        return False
    after, row = min((max(heavy.without_row(row), light.with_row(row)), row) for row in heavy.rows)
    if after >= heavy.tokens:
        return False
    heavy.give(row)
    light.take(row)
    return True
