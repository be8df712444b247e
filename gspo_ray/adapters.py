"""Adapters on disk: PEFT directories, checkpoints, run folders."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from gspo_ray.checkpoint import complete_checkpoints, load_checkpoint
from gspo_ray.errors import CheckpointError
from gspo_ray.types import Adapter, WeightVersion

_UNSERVABLE = {"use_dora": "DoRA weights", "modules_to_save": "fully trained modules"}  # vLLM refuses them at load


def read_adapter(where: Path) -> tuple[Adapter, int | None]:
    """From a run folder (its newest complete checkpoint), a checkpoint, or any PEFT directory; and the training step
    that it comes from, where that is known.

    Raises CheckpointError when there is none, it is damaged, or vLLM cannot serve it.
    """
    where = where.expanduser()
    if complete_checkpoints(where / "checkpoints"):
        where = complete_checkpoints(where / "checkpoints")[-1]
    if (where / "adapter" / "adapter_config.json").is_file():
        state, saved = load_checkpoint(where)  # checks every file against its sha256
        return saved.adapter, state.step
    weights, config = where / "adapter_model.safetensors", where / "adapter_config.json"
    if not (weights.is_file() and config.is_file()):
        raise CheckpointError(
            f"{where} holds no adapter: name a run folder, a checkpoint of one, or a PEFT directory with "
            "adapter_model.safetensors and adapter_config.json."
        )
    payload, text = weights.read_bytes(), config.read_text(encoding="utf-8")
    version = WeightVersion(step=0, sha256=hashlib.sha256(payload).hexdigest())
    adapter = Adapter(version=version, payload=payload, peft_config=text)
    adapter_rank(adapter)
    return adapter, None


def adapter_rank(adapter: Adapter) -> int:
    """LoRA rank. Raises CheckpointError for a config that vLLM cannot serve."""
    try:
        config = json.loads(adapter.peft_config)
        rank = int(config["r"])
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"adapter_config.json is not that of a LoRA adapter: {error!r}") from error
    for key, what in _UNSERVABLE.items():
        if config.get(key):
            raise CheckpointError(f"adapter_config.json has {key}={config[key]!r}: vLLM cannot serve {what}.")
    return max([rank, *config.get("rank_pattern", {}).values()])
