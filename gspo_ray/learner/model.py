"""The policy: a frozen base model with a trainable LoRA adapter. The only place where PEFT wraps a model."""

from __future__ import annotations

import torch
from peft import LoraConfig as PeftLoraConfig
from peft import PeftModel, get_peft_model
from transformers import PreTrainedModel

from gspo_ray.config import ModelConfig
from gspo_ray.errors import ModelError
from gspo_ray.learner.support import load_config, lora_targets, model_class


def build_policy(
    model_path: str, config: ModelConfig, *, device: str, seed: int, gradient_checkpointing: bool
) -> PeftModel:
    """Base weights in `config.dtype`, LoRA weights in float32, initialised from `seed` alone.

    Returned in eval mode (dropout off: the ratio compares the same function); with checkpointing the checkpointed
    layers alone, not what is in them, are flagged as training.
    Raises ModelError when the model cannot be loaded or a layer cannot be adapted.
    """
    try:
        base_config = load_config(model_path, config.revision)
        base = model_class(base_config).from_pretrained(
            model_path,
            config=base_config,
            revision=config.revision,
            dtype=getattr(torch, config.dtype),
            attn_implementation="sdpa",
        )
    except (OSError, ValueError) as error:
        raise ModelError(f"model.path {config.path!r} cannot be loaded as a causal language model: {error}") from error
    base.to(device)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return with_adapter(base, config, gradient_checkpointing=gradient_checkpointing)


def with_adapter(base: PreTrainedModel, config: ModelConfig, *, gradient_checkpointing: bool) -> PeftModel:
    """`base` with LoRA weights in float32, drawn from torch's current generator; in eval mode. Raises ModelError."""
    if getattr(base.config.get_text_config(), "attn_logit_softcapping", None) is not None:
        base.set_attn_implementation("eager")  # sdpa leaves the cap out without a word; vLLM applies it
    base.config.use_cache = False
    targets = lora_targets(base, config.lora.target_modules)
    lora = PeftLoraConfig(
        r=config.lora.rank,
        lora_alpha=config.lora.alpha,
        target_modules=targets,
        lora_dropout=0.0,
        bias="none",
        task_type="CAUSAL_LM",
    )
    try:
        model = get_peft_model(base, lora)
    except ValueError as error:
        raise ModelError(f"model.lora.target_modules does not fit {config.path!r}: {error}") from error
    if model.base_model.targeted_module_names != targets or model.base_model.targeted_parameter_names:
        raise ModelError(f"PEFT does not adapt what model.lora.target_modules of {config.path!r} asks for")
    if gradient_checkpointing:
        # Non-reentrant: with frozen embeddings the reentrant kind gives no gradient at all, silently.
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.eval()
    for module in model.modules():
        # transformers checkpoints a layer when it is enabled and the layer is training; train() would reach the
        # dropout inside as well.
        module.training = bool(getattr(module, "gradient_checkpointing", False))
    return model
