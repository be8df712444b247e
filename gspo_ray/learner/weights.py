"""A LoRA adapter as the two files of a PEFT directory, in memory: bytes that hash, travel and load alike everywhere."""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path

import torch
from peft import PeftModel, get_peft_model_state_dict, set_peft_model_state_dict
from safetensors.torch import load, save

from gspo_ray.errors import CheckpointError, LearnerError
from gspo_ray.types import Adapter, WeightVersion


def export_adapter(model: PeftModel, *, step: int) -> Adapter:
    """The adapter in float32, as it stands. Raises LearnerError for a weight that is not finite.

    vLLM takes a NaN adapter without a word and then emits token 0; such an adapter must never leave the learner.
    """
    tensors = {
        name: tensor.detach().to("cpu", torch.float32).contiguous() for name, tensor in _state_dict(model).items()
    }
    broken = [name for name, tensor in tensors.items() if not bool(tensor.isfinite().all())]
    if broken:
        raise LearnerError(f"the adapter is not finite in {len(broken)} tensors, the first is {broken[0]}")
    payload = save(tensors)
    version = WeightVersion(step=step, sha256=hashlib.sha256(payload).hexdigest())
    return Adapter(version=version, payload=payload, peft_config=_peft_config_json(model))


def import_adapter(model: PeftModel, adapter: Adapter) -> None:
    """Put the weights back. Raises CheckpointError when they are damaged or belong to another model or rank."""
    if hashlib.sha256(adapter.payload).hexdigest() != adapter.version.sha256:
        raise CheckpointError(f"the adapter of step {adapter.version.step} is damaged: its sha256 does not match")
    saved, present = load(adapter.payload), _state_dict(model)
    if {name: t.shape for name, t in saved.items()} != {name: t.shape for name, t in present.items()}:
        raise CheckpointError(
            f"the adapter of step {adapter.version.step} does not fit this model: other layers or another LoRA rank"
        )
    set_peft_model_state_dict(model, saved)


def _state_dict(model: PeftModel) -> dict[str, torch.Tensor]:
    """Embeddings are never adapted; PEFT's "auto" looks for the base model's config, on the hub too, at every call."""
    return get_peft_model_state_dict(model, save_embedding_layers=False)


def _peft_config_json(model: PeftModel) -> str:
    """Exactly what PEFT itself would write as adapter_config.json, keys sorted."""
    config = model.peft_config["default"]
    with tempfile.TemporaryDirectory() as directory:
        inference_mode, config.inference_mode = config.inference_mode, True
        config.save_pretrained(directory)
        config.inference_mode = inference_mode
        tree = json.loads((Path(directory) / "adapter_config.json").read_text(encoding="utf-8"))
    if isinstance(tree["target_modules"], list):  # a set in PEFT, whose order changes from run to run; or a pattern
        tree["target_modules"] = sorted(tree["target_modules"])
    return json.dumps(tree, indent=2, sort_keys=True)
