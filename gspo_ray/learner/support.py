"""Which layers of a model get an adapter: those that the engine's LoRA serves too. Known before a weight is read."""

from __future__ import annotations

import re
from collections.abc import Iterable

import torch
from torch import nn
from transformers import (
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    PretrainedConfig,
    PreTrainedModel,
)

from gspo_ray.errors import ModelError

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
MLP = ("gate_proj", "up_proj", "down_proj")
GATED_DELTA = ("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "out_proj")

# `model_type` of the language model -> what is adapted, by the last part of a layer's name: the families in which
# engine and learner have been compared layer by layer (tests/e2e/test_families.py; Qwen 3.5 in bfloat16, by hand).
LAYERS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3"), ATTENTION + MLP),
    **dict.fromkeys(("gemma2", "gemma3_text", "granite", "cohere2"), ATTENTION + MLP),
    "phi3": ("qkv_proj", "o_proj", "gate_up_proj", "down_proj"),
    "qwen2_moe": ATTENTION + MLP,  # the MLP of its shared expert
    "qwen3_moe": ATTENTION,
    "qwen3_5_text": ATTENTION + MLP + GATED_DELTA,
}
# In other models every linear layer of the decoder is adapted but these. PEFT reads the names of an MLP in a mixture
# as those of its experts.
GATES = ("gate", "router", "shared_expert_gate")
EXPERTS = ("experts", "gate_up_proj", "w1", "w2", "w3", *MLP)

MIXTURE = (
    "the experts of a mixture are one stacked weight and its router is no linear layer: PEFT adapts them under names "
    "that the engine does not load"
)
# What vLLM's CPU build cannot do beside an adapter.
MIXTURE_ON_CPU = "with LoRA on it computes experts by a Triton kernel, and dies at the first request"
LINEAR_ON_CPU = "its kernel for linear attention takes bfloat16 and a few head sizes alone, and no prefix cache"


def check_model(
    model_path: str, revision: str | None, target_modules: str | list[str], *, architecture: str | None, device: str
) -> list[str]:
    """Last parts of the names of the layers that will be adapted, sorted. Reads the model's config alone.

    `architecture` is the engine's class where it is not the one that the model folder names. Raises ModelError for a
    model or a layer that learner or engine cannot take.
    """
    try:
        config = load_config(model_path, revision)
        with torch.device("meta"):
            base = model_class(config).from_config(config, attn_implementation="sdpa")
    except (OSError, ValueError) as error:
        raise ModelError(f"model.path {model_path!r} cannot be loaded as a causal language model: {error}") from error
    targets = lora_targets(base, target_modules)
    if device == "cpu":
        _check_cpu(base)
    _check_class(base, config, architecture)
    return sorted({_kind(name) for name in targets})


def load_config(model_path: str, revision: str | None) -> PretrainedConfig:
    """As the engine understands it."""
    config = AutoConfig.from_pretrained(model_path, revision=revision)
    if config.model_type in ("cohere2", "cohere2_moe"):  # vLLM's windows are longer than transformers' by one token
        config.sliding_window += 1
    return config


def model_class(config: PretrainedConfig) -> type[AutoModelForCausalLM | AutoModelForImageTextToText]:
    """Of a multimodal model the class that its folder names, since that is what the engine loads: an adapter has the
    layer names of the class that it was made on. For some (Qwen 3.5) AutoModelForCausalLM would take another."""
    multimodal = MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING.get(type(config), None)
    if multimodal is not None and multimodal.__name__ in (config.architectures or ()):
        return AutoModelForImageTextToText
    return AutoModelForCausalLM


def lora_targets(base: PreTrainedModel, requested: str | list[str]) -> list[str]:
    """Full names of the layers to adapt, in the language model alone.

    `requested` is `all-linear`, names or parts of names from the right, or one pattern for whole names: what PEFT
    takes. Raises ModelError for a name that fits no such layer, or a pattern that fits others too.
    """
    family, layers = _family(base), _linear_layers(base)
    kinds = _kinds(base, layers)
    adapted = [name for name in layers if _kind(name) in kinds]
    if requested == "all-linear":
        if not adapted:
            raise ModelError(f"model.lora.target_modules=all-linear: a {family} model has no linear layer to adapt.")
        return adapted
    if isinstance(requested, str):
        wanted = {requested: [name for name in layers if _pattern(requested).fullmatch(name)]}
    else:
        wanted = {item: [name for name in layers if f".{name}".endswith(f".{item}")] for item in requested}
    for item, names in wanted.items():
        wrong = [name for name in names if name not in adapted]
        if wrong or not names:
            reason = _reason(base, item, wrong)
            if isinstance(requested, str) and not wrong:
                reason += " (a string is one pattern for whole names; names go into a list)"
            raise ModelError(
                f"model.lora.target_modules has {item!r}, but {reason}. In a {family} model "
                f"{', '.join(sorted({_kind(name) for name in adapted}))} can be adapted, which is all-linear."
            )
    chosen = {name for names in wanted.values() for name in names}
    return [name for name in adapted if name in chosen]


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise ModelError(
            f"model.lora.target_modules={text!r} is no pattern ({error}). Names of layers go into a list: [q_proj]."
        ) from error


def _kinds(base: PreTrainedModel, layers: Iterable[str]) -> set[str]:
    family = _family(base)
    if family in LAYERS:
        return set(LAYERS[family])
    left_out = GATES + EXPERTS if _is_mixture(base) else GATES
    return {_kind(name) for name in layers} - set(left_out)


def _reason(base: PreTrainedModel, item: str, wrong: list[str]) -> str:
    if _is_mixture(base) and (wrong or _kind(item) in GATES + EXPERTS):
        return MIXTURE
    if wrong:
        return f"{wrong[0]} is not served by the engine"
    return "no linear layer of the language model has that name"


def _check_cpu(base: PreTrainedModel) -> None:
    linear = "linear_attention" in (getattr(base.config.get_text_config(), "layer_types", None) or ())
    if linear or _is_mixture(base):
        raise ModelError(
            f"vLLM on CPU cannot serve an adapter for a {_family(base)} model: "
            f"{LINEAR_ON_CPU if linear else MIXTURE_ON_CPU}. Set cluster.device=cuda, or take another model."
        )


def _check_class(base: PreTrainedModel, config: PretrainedConfig, architecture: str | None) -> None:
    """The adapter's names are those of the learner's class, and the engine looks them up in its own. The text-only
    class of a multimodal model would not do: vLLM's Qwen3_5ForCausalLM stops at the weights of the tower."""
    learner, named = type(base).__name__, (config.architectures or [None])[0]
    engine = architecture or named
    if engine in (None, learner) or engine.startswith("Transformers"):  # vLLM's wrapper around transformers' classes
        return
    raise ModelError(
        f"the engine would load this model as {engine}, the learner as {learner}: the adapter's names would not fit. "
        + (f"Set rollout.engine.architecture={learner}." if named != learner else "Unset rollout.engine.architecture.")
    )


def _linear_layers(base: PreTrainedModel) -> list[str]:
    """Of the text decoder: neither the output head nor the towers of other modalities."""
    decoder = base.get_decoder()
    prefix = next(name for name, module in base.named_modules() if module is decoder)
    return [f"{prefix}.{name}" for name, module in decoder.named_modules() if isinstance(module, nn.Linear)]


def _family(base: PreTrainedModel) -> str:
    return str(base.config.get_text_config().model_type)


def _is_mixture(base: PreTrainedModel) -> bool:
    return any(_kind(name) == "experts" for name, _ in base.named_modules())


def _kind(name: str) -> str:
    return name.rsplit(".", 1)[-1]
