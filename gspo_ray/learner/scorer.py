"""Log-probs of completions under the policy: packed rows with shared prompts, or padded rows where a model needs it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from peft import PeftModel
from torch import Tensor
from transformers import PretrainedConfig

from gspo_ray.algo.batch import TrainBatch, unjudged_batch
from gspo_ray.algo.logprobs import completion_positions, hidden_logprobs, token_logprobs
from gspo_ray.learner.attention import NAME as PACKED_ATTENTION
from gspo_ray.learner.packing import pack, packed_micro_batches, packed_tokens

CHECK_TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.3}  # largest |gap| of a token between the two ways
CHECK_WINDOW = 4  # tokens
PACKED_LAYERS = {"full_attention", "sliding_attention"}


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
    """No padding, one copy of a prompt for its completions, and no tensor of logits.

    Raises NotImplementedError for a model that does what is known not to work on packed rows.
    """

    shares_prompts = True

    def __init__(self, model: PeftModel, device: str) -> None:
        base: Any = model.get_base_model()
        config = base.config.get_text_config()
        _require_packable(config)
        self._decoder = getattr(base, base.base_model_prefix)
        self._head = base.get_output_embeddings()
        self._logit_scale = _logit_scale(config)
        self._device = device

    def micro_batches(self, batch: TrainBatch, max_tokens: int, *, with_kl: bool) -> list[Tensor]:
        return packed_micro_batches(batch, batch.active_rows(with_kl=with_kl), max_tokens)

    def logprobs(self, part: TrainBatch, temperature: float) -> Tensor:
        rows = pack(part, self._device)
        hidden_TH = self._decoder(
            input_ids=rows.token_ids_T[None], position_ids=rows.position_ids_T[None], packed=rows.layout
        ).last_hidden_state[0]
        logprobs_N = hidden_logprobs(
            hidden_TH[rows.source_N], self._head.weight, rows.target_N, temperature=temperature / self._logit_scale
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
    base: Any = model.get_base_model()
    check = _ragged_groups(base.config.get_text_config().vocab_size)
    padded, attention = PaddedScorer(model, device), base.config._attn_implementation
    try:
        packed = PackedScorer(model, device)
        with torch.no_grad(), _short_windows(base):
            wanted_RT = padded.logprobs(check, 1.0)
            base.set_attn_implementation(PACKED_ATTENTION)
            got_RT = packed.logprobs(check, 1.0)
        lens_R = check.completion_lens_B.to(device)
        real_RT = torch.arange(got_RT.shape[1], device=device) < lens_R[:, None]
        gap = float((got_RT - wanted_RT)[real_RT].abs().max())
        if gap <= CHECK_TOLERANCE[base.dtype]:
            return packed, f"packed rows, one copy of each prompt (largest gap to padded rows {gap:.1e})"
        reason = f"packed rows would change log-probs by up to {gap:.1e}"
    except NotImplementedError as error:
        reason = f"this model does not take packed rows: {error}"
    except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
        reason = f"this model does not take packed rows: {type(error).__name__}: {str(error)[:200]}"
    base.set_attn_implementation(attention)
    return padded, f"padded rows, every prompt repeated ({reason})"


def _require_packable(config: PretrainedConfig) -> None:
    for key in ("attn_logit_softcapping", "final_logit_softcapping"):
        if getattr(config, key, None) is not None:
            raise NotImplementedError(f"its {key} is not applied there")
    if others := set(getattr(config, "layer_types", None) or ()) - PACKED_LAYERS:
        raise NotImplementedError(f"in its {', '.join(sorted(others))} layers completions of one row would mix")


def _logit_scale(config: PretrainedConfig) -> float:
    """What the model multiplies the head's output with. Granite divides, Cohere multiplies."""
    return float(getattr(config, "logit_scale", 1.0) / getattr(config, "logits_scaling", 1.0))


@contextmanager
def _short_windows(base: Any) -> Iterator[None]:
    """Sliding windows that the check's sequences reach beyond: nobody sees whether the real ones are obeyed."""
    owners = {id(owner): vars(owner) for owner in (base.config.get_text_config(), *base.modules())}
    before = [(o, o["sliding_window"]) for o in owners.values() if isinstance(o.get("sliding_window"), int)]
    try:
        for owner, window in before:
            owner["sliding_window"] = min(window, CHECK_WINDOW)
        yield
    finally:
        for owner, window in before:
            owner["sliding_window"] = window


def _ragged_groups(vocabulary: int) -> TrainBatch:
    """Three groups of short sequences; ids are spread over the vocabulary by a fixed rule."""
    ids = iter(range(1, 10_000))

    def some(count: int) -> list[int]:
        return [next(ids) * 7919 % vocabulary for _ in range(count)]

    return unjudged_batch(
        [(some(6), [some(3), some(9)]), (some(2), [some(1)]), (some(11), [some(5), some(4), some(2)])]
    )
