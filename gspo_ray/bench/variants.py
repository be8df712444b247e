"""Ways to the same gradient: ours, ours with one trick after the other taken away, and the plain way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from gspo_ray.algo.aggregation import Divisor
from gspo_ray.algo.batch import TrainBatch, completion_mask, unjudged_batch
from gspo_ray.algo.logprobs import completion_positions, hidden_logprobs, token_logprobs
from gspo_ray.algo.losses import Objective, policy_loss
from gspo_ray.bench.batches import Group
from gspo_ray.bench.case import Case
from gspo_ray.bench.flops import Work, packed_work, padded_work
from gspo_ray.errors import LearnerError
from gspo_ray.learner.packing import pack
from gspo_ray.learner.scorer import PackedScorer, PaddedScorer, Scorer, choose_scorer

SPREAD_OF_B = 0.02  # LoRA's B starts at 0, and A would get no gradient


class Variant(Protocol):
    @property
    def note(self) -> str:
        """What a person should know about it, or nothing."""
        ...

    def step(self) -> tuple[Work, int]:
        """Forward, loss and backward of the whole batch; gradients are added to. Its work and its micro-batches."""
        ...


def train_batch(groups: list[Group]) -> TrainBatch:
    """Every sequence with an advantage, +1 and -1 in turn."""
    batch = unjudged_batch(groups)
    return replace(batch, advantages_B=1.0 - 2.0 * (batch.row_B % 2))


def move_adapter(model: Any, seed: int) -> None:
    """To a place where every LoRA weight has a gradient; the same for every variant."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.copy_(SPREAD_OF_B * torch.randn(parameter.shape, generator=generator))


@dataclass(frozen=True, slots=True, kw_only=True)
class ScorerVariant:
    scorer: Scorer
    batch: TrainBatch
    case: Case
    work: Callable[[TrainBatch], Work]
    note: str = ""

    def step(self) -> tuple[Work, int]:
        total = Work(tokens=0, head_tokens=0, pairs=0)
        pieces = self.scorer.micro_batches(self.batch, self.case.micro_batch_tokens, with_kl=False)
        for rows_R in pieces:
            part = self.batch.rows(rows_R)
            self._loss(part).backward()
            total += self.work(part)
        return total, len(pieces)

    def _loss(self, part: TrainBatch) -> Tensor:
        """At the first update: the old log-probs are the current ones."""
        device = self.case.device
        logprobs_RT = self.scorer.logprobs(part, self.case.temperature)
        loss, _ = policy_loss(
            logprobs_RT,
            logprobs_RT.detach(),
            completion_mask(part.completion_lens_B, logprobs_RT.shape[1]).to(device),
            part.advantages_B.to(device),
            objective=Objective(),
            divisor=Divisor(num_sequences=part.num_sequences, num_tokens=part.num_tokens, max_tokens=1),
        )
        return loss


class PackedWithLogits(PackedScorer):
    """All logits of a micro-batch at once."""

    def logprobs(self, part: TrainBatch, temperature: float) -> Tensor:
        rows = pack(part, self._device)
        hidden_TH = self._decoder(
            input_ids=rows.token_ids_T[None], position_ids=rows.position_ids_T[None], packed=rows.layout
        ).last_hidden_state[0]
        logits_NV = torch.nn.functional.linear(hidden_TH[rows.source_N], self._head.weight)
        scale = temperature / self._logit_scale
        logprobs_N = token_logprobs(logits_NV[None], rows.target_N[None], temperature=scale)[0]
        blank_RT = logprobs_N.new_zeros(len(part.row_B), int(part.completion_lens_B.max()))
        return blank_RT.index_put((rows.row_N, rows.column_N), logprobs_N)


class PaddedWithoutLogits(PackedScorer):
    """Padded rows, but log-probs from the hidden states of completions alone."""

    def micro_batches(self, batch: TrainBatch, max_tokens: int, *, with_kl: bool) -> list[Tensor]:
        return batch.micro_batches(max_tokens, with_kl=with_kl)

    def logprobs(self, part: TrainBatch, temperature: float) -> Tensor:
        ids_RL = part.token_ids_BL.to(self._device)
        prompt_lens_R, lens_R = part.prompt_lens_B.to(self._device), part.completion_lens_B.to(self._device)
        index_RT, chosen_RT = completion_positions(ids_RL, prompt_lens_R, lens_R, first_position=0)
        mask_RT = completion_mask(lens_R, index_RT.shape[1])
        rows_N, columns_N = mask_RT.nonzero(as_tuple=True)
        hidden_RLH = self._decoder(input_ids=ids_RL).last_hidden_state
        logprobs_N = hidden_logprobs(
            hidden_RLH[rows_N, index_RT[mask_RT]],
            self._head.weight,
            chosen_RT[mask_RT],
            temperature=temperature / self._logit_scale,
        )
        return logprobs_N.new_zeros(mask_RT.shape).index_put((rows_N, columns_N), logprobs_N)


class PlainScorer(PaddedScorer):
    """What one writes first: rows in their order, an attention mask, logits of every position, log_softmax."""

    def micro_batches(self, batch: TrainBatch, max_tokens: int, *, with_kl: bool) -> list[Tensor]:
        rows = max(1, max_tokens // batch.token_ids_BL.shape[1])
        return list(batch.active_rows(with_kl=with_kl).split(rows))

    def logprobs(self, part: TrainBatch, temperature: float) -> Tensor:
        ids_RL = part.token_ids_BL.to(self._device)
        prompt_lens_R, lens_R = part.prompt_lens_B.to(self._device), part.completion_lens_B.to(self._device)
        mask_RL = completion_mask(prompt_lens_R + lens_R, ids_RL.shape[1])
        logits_RLV = self._model(input_ids=ids_RL, attention_mask=mask_RL.long()).logits[:, :-1].float()
        if temperature != 1:
            logits_RLV = logits_RLV / temperature
        all_RL = logits_RLV.log_softmax(-1).gather(-1, ids_RL[:, 1:, None])[..., 0]
        index_RT, _ = completion_positions(ids_RL, prompt_lens_R, lens_R, first_position=0)
        return all_RL.gather(1, index_RT)


def _ours(model: Any, case: Case) -> Variant:
    scorer, note = choose_scorer(model, case.device)
    work = packed_work if scorer.shares_prompts else _padded_short
    return ScorerVariant(scorer=scorer, batch=train_batch(case.groups), case=case, work=work, note=note)


def _packed(model: Any, case: Case) -> PackedScorer:
    scorer, note = choose_scorer(model, case.device)
    if not isinstance(scorer, PackedScorer):
        raise LearnerError(f"variant {case.variant}: {note}")
    return scorer


def _repeated_prompts(model: Any, case: Case) -> Variant:
    batch = train_batch(case.groups)
    alone = replace(batch, group_B=batch.row_B)
    return ScorerVariant(scorer=_packed(model, case), batch=alone, case=case, work=packed_work)


def _full_logits(model: Any, case: Case) -> Variant:
    _packed(model, case)
    scorer = PackedWithLogits(model, case.device)
    return ScorerVariant(scorer=scorer, batch=train_batch(case.groups), case=case, work=packed_work)


def _padded_rows(model: Any, case: Case) -> Variant:
    scorer = PaddedWithoutLogits(model, case.device)
    return ScorerVariant(scorer=scorer, batch=train_batch(case.groups), case=case, work=_padded_short)


def _plain(model: Any, case: Case) -> Variant:
    scorer = PlainScorer(model, case.device)
    return ScorerVariant(scorer=scorer, batch=train_batch(case.groups), case=case, work=_padded_whole)


def _padded_short(part: TrainBatch) -> Work:
    return padded_work(part, head_everywhere=False)


def _padded_whole(part: TrainBatch) -> Work:
    return padded_work(part, head_everywhere=True)


def _trl(model: Any, case: Case) -> Variant:
    from gspo_ray.bench.trl_path import TrlVariant

    return TrlVariant(model, case, compact=case.variant == "trl_compact")


BUILDERS: dict[str, Callable[[Any, Case], Variant]] = {
    "ours": _ours,
    "repeated_prompts": _repeated_prompts,
    "padded_rows": _padded_rows,
    "full_logits": _full_logits,
    "plain": _plain,
    "trl": _trl,
    "trl_compact": _trl,
}
