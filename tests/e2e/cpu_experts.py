"""Lets vLLM's CPU build run a mixture of experts beside an adapter that leaves the experts alone.

As soon as LoRA is on, vLLM picks the Triton kernel for experts, which a CPU does not have: the engine starts, and
dies at its first request. That is why a run on CPU refuses such models; on GPU nothing of this is needed.
"""

import copy
from typing import Any

from gspo_ray.rollout.vllm_worker import WorkerExtension as _WorkerExtension


class WorkerExtension(_WorkerExtension):
    pass


def _choose_as_without_lora() -> None:
    from vllm.model_executor.layers.fused_moe import unquantized_fused_moe_method as module

    choose = module.select_unquantized_moe_backend

    def without_lora(moe_config: Any) -> Any:
        moe_config = copy.copy(moe_config)
        moe_config.is_lora_enabled = False
        return choose(moe_config)

    module.select_unquantized_moe_backend = without_lora


_choose_as_without_lora()
