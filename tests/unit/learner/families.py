"""A tiny model of random weights for each model family that people train, with everything that makes it its own:
grouped keys, biases, norms of queries and keys, windows, experts, scaled or capped logits, tied heads or not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from gspo_ray.config import LoraConfig, ModelConfig
from gspo_ray.learner.model import build_policy

VOCABULARY = 64
RANK, ALPHA = 4, 8.0
WINDOW = 6  # of layers that slide; the tests' sequences are longer

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
MLP = ("gate_proj", "up_proj", "down_proj")

# Head sizes and widths that vLLM's CPU kernels take.
SMALL: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 512,
    "initializer_range": 0.2,  # far from uniform, so that every layer is felt
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}


@dataclass(frozen=True, slots=True)
class Family:
    """`layers` is what all-linear must adapt, by the last part of a module's name; `padded_because` is a part of the
    reason why rows are padded, None where they are packed."""

    config: str  # class in transformers
    settings: dict[str, Any]
    layers: tuple[str, ...] = ATTENTION + MLP
    padded_because: str | None = None
    architecture: str | None = None  # class to save, where AutoModelForCausalLM would take another

    def build(self) -> Any:
        """The config object, with the small sizes."""
        import transformers

        return getattr(transformers, self.config)(**self.settings)

    def model_class(self) -> Any:
        import transformers

        return getattr(transformers, self.architecture or "AutoModelForCausalLM")

    def model(self) -> Any:
        """With weights as transformers draws them."""
        kind = self.model_class()
        return kind(self.build()) if self.architecture else kind.from_config(self.build())


def _multimodal_gemma3() -> dict[str, Any]:
    vision = {
        "hidden_size": 32,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "image_size": 32,
        "patch_size": 8,
    }
    text = {k: v for k, v in FAMILIES["gemma3"].settings.items() if k not in ("bos_token_id", "eos_token_id")}
    return {"text_config": text, "vision_config": vision, "mm_tokens_per_image": 4, "image_token_index": 63}


def _multimodal_qwen3_5() -> dict[str, Any]:
    vision = {
        "depth": 1,
        "hidden_size": 32,
        "num_heads": 2,
        "intermediate_size": 32,
        "out_hidden_size": 64,
        "patch_size": 8,
        "num_position_embeddings": 16,
    }
    tokens = ("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id")
    text = FAMILIES["qwen3_5"].settings
    return {"text_config": text, "vision_config": vision, "tie_word_embeddings": True} | dict(
        zip(tokens, range(60, 64), strict=True)
    )


FAMILIES: dict[str, Family] = {
    "llama": Family(
        "LlamaConfig",
        SMALL
        | {
            "tie_word_embeddings": False,
            "rope_parameters": {  # as Llama 3.1 and later
                "rope_type": "llama3",
                "rope_theta": 10000.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            },
        },
    ),
    "mistral": Family("MistralConfig", SMALL | {"head_dim": 32, "sliding_window": WINDOW}),
    "qwen2": Family("Qwen2Config", SMALL | {"tie_word_embeddings": True}),  # biases on queries, keys and values
    "qwen3": Family("Qwen3Config", SMALL | {"head_dim": 64, "tie_word_embeddings": True}),  # norms, heads of any size
    "qwen3_moe": Family(
        "Qwen3MoeConfig",
        SMALL | EXPERTS | {"head_dim": 32, "tie_word_embeddings": False, "decoder_sparse_step": 1},
        layers=ATTENTION,
    ),
    "qwen2_moe": Family(
        "Qwen2MoeConfig",
        SMALL | EXPERTS | {"shared_expert_intermediate_size": 64, "decoder_sparse_step": 1},
    ),
    "qwen3_5": Family(
        "Qwen3_5TextConfig",
        SMALL
        | {
            "head_dim": 32,
            "layer_types": ["linear_attention", "full_attention"],
            "linear_num_key_heads": 1,
            "linear_num_value_heads": 2,
            "linear_key_head_dim": 32,
            "linear_value_head_dim": 32,
            "tie_word_embeddings": True,
        },
        layers=(*ATTENTION, *MLP, "in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "out_proj"),
        padded_because="in its linear_attention layers completions of one row would mix",
    ),
    "gemma2": Family(
        "Gemma2Config",
        SMALL
        | {
            "head_dim": 32,
            "sliding_window": WINDOW,
            "query_pre_attn_scalar": 32,
            "attn_logit_softcapping": 2.0,  # low, so that they bite
            "final_logit_softcapping": 3.0,
        },
        padded_because="its attn_logit_softcapping is not applied there",
    ),
    "gemma3": Family(
        "Gemma3TextConfig",
        SMALL
        | {
            "initializer_range": 0.1,  # its embeddings are scaled up: it would always say one word
            "head_dim": 32,
            "sliding_window": WINDOW,
            "query_pre_attn_scalar": 32,
            "layer_types": ["sliding_attention", "full_attention"],
        },
    ),
    "granite": Family(
        "GraniteConfig",
        SMALL
        | {
            "logits_scaling": 4.0,
            "embedding_multiplier": 3.0,
            "residual_multiplier": 0.5,
            "attention_multiplier": 0.1,
        },
    ),
    "cohere2": Family(
        "Cohere2Config",
        SMALL | {"sliding_window": WINDOW, "logit_scale": 0.25, "layer_types": ["sliding_attention", "full_attention"]},
    ),
    "phi3": Family(
        "Phi3Config",
        SMALL | {"sliding_window": WINDOW, "tie_word_embeddings": False},
        layers=("qkv_proj", "o_proj", "gate_up_proj", "down_proj"),
    ),
}
FAMILIES["gemma3_multimodal"] = Family("Gemma3Config", _multimodal_gemma3())  # the larger Gemma 3
FAMILIES["qwen3_5_multimodal"] = Family(  # as Qwen 3.5 is published
    "Qwen3_5Config",
    _multimodal_qwen3_5(),
    architecture="Qwen3_5ForConditionalGeneration",
    layers=FAMILIES["qwen3_5"].layers,
    padded_because=FAMILIES["qwen3_5"].padded_because,
)


def save_tiny(name: str, folder: Path, *, seed: int = 7) -> str:
    """Weights alone: no tokenizer. Norms and biases are random too: as they start they change nothing."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = FAMILIES[name].model()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim == 1:
                    parameter.add_(0.3 * torch.randn(parameter.shape))
    model.save_pretrained(folder)
    return str(folder)


def randomise_adapter(model: torch.nn.Module, *, seed: int = 3, size: float = 0.2) -> dict[str, torch.nn.Parameter]:
    """Every B of the adapter far from the zeros it starts from. Returns them by name."""
    generator = torch.Generator().manual_seed(seed)
    found = {}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.copy_(size * torch.randn(parameter.shape, generator=generator))
                found[name] = parameter
    return found


def kind_of(parameter_name: str) -> str:
    """`q_proj` of `base_model.model.model.layers.0.self_attn.q_proj.lora_B.default.weight`."""
    return parameter_name.split(".lora_")[0].rsplit(".", 1)[-1]


@contextmanager
def without_kind(adapter_B: dict[str, torch.nn.Parameter], kind: str) -> Iterator[None]:
    """With that kind of layer as in the base model."""
    before = {name: p.detach().clone() for name, p in adapter_B.items() if kind_of(name) == kind}
    assert before
    with torch.no_grad():
        for name in before:
            adapter_B[name].zero_()
        yield
        for name, value in before.items():
            adapter_B[name].copy_(value)


def build(path, target_modules="all-linear"):
    """The policy of such a folder."""
    lora = LoraConfig(rank=RANK, alpha=ALPHA, target_modules=target_modules)
    config = ModelConfig(path=path, dtype="float32", lora=lora)
    return build_policy(path, config, device="cpu", seed=0, gradient_checkpointing=False)
