"""Rows without padding, and one copy of a prompt for all its completions.

A packed row is one sequence of tokens [prompt, c_1, ..., c_g, next prompt, ...]. Each completion continues its prompt:
its positions start where the prompt ends, and it attends to the prompt and to itself alone. Every token is computed
once, and the gradient that reaches the prompt is the sum over its completions, as with a copy of the prompt for each.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby
from math import inf

import torch
from torch import Tensor

from gspo_ray.algo.batch import TrainBatch


@dataclass(frozen=True, slots=True)
class PackedGroup:
    """A prompt and its completions in a packed row; `starts` are places in the row."""

    start: int
    prompt_len: int
    lens: tuple[int, ...]  # of the completions, one after the other behind the prompt

    @property
    def end(self) -> int:
        return self.start + self.prompt_len + sum(self.lens)

    def positions(self) -> list[int]:
        """Position of each token in its own sequence."""
        completions = [self.prompt_len + t for length in self.lens for t in range(length)]
        return [*range(self.prompt_len), *completions]

    def owners(self) -> list[int]:
        """-1 for prompt tokens, else the number of the completion."""
        return [-1] * self.prompt_len + [number for number, length in enumerate(self.lens) for _ in range(length)]


@dataclass(frozen=True, slots=True)
class PackedLayout:
    """Who sees whom in a packed row of T tokens."""

    groups: tuple[PackedGroup, ...]
    device: torch.device
    _masks: dict[tuple[int, int | None, torch.dtype], Tensor] = field(default_factory=dict)

    def mask(self, number: int, window: int | None, dtype: torch.dtype) -> Tensor:
        """[L, L] of group `number`, to be added to scores: 0 where a query (row) sees a key (column), else -inf.

        Made once for all layers; attention would make it from a bool mask in each of them.
        """
        key = (number, window, dtype)
        if key not in self._masks:
            group = self.groups[number]
            positions = torch.tensor(group.positions(), device=self.device)
            owners = torch.tensor(group.owners(), device=self.device)
            distance = positions[:, None] - positions[None, :]
            visible = (distance >= 0) & ((owners[None, :] == -1) | (owners[:, None] == owners[None, :]))
            if window is not None:
                visible &= distance < window
            self._masks[key] = torch.zeros(visible.shape, dtype=dtype, device=self.device).masked_fill_(~visible, -inf)
        return self._masks[key]


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedRows:
    """N completion tokens, each predicted from the hidden state at `source_N`."""

    token_ids_T: Tensor  # int64
    position_ids_T: Tensor  # int64
    layout: PackedLayout
    source_N: Tensor  # int64, places in the packed row
    target_N: Tensor  # int64, token ids
    row_N: Tensor  # int64, row of the batch
    column_N: Tensor  # int64, place in the completion


def pack(batch: TrainBatch, device: str | torch.device) -> PackedRows:
    """All rows of `batch`; neighbours of one group share their prompt."""
    tokens: list[Tensor] = []
    targets: list[Tensor] = []
    sources: list[Tensor] = []
    rows: list[Tensor] = []
    groups: list[PackedGroup] = []
    start = 0
    for members in shared_prompts(batch):
        prompt_len = int(batch.prompt_lens_B[members[0]])
        lens = tuple(int(batch.completion_lens_B[row]) for row in members)
        groups.append(PackedGroup(start, prompt_len, lens))
        tokens.append(batch.token_ids_BL[members[0], :prompt_len])
        place = start + prompt_len
        for row, length in zip(members, lens, strict=True):
            targets.append(batch.token_ids_BL[row, prompt_len : prompt_len + length])
            # The prompt's last token predicts the first token of every completion.
            sources.append(torch.tensor([start + prompt_len - 1, *range(place, place + length - 1)]))
            rows.append(torch.full((length,), row))
            place += length
        tokens += targets[-len(lens) :]
        start = place
    return PackedRows(
        token_ids_T=torch.cat(tokens).to(device),
        position_ids_T=torch.tensor([position for group in groups for position in group.positions()], device=device),
        layout=PackedLayout(tuple(groups), torch.device(device)),
        source_N=torch.cat(sources).to(device),
        target_N=torch.cat(targets).to(device),
        row_N=torch.cat(rows).to(device),
        column_N=torch.cat([torch.arange(len(target)) for target in targets]).to(device),
    )


def shared_prompts(batch: TrainBatch) -> list[list[int]]:
    """Rows that follow one another and have the same prompt."""

    def prompt(row: int) -> tuple[int, tuple[int, ...]]:
        length = int(batch.prompt_lens_B[row])
        return int(batch.group_B[row]), tuple(batch.token_ids_BL[row, :length].tolist())

    return [list(members) for _, members in groupby(range(len(batch.group_B)), key=prompt)]


def packed_micro_batches(batch: TrainBatch, rows_R: Tensor, max_tokens: int) -> list[Tensor]:
    """`rows_R` cut so that the packed tokens of a piece are at most `max_tokens` (one completion always fits).

    Rows of one group stay neighbours; a prompt is counted once in each piece that needs it, so a group is cut only
    when it does not fit in a piece of its own.
    """
    pieces: list[list[int]] = []
    room = 0
    ordered = sorted(rows_R.tolist(), key=lambda row: (int(batch.group_B[row]), row))
    for _, members in groupby(ordered, key=lambda row: int(batch.group_B[row])):
        group = list(members)
        prompt_len = int(batch.prompt_lens_B[group[0]])
        whole = prompt_len + int(batch.completion_lens_B[group].sum())
        if room < whole <= max_tokens:
            room = 0
        fresh = True
        for row in group:
            length = int(batch.completion_lens_B[row])
            if room < length + prompt_len * fresh:
                pieces.append([])
                room, fresh = max_tokens, True
            pieces[-1].append(row)
            room, fresh = room - length - prompt_len * fresh, False
    return [torch.tensor(piece) for piece in pieces]


def packed_tokens(batch: TrainBatch) -> int:
    """Tokens that a packed row of all rows of `batch` has."""
    return int(batch.completion_lens_B.sum()) + sum(int(batch.prompt_lens_B[m[0]]) for m in shared_prompts(batch))
