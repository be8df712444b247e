"""The training batch: what one rollout becomes for the learner.

Legend: B sequences, L tokens of a padded row (prompt + completion), T tokens of the longest completion.
Log-probs are aligned to completions: entry [b, t] belongs to completion token t of row b; t >= completion_lens_B[b]
is padding, is never read, and may hold anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor

from gspo_ray.types import Finish, Group

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainBatch:
    token_ids_BL: Tensor  # int64, right-padded
    prompt_lens_B: Tensor  # int64
    completion_lens_B: Tensor  # int64, EOS included
    sampler_logprobs_BT: Tensor  # float32, the engine's numbers
    old_logprobs_BT: Tensor | None  # float32, the learner's at the sampling weights; None: not computed
    reference_logprobs_BT: Tensor | None  # float32, the model's with the adapter switched off; None: not computed
    advantages_B: Tensor  # float32
    counted_B: Tensor  # bool; False: neither in the loss nor in its divisor (never judged, or truncated and masked)
    row_B: Tensor  # int64, place of the row in the rollout batch, whatever mini-batch it is in
    group_B: Tensor  # int64, index of the group within the rollout batch
    policy_age_B: Tensor  # int64, training steps between the sampling weights and the newest
    num_sequences: int  # the divisor of the loss: ALL counted sequences, degenerate ones too; fixed before any split
    num_tokens: int  # their completion tokens, for the aggregations that divide by tokens
    is_first_update: bool = True  # no update has happened between sampling weights and this mini-batch

    def active_rows(self, *, with_kl: bool = False) -> Tensor:
        """Counted rows with a gradient. The others stay in the divisor and are not computed.

        A KL term pulls on every row; the policy term only where the advantage is not zero.
        """
        return (self.counted_B & (with_kl | (self.advantages_B != 0))).nonzero()[:, 0]

    def split(self, num_minibatches: int, *, shuffle_seed: int | None = None) -> list[TrainBatch]:
        """Mini-batches that are as even as they come; each is divided by its own counts, and no row is left out.

        Whole groups in their order; with a seed, rows in random order (advantages are made before, group by group).
        """
        groups = self.group_B.unique_consecutive()
        if num_minibatches > len(groups):
            raise ValueError(f"cannot split {len(groups)} groups into {num_minibatches} mini-batches")
        if num_minibatches == 1:
            return [self]
        if shuffle_seed is None:
            chunks = torch.tensor_split(groups, num_minibatches)
            rows = [torch.isin(self.group_B, chunk).nonzero()[:, 0] for chunk in chunks]
        else:
            order_B = torch.randperm(len(self.group_B), generator=torch.Generator().manual_seed(shuffle_seed))
            rows = list(torch.tensor_split(order_B, num_minibatches))
        return [
            replace(
                self.rows(index),
                num_sequences=int(self.counted_B[index].sum()),
                num_tokens=int(self.completion_lens_B[index][self.counted_B[index]].sum()),
                is_first_update=self.is_first_update and number == 0,
            )
            for number, index in enumerate(rows)
        ]

    def rows(self, index_R: Tensor) -> TrainBatch:
        """The given rows without the padding that only other rows need; the divisor is kept."""
        width_L = int((self.prompt_lens_B[index_R] + self.completion_lens_B[index_R]).max())
        width_T = int(self.completion_lens_B[index_R].max())
        old, reference = self.old_logprobs_BT, self.reference_logprobs_BT
        return replace(
            self,
            token_ids_BL=self.token_ids_BL[index_R, :width_L],
            prompt_lens_B=self.prompt_lens_B[index_R],
            completion_lens_B=self.completion_lens_B[index_R],
            sampler_logprobs_BT=self.sampler_logprobs_BT[index_R, :width_T],
            old_logprobs_BT=None if old is None else old[index_R, :width_T],
            reference_logprobs_BT=None if reference is None else reference[index_R, :width_T],
            advantages_B=self.advantages_B[index_R],
            counted_B=self.counted_B[index_R],
            row_B=self.row_B[index_R],
            group_B=self.group_B[index_R],
            policy_age_B=self.policy_age_B[index_R],
        )

    def micro_batches(self, max_tokens: int, *, with_kl: bool = False) -> list[Tensor]:
        """Active rows, sorted by length and cut so that rows x longest row <= max_tokens (one row always fits)."""
        lens_B = self.prompt_lens_B + self.completion_lens_B
        pieces: list[list[int]] = []
        for row in sorted(self.active_rows(with_kl=with_kl).tolist(), key=lambda row: int(lens_B[row])):
            if pieces and (len(pieces[-1]) + 1) * int(lens_B[row]) <= max_tokens:
                pieces[-1].append(row)
            else:
                pieces.append([row])
        return [torch.tensor(piece) for piece in pieces]


def completion_mask(completion_lens_B: Tensor, width_T: int) -> Tensor:
    """bool [B, T], True on completion tokens. From lengths, never from token values: pad may equal EOS."""
    return torch.arange(width_T, device=completion_lens_B.device) < completion_lens_B[:, None]


def collate(
    groups_P: Sequence[Group],
    advantages_PG: Sequence[Sequence[float]],
    counted_PG: Sequence[Sequence[bool]],
    *,
    newest_step: int,
) -> TrainBatch:
    """Rows in the order of the groups. Raises ValueError for an empty or aborted completion, or ragged log-probs."""
    completions = [completion for group in groups_P for completion in group.completions]
    for completion in completions:
        where = f"engine {completion.engine_id}, seed {completion.seed}"
        if not completion.token_ids or completion.finish is Finish.ABORT:
            raise ValueError(f"empty or aborted completion ({where})")
        if len(completion.token_ids) != len(completion.sampler_logprobs):
            raise ValueError(f"{len(completion.token_ids)} tokens but not as many log-probs ({where})")
    for group in groups_P:
        if not group.prompt.token_ids:
            raise ValueError(f"the prompt of problem {group.prompt.problem.problem_id} is empty")
    prompts = [group.prompt.token_ids for group in groups_P for _ in group.completions]
    sizes_P = torch.tensor([len(group.completions) for group in groups_P])
    rows = [torch.tensor([*prompt, *c.token_ids]) for prompt, c in zip(prompts, completions, strict=True)]
    logprobs = [torch.tensor(c.sampler_logprobs, dtype=torch.float32) for c in completions]
    lens_B = torch.tensor([len(c.token_ids) for c in completions])
    counted_B = torch.tensor(_per_row(counted_PG, sizes_P), dtype=torch.bool)
    pad = torch.nn.utils.rnn.pad_sequence
    return TrainBatch(
        token_ids_BL=pad(rows, batch_first=True),
        prompt_lens_B=torch.tensor([len(prompt) for prompt in prompts]),
        completion_lens_B=lens_B,
        sampler_logprobs_BT=pad(logprobs, batch_first=True),
        old_logprobs_BT=None,
        reference_logprobs_BT=None,
        advantages_B=torch.tensor(_per_row(advantages_PG, sizes_P), dtype=torch.float32),
        counted_B=counted_B,
        row_B=torch.arange(len(completions)),
        group_B=torch.arange(len(groups_P)).repeat_interleave(sizes_P),
        policy_age_B=torch.tensor([newest_step - c.version.step for c in completions]),
        num_sequences=int(counted_B.sum()),
        num_tokens=int(lens_B[counted_B].sum()),
    )


def unjudged_batch(groups_P: Sequence[tuple[Sequence[int], Sequence[Sequence[int]]]]) -> TrainBatch:
    """Rows to be scored and never trained on: (prompt ids, ids of each completion) for every group."""
    rows = [(number, prompt, ids) for number, (prompt, completions) in enumerate(groups_P) for ids in completions]
    pad = torch.nn.utils.rnn.pad_sequence
    lens_B = torch.tensor([len(ids) for *_, ids in rows])
    zeros_B = torch.zeros(len(rows), dtype=torch.int64)
    return TrainBatch(
        token_ids_BL=pad([torch.tensor([*prompt, *ids]) for _, prompt, ids in rows], batch_first=True),
        prompt_lens_B=torch.tensor([len(prompt) for _, prompt, _ in rows]),
        completion_lens_B=lens_B,
        sampler_logprobs_BT=torch.zeros(len(rows), int(lens_B.max())),
        old_logprobs_BT=None,
        reference_logprobs_BT=None,
        advantages_B=torch.zeros(len(rows)),
        counted_B=torch.ones(len(rows), dtype=torch.bool),
        row_B=torch.arange(len(rows)),
        group_B=torch.tensor([number for number, *_ in rows]),
        policy_age_B=zeros_B,
        num_sequences=len(rows),
        num_tokens=int(lens_B.sum()),
    )


def _per_row(values_PG: Sequence[Sequence[T]], sizes_P: Tensor) -> list[T]:
    """Raises ValueError when a group has not one value for each completion."""
    if [len(values_G) for values_G in values_PG] != sizes_P.tolist():
        raise ValueError("advantages or masks do not fit the groups")
    return [value for values_G in values_PG for value in values_G]
