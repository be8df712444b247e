"""What runs inside vLLM's own worker processes (`worker_extension_cls`). With engine_vllm.py the only vLLM code.

The CPU engine applies LoRA by gathering a copy of the adapter weights for every token. A training run samples
with one adapter (two while a new one is arriving), so one matmul per adapter in use does the same sum; the
replacement is chosen by the environment variable below, which the engine sets before the worker starts.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import linear

GROUPED_LORA_ENV = "GSPO_RAY_CPU_GROUPED_LORA"


class WorkerExtension:
    """Mixed into vLLM's worker class; methods are reached through `collective_rpc`."""

    def adapter_sha256(self, directory: str) -> str:
        """sha256 of the adapter file as this worker's node sees it."""
        return hashlib.sha256((Path(directory) / "adapter_model.safetensors").read_bytes()).hexdigest()

    def unapplied_modules(self, lora_id: int) -> list[str]:
        """Modules of a loaded adapter that the engine's model does not have.

        vLLM compares the last part of a name only and leaves such weights unused, with a debug line at most.
        """
        manager = self.model_runner.lora_manager._adapter_manager  # type: ignore[attr-defined]
        return sorted(set(manager.get_adapter(lora_id).loras) - set(manager.modules))


# One entry per adapter in use: (slot in the stacked weights, the rows that use it; None = every row).
Slots = list[tuple[int, torch.Tensor | None]]


def _group_by_slot(slot_of_row: torch.Tensor) -> Slots:
    """Rows without an adapter carry slot -1 and appear in no group."""
    used = [slot for slot in slot_of_row.unique().tolist() if slot >= 0]
    if len(used) == 1 and bool((slot_of_row == used[0]).all()):
        return [(used[0], None)]
    return [(slot, (slot_of_row == slot).nonzero()[:, 0]) for slot in used]


def _add_low_rank(
    y: torch.Tensor, x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, scale: float, slots: Slots
) -> None:
    """y[rows] += x[rows] @ A^T @ B^T * scale, in place. y [rows, out], x [rows, in], A [slots, 1, r, in],
    B [slots, 1, out, r]."""
    for slot, rows in slots:
        if rows is None:
            y.addmm_(linear(x, a[slot, 0]), b[slot, 0].T, alpha=scale)
        else:
            y.index_add_(0, rows, linear(linear(x[rows], a[slot, 0]), b[slot, 0]), alpha=scale)


def _grouped_lora_linear(
    self: Any,
    y: torch.Tensor,
    x: torch.Tensor,
    lora_a_stacked: tuple[torch.Tensor, ...],
    lora_b_stacked: tuple[torch.Tensor, ...],
    scale: float,
    output_slices: tuple[int, ...],
    **_: Any,
) -> None:
    """Takes the place of PunicaWrapperCPU.add_lora_linear: one low-rank update for each output slice of y."""
    x = x.view(-1, x.shape[-1])
    slices = y.view(-1, y.shape[-1]).split(output_slices, dim=-1)
    for y_slice, a, b in zip(slices, lora_a_stacked, lora_b_stacked, strict=True):
        _add_low_rank(y_slice, x, a, b, scale, self.gspo_token_slots)


def _grouped_lora_logits(
    self: Any,
    y: torch.Tensor,
    x: torch.Tensor,
    lora_a_stacked: torch.Tensor,
    lora_b_stacked: torch.Tensor,
    scale: float,
    **_: Any,
) -> None:
    """Takes the place of PunicaWrapperCPU.add_lora_logits, which gathers a [vocabulary, r] matrix for every row."""
    rows = x.view(-1, x.shape[-1])
    _add_low_rank(y.view(-1, y.shape[-1]), rows, lora_a_stacked, lora_b_stacked, scale, self.gspo_logit_slots)


def _use_grouped_lora() -> None:
    from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU

    update_metadata = PunicaWrapperCPU.update_metadata

    def update_and_group(self: Any, *args: Any, **kwargs: Any) -> None:
        update_metadata(self, *args, **kwargs)
        self.gspo_token_slots = _group_by_slot(self.token_lora_indices)
        self.gspo_logit_slots = _group_by_slot(self.sampler_indices)

    PunicaWrapperCPU.update_metadata = update_and_group
    PunicaWrapperCPU.add_lora_linear = _grouped_lora_linear
    PunicaWrapperCPU.add_lora_logits = _grouped_lora_logits


if os.environ.get(GROUPED_LORA_ENV) == "1":
    _use_grouped_lora()
