"""Floating-point operations of the matrix products that one LoRA step needs: two for a multiplication and addition.

For each token that goes through the model: forward and the gradient to the input of every linear layer (2 + 2 for each
weight; frozen weights have no gradient of their own), and forward, input and weight gradient of the LoRA factors
(2 + 2 + 2). For each position whose log-prob is wanted: forward and input gradient of the output head. For each pair of
a query and a key that it sees: scores and values forward (2 + 2 for each entry of a head), four products backward.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from gspo_ray.algo.batch import TrainBatch
from gspo_ray.learner.packing import shared_prompts

LAYERS_WITH_PAIRS = {"full_attention", "sliding_attention"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSize:
    linear: int  # weights of the decoder's linear layers
    lora: int  # weights of the LoRA factors
    head: int  # weights of the output head
    attention: int  # layers x heads x entries of a head
    shapes: tuple[tuple[int, int], ...]  # (inputs, outputs) of the linear layers, each once
    head_shape: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What goes through the model; works add up."""

    tokens: int
    head_tokens: int
    pairs: int

    def __add__(self, other: Work) -> Work:
        return Work(
            tokens=self.tokens + other.tokens,
            head_tokens=self.head_tokens + other.head_tokens,
            pairs=self.pairs + other.pairs,
        )


def model_size(model: Any) -> ModelSize:
    """Of a PEFT model. Stacked experts and convolutions are no linear layers and not counted."""
    base = model.get_base_model()
    head, config = base.get_output_embeddings(), base.config.get_text_config()
    linear: list[tuple[int, int]] = []
    lora: list[tuple[int, int]] = []
    for name, module in base.named_modules():
        if isinstance(module, torch.nn.Linear) and module is not head:
            (lora if "lora_" in name else linear).append((module.in_features, module.out_features))
    heads = config.num_attention_heads
    kinds = getattr(config, "layer_types", None) or ["full_attention"] * config.num_hidden_layers
    layers = sum(kind in LAYERS_WITH_PAIRS for kind in kinds)
    head_size = getattr(config, "head_dim", None) or config.hidden_size // heads
    return ModelSize(
        linear=sum(inputs * outputs for inputs, outputs in linear),
        lora=sum(inputs * outputs for inputs, outputs in lora),
        head=head.weight.numel(),
        attention=layers * heads * head_size,
        shapes=tuple(dict.fromkeys(linear)),
        head_shape=(head.weight.shape[1], head.weight.shape[0]),
    )


def step_flops(size: ModelSize, work: Work) -> float:
    token = 4 * size.linear + 6 * size.lora
    return float(token * work.tokens + 4 * size.head * work.head_tokens + 12 * size.attention * work.pairs)


def packed_work(part: TrainBatch) -> Work:
    """Prompts once, no padding."""
    work = Work(tokens=0, head_tokens=0, pairs=0)
    for members in shared_prompts(part):
        prompt = int(part.prompt_lens_B[members[0]])
        lens = part.completion_lens_B[members].tolist()
        pairs = _triangle(prompt) + sum(prompt * length + _triangle(length) for length in lens)
        work += Work(tokens=prompt + sum(lens), head_tokens=sum(lens), pairs=pairs)
    return work


def padded_work(part: TrainBatch, *, head_everywhere: bool) -> Work:
    """Rows as long as the longest, padding computed like the rest."""
    rows, width = part.token_ids_BL.shape
    head = rows * width if head_everywhere else int(part.completion_lens_B.sum())
    return Work(tokens=rows * width, head_tokens=head, pairs=rows * _triangle(width))


def _triangle(length: int) -> int:
    """Pairs of a causal sequence."""
    return length * (length + 1) // 2
