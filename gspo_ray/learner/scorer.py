"""Log-probs of completions under the policy: packed rows with shared prompts, or padded rows where a model needs it."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from peft import PeftModel
from torch import Tensor

from gspo_ray.algo.batch import TrainBatch, unjudged_batch
from gspo_ray.algo.logprobs import completion_positions, hidden_logprobs, token_logprobs
from gspo_ray.learner.attention import NAME as PACKED_ATTENTION
from gspo_ray.learner.packing import pack, packed_micro_batches, packed_tokens

CHECK_TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.3}  # largest |gap| of a token between the two ways


class Scorer(Protocol):
    """How a batch goes through the model."""

    shares_prompts: bool  # whether a prompt is computed once for its completions

    def micro_batches(self, batch: TrainBatch, max_tokens: int, *, with_kl: bool) -> list[Tensor]:
        """Rows with a gradient, cut to fit `max_tokens` of this way's tokens."""
        ...

    def logprobs(self, part: TrainBatch, temperature: float) -> Tensor:
        """float32 [R, T] at the current weights, with gradients; padding may hold anything finite."""
        ...

    def tokens(self, part: TrainBatch) -> int:
        """Tokens that go through the model for `part`."""
        ...


class PaddedScorer:
    """Plain rows through the whole model, logits and all: right for every causal language model."""

    shares_prompts = False

    def __init__(self, model: PeftModel, device: str) -> None:
        self._model, self._device = model, device

    def micro_batches(self, batch: TrainBatch, max_tokens: int, *, with_kl: bool) -> list[Tensor]:
        return batch.micro_batches(max_tokens, with_kl=with_kl)

    def logprobs(self, part: TrainBatch, temperature: float) -> Tensor:
        """Rows are padded on the right and attention is causal, so no real token ever sees padding and no mask is
        needed. The head runs on the positions from the shortest prompt's end on."""
        ids_RL = part.token_ids_BL.to(self._device)
        first = int(part.prompt_lens_B.min()) - 1
        logits_RKV = self._model(input_ids=ids_RL, logits_to_keep=ids_RL.shape[1] - first).logits
        prompt_lens_R, lens_R = part.prompt_lens_B.to(self._device), part.completion_lens_B.to(self._device)
        index_RT, chosen_RT = completion_positions(ids_RL, prompt_lens_R, lens_R, first_position=first)
        rows = [logits_KV[index_T] for logits_KV, index_T in zip(logits_RKV, index_RT, strict=True)]
        return token_logprobs(rows, chosen_RT, temperature=temperature)

    def tokens(self, part: TrainBatch) -> int:
        return int((part.prompt_lens_B + part.completion_lens_B).sum())


class PackedScorer:
    """No padding, one copy of a prompt for its completions, and no tensor of logits."""

    shares_prompts = True

    def __init__(self, model: PeftModel, device: str) -> None:
        base: Any = model.get_base_model()
        self._decoder = getattr(base, base.base_model_prefix)
        self._head = base.get_output_embeddings()
        self._device = device

    def micro_batches(self, batch: TrainBatch, max_tokens: int, *, with_kl: bool) -> list[Tensor]:
        return packed_micro_batches(batch, batch.active_rows(with_kl=with_kl), max_tokens)

    def logprobs(self, part: TrainBatch, temperature: float) -> Tensor:
        rows = pack(part, self._device)
        hidden_TH = self._decoder(
            input_ids=rows.token_ids_T[None], position_ids=rows.position_ids_T[None], packed=rows.layout
        ).last_hidden_state[0]
        logprobs_N = hidden_logprobs(
            hidden_TH[rows.source_N], self._head.weight, rows.target_N, temperature=temperature
        )
        width_T = int(part.completion_lens_B.max())
        blank_RT = logprobs_N.new_zeros(len(part.row_B), width_T)
        return blank_RT.index_put((rows.row_N, rows.column_N), logprobs_N)

    def tokens(self, part: TrainBatch) -> int:
        return packed_tokens(part)


def choose_scorer(model: PeftModel, device: str) -> tuple[Scorer, str]:
    """The packed way where this model takes it, else the padded one; and a sentence that says which, and why.

    Both score a few ragged groups of token ids at the weights as they are; packed rows are used only if they agree.
    """
    check = _ragged_groups(model.get_base_model().config.get_text_config().vocab_size)
    padded, base = PaddedScorer(model, device), model.get_base_model()
    try:
        with torch.no_grad():
            wanted_RT = padded.logprobs(check, 1.0)
            base.set_attn_implementation(PACKED_ATTENTION)
            packed = PackedScorer(model, device)
            got_RT = packed.logprobs(check, 1.0)
        lens_R = check.completion_lens_B.to(device)
        real_RT = torch.arange(got_RT.shape[1], device=device) < lens_R[:, None]
        gap = float((got_RT - wanted_RT)[real_RT].abs().max())
        if gap <= CHECK_TOLERANCE[base.dtype]:
            return packed, f"packed rows, one copy of each prompt (largest gap to padded rows {gap:.1e})"
        reason = f"packed rows would change log-probs by up to {gap:.1e}"
    except (AttributeError, KeyError, NotImplementedError, RuntimeError, TypeError, ValueError) as error:
        reason = f"this model does not take packed rows: {type(error).__name__}: {str(error)[:200]}"
    base.set_attn_implementation("sdpa")
    return padded, f"padded rows, every prompt repeated ({reason})"


def _ragged_groups(vocabulary: int) -> TrainBatch:
    """Three groups of short sequences; ids are spread over the vocabulary by a fixed rule."""
    ids = iter(range(1, 10_000))

    def some(count: int) -> list[int]:
        return [next(ids) * 7919 % vocabulary for _ in range(count)]

    return unjudged_batch(
        [(some(6), [some(3), some(9)]), (some(2), [some(1)]), (some(11), [some(5), some(4), some(2)])]
    )
