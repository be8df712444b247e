"""The learner's policy without weights: every layer and dtype of it on the meta device, from config.json alone."""

from __future__ import annotations

import torch
from peft import PeftModel

from gspo_ray.config import ModelConfig
from gspo_ray.errors import ModelError
from gspo_ray.learner.model import with_adapter
from gspo_ray.learner.support import load_config, model_class


def policy_without_weights(model_path: str, config: ModelConfig, *, gradient_checkpointing: bool) -> PeftModel:
    """What `learner.model.build_policy` returns, on the meta device; a test holds the two together.

    Raises ModelError when the config cannot be had or a layer cannot be adapted.
    """
    try:
        base_config = load_config(model_path, config.revision)
        with torch.device("meta"):
            base = model_class(base_config).from_config(
                base_config, dtype=getattr(torch, config.dtype), attn_implementation="sdpa"
            )
    except (OSError, ValueError) as error:
        raise ModelError(f"the config of model.path {config.path!r} cannot be read: {error}") from error
    with torch.device("meta"):
        model = with_adapter(base, config, gradient_checkpointing=gradient_checkpointing)
    for parameter in model.parameters():
        if parameter.requires_grad:  # a gradient that is there already, as in every micro-batch but the first
            parameter.grad = torch.zeros_like(parameter)
    return model
