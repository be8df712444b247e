"""One micro-batch of the learner on the meta device: its own code runs, no number is computed, every tensor that would
be held is counted."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from peft import PeftModel
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import masking_utils

from gspo_ray.algo.batch import TrainBatch
from gspo_ray.algo.logprobs import completion_positions
from gspo_ray.learner import attention, scorer
from gspo_ray.learner.scorer import PackedScorer, PaddedScorer, Scorer


@dataclass(frozen=True, slots=True)
class Rehearsal:
    kept_bytes: int  # by the forward pass for the backward pass
    peak_bytes: int  # the most at one time, in either pass

    @property
    def passing_bytes(self) -> int:
        """Of a moment: log-prob chunks, a recomputed layer, gradients on their way."""
        return self.peak_bytes - self.kept_bytes


def scorer_of(model: PeftModel) -> Scorer:
    """The way that `learner.scorer.choose_scorer` will take, unless its check of real numbers finds a gap."""
    base: Any = model.get_base_model()
    try:
        packed = PackedScorer(model, "meta")
    except NotImplementedError:
        return PaddedScorer(model, "meta")
    base.set_attn_implementation(attention.NAME)
    return packed


def rehearse(policy: PeftModel, way: Scorer, part: TrainBatch, *, device: str) -> Rehearsal:
    """Above the model and the gradients of its adapter, for forward and backward of `part` on `device`.

    Of layers that repeat, one and two periods are run, and the rest added: the first period has inputs without
    gradients and keeps less than every other.
    """
    decoder = policy.get_base_model().get_decoder()
    layers, period = decoder.layers, _period(decoder)
    if len(layers) <= 2 * period:
        return _run(way, part, device)
    try:
        decoder.layers = layers[:period]
        one = _run(way, part, device)
        decoder.layers = layers[: 2 * period]
        two = _run(way, part, device)
    finally:
        decoder.layers = layers
    more = (len(layers) // period - 2) * (two.kept_bytes - one.kept_bytes)
    return Rehearsal(kept_bytes=two.kept_bytes + more, peak_bytes=two.peak_bytes + more)


def _period(decoder: Any) -> int:
    """Layers after which kinds and shapes repeat, to the last layer."""
    kinds = getattr(decoder.config, "layer_types", None) or [""] * len(decoder.layers)
    layers = [
        (kind, [(name, p.shape) for name, p in layer.named_parameters()])
        for kind, layer in zip(kinds, decoder.layers, strict=True)
    ]
    count = len(layers)
    return next(p for p in range(1, count + 1) if count % p == 0 and layers == layers[:p] * (count // p))


def _run(way: Scorer, part: TrainBatch, device: str) -> Rehearsal:
    with _without_numbers(part, device), LiveBytes() as live:
        logprobs_RT = way.logprobs(part, 1.0)
        kept = live.now
        logprobs_RT.sum().backward()
    return Rehearsal(kept_bytes=kept, peak_bytes=live.peak)


@contextmanager
def _without_numbers(part: TrainBatch, device: str) -> Iterator[None]:
    """In place of the few calls that the meta device cannot answer or would answer in another way."""

    def causal_mask(queries: int, keys: int) -> Tensor | None:
        """The real one is of a class that cannot be made under LiveBytes. Only the CPU's kernel makes it a matrix."""
        return torch.empty(queries, keys, dtype=torch.bool, device="meta") if device == "cpu" else None

    def positions(*_: Tensor, first_position: int) -> tuple[Tensor, ...]:
        lens = part.token_ids_BL, part.prompt_lens_B, part.completion_lens_B
        return tuple(tensor.to("meta") for tensor in completion_positions(*lens, first_position=first_position))

    with (
        patch.object(attention, "causal_lower_right", causal_mask),
        patch.object(attention, "scaled_dot_product_attention", _flash_attention),
        patch.object(torch.nn.functional, "scaled_dot_product_attention", _flash_attention),
        patch.object(scorer, "completion_positions", positions),
        patch.object(masking_utils, "find_packed_sequence_indices", return_value=None),
    ):
        yield


class LiveBytes(TorchDispatchMode):
    """Bytes of all storages that operations have made and that are still alive."""

    def __init__(self) -> None:
        super().__init__()
        self.now, self.peak = 0, 0
        self._alive: dict[int, weakref.ref[Any]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        known = {leaf.untyped_storage()._cdata for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)}
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor) and leaf.untyped_storage()._cdata not in known:
                self._count(leaf.untyped_storage())
        return result

    def _count(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key in self._alive:
            return
        size = storage.nbytes()
        self._alive[key] = weakref.ref(storage, partial(self._forget, key, size))
        self.now += size
        self.peak = max(self.peak, self.now)

    def _forget(self, key: int, size: int, _: Any) -> None:
        if self._alive.pop(key, None) is not None:
            self.now -= size


def _flash_attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, **_: Any) -> Tensor:
    """A kernel that keeps query, key, value, output and one number a row and head, as the fused ones do. The meta
    device would take the plain way, with a matrix of all pairs."""
    return _Flash.apply(query, key, value, attn_mask)


class _Flash(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        output = query.new_empty(*query.shape[:-1], value.shape[-1])
        rows = torch.empty(query.shape[:-1], dtype=torch.float32, device=query.device)
        # The kernels add a mask of numbers to the scores, and keep it.
        ctx.save_for_backward(query, key, value, output, rows, None if mask is None else mask.to(query.dtype))
        return output

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        query, key, value = ctx.saved_tensors[:3]
        return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value), None
