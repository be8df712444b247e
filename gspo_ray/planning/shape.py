"""What a model is made of, counted on the policy without weights."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from peft import PeftModel
from torch import nn

from gspo_ray.errors import ModelError

LORA = "lora_"
STATE_BYTES = 4  # vLLM keeps the state of linear attention in float32


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """Weights are counts, not bytes."""

    family: str  # `model_type` of the language model
    total: int  # of the base model: embeddings, head and the towers of other modalities too
    layers: int  # of the decoder's layers alone: what learner.shard_base spreads
    largest_layer: int
    lora: int
    linear: int  # of the linear layers of the decoder that one token goes through
    experts: int  # of all experts of a mixture
    active_experts: float  # share of them that one token goes through
    head: int  # of the output head; tied, the same weights are in `total` once
    hidden: int
    mlp: int  # width of the MLP that one token goes through
    vocabulary: int
    heads: int
    kv_heads: int
    pair_width: int  # layers with pairs of tokens x heads x entries of a head
    kv_width: int  # layers that keep every token x kv heads x entries of a head, keys and values
    windows: tuple[tuple[int, int], ...]  # (tokens, width as above) of layers that keep the newest alone
    state_bytes: int  # a sequence, of layers with linear attention

    def kv_bytes(self, tokens: int, dtype_bytes: int, tensor_parallel: int = 1) -> int:
        """Of one sequence on one GPU, without `state_bytes`. Heads are there several times on more GPUs than heads."""
        share = math.ceil(self.kv_heads / tensor_parallel) / self.kv_heads
        width = self.kv_width * tokens + sum(width * min(tokens, window) for window, width in self.windows)
        return round(share * width * dtype_bytes)


def model_shape(policy: PeftModel) -> ModelShape:
    """Raises ModelError for a decoder without a list of layers or heads."""
    base: Any = policy.get_base_model()
    config, decoder, head = base.config.get_text_config(), base.get_decoder(), base.get_output_embeddings()
    blocks = getattr(decoder, "layers", None)
    heads = getattr(config, "num_attention_heads", None)
    if blocks is None or head is None or not isinstance(heads, int):
        raise ModelError(f"a {config.model_type} model cannot be planned: no list of layers, no head or no heads")
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    head_size = getattr(config, "head_dim", None) or config.hidden_size // heads
    kinds = getattr(config, "layer_types", None) or ["full_attention"] * len(blocks)
    full, sliding, linear = (kinds.count(f"{kind}_attention") for kind in ("full", "sliding", "linear"))
    by_layer = [_count(block) for block in blocks]
    experts = sum(p.numel() for name, p in decoder.named_parameters() if ".experts." in name)
    weights = sum(
        module.weight.numel()
        for name, module in decoder.named_modules()
        if isinstance(module, nn.Linear) and LORA not in name and ".experts." not in name
    )
    share = config.num_experts_per_tok / _num_experts(config) if experts else 0.0
    one_pair = 2 * kv_heads * head_size
    return ModelShape(
        family=config.model_type,
        total=_count(base),
        layers=sum(by_layer),
        largest_layer=max(by_layer),
        lora=sum(p.numel() for p in policy.parameters() if p.requires_grad),
        linear=weights,
        experts=experts,
        active_experts=share,
        head=head.weight.numel(),
        hidden=config.hidden_size,
        mlp=_mlp_width(config, experts),
        vocabulary=head.weight.shape[0],
        heads=heads,
        kv_heads=kv_heads,
        pair_width=(full + sliding) * heads * head_size,
        kv_width=full * one_pair,
        windows=((config.sliding_window, sliding * one_pair),) if sliding else (),
        state_bytes=linear * _linear_state(config) if linear else 0,
    )


def _count(module: nn.Module) -> int:
    """Of frozen weights; tied ones once."""
    return sum(p.numel() for name, p in module.named_parameters() if LORA not in name)


def _num_experts(config: Any) -> int:
    return int(getattr(config, "num_experts", None) or config.num_local_experts)


def _mlp_width(config: Any, experts: int) -> int:
    if experts:
        return int(config.num_experts_per_tok * getattr(config, "moe_intermediate_size", config.intermediate_size))
    return int(config.intermediate_size)


def _linear_state(config: Any) -> int:
    """Bytes of one layer and sequence: a matrix for each value head, and the last inputs of the convolution."""
    keys = config.linear_num_key_heads * config.linear_key_head_dim
    values = config.linear_num_value_heads * config.linear_value_head_dim
    convolution = (config.linear_conv_kernel_dim - 1) * (2 * keys + values)
    return STATE_BYTES * int(values * config.linear_key_head_dim + convolution)
