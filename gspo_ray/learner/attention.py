"""Attention over packed rows, as one of transformers' attention functions. Every group is computed on its own, so that
nothing is spent between groups."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from gspo_ray.learner.packing import PackedGroup, PackedLayout

NAME = "gspo_packed"
MASK_LIMIT = 768  # tokens of a group up to which one call with a mask beats one call for each completion


def packed_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    sliding_window: int | None = None,
    packed: PackedLayout | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """query [1, H, T, D], key and value [1, H_kv, T, D]; `packed` comes through the model's keyword arguments.

    Raises ValueError for a call without layout or with a mask: nothing here would obey it.
    """
    if packed is None or attention_mask is not None:
        raise ValueError("packed attention needs a layout and takes no mask")
    if (repeats := query.shape[1] // key.shape[1]) > 1:
        key, value = key.repeat_interleave(repeats, 1), value.repeat_interleave(repeats, 1)
    pieces: list[Tensor] = []
    sizes = [group.end - group.start for group in packed.groups]
    parts = zip(query.split(sizes, 2), key.split(sizes, 2), value.split(sizes, 2), strict=True)
    for number, (group, (q, k, v)) in enumerate(zip(packed.groups, parts, strict=True)):
        if sizes[number] <= MASK_LIMIT or sliding_window is not None:
            mask = packed.mask(number, sliding_window, query.dtype)
            pieces.append(scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scaling))
        else:
            pieces += _one_by_one(group, q, k, v, scaling)
    return torch.cat(pieces, 2).transpose(1, 2).contiguous(), None


def _one_by_one(group: PackedGroup, q: Tensor, k: Tensor, v: Tensor, scaling: float | None) -> list[Tensor]:
    """The prompt, then each completion against prompt and itself: no score between two completions is computed."""
    m = group.prompt_len
    pieces = [scaled_dot_product_attention(q[:, :, :m], k[:, :, :m], v[:, :, :m], is_causal=True, scale=scaling)]
    start = m
    for length in group.lens:
        own = slice(start, start + length)
        keys, values = (torch.cat([t[:, :, :m], t[:, :, own]], 2) for t in (k, v))
        bias = causal_lower_right(length, m + length)
        pieces.append(scaled_dot_product_attention(q[:, :, own], keys, values, attn_mask=bias, scale=scaling))
        start += length
    return pieces


AttentionInterface.register(NAME, packed_attention)
