"""Bytes on one GPU, part by part: of a learner rank, and of an engine."""

from __future__ import annotations

from dataclasses import dataclass

from gspo_ray.config import LearnerConfig, RunConfig, engine_lora_rank
from gspo_ray.planning.lengths import Lengths
from gspo_ray.planning.rehearsal import Rehearsal
from gspo_ray.planning.shape import ModelShape

GIB = 2**30
DTYPE_BYTES = {"float32": 4, "bfloat16": 2}
ADAPTER_BYTES = 16  # a trainable weight: float32 itself, its gradient and two moments of AdamW
LAYERS_WHOLE = 3  # with shard_base: the one computed, the next one, its gather buffer. From FSDP2's design, unmeasured
RESERVE_GIB = 1.5  # a guess: CUDA context, cuBLAS, what the allocator cannot use
LORA_SLOTS = 2  # rollout.engine_vllm.MAX_LORAS
BATCHED_TOKENS = 2048  # vLLM's max_num_batched_tokens where nothing sets it
SAMPLER_COPIES = 3  # of the logits in float32, for processed log-probs: a guess


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerMemory:
    weights: int
    adapter: int  # with gradients and optimizer
    activations: int  # kept for the backward pass
    passing: int  # log-prob chunks, recomputed layers, gradients on their way
    reserve: int
    tokens: int  # of the micro-batch

    @property
    def total(self) -> int:
        return self.weights + self.adapter + self.activations + self.passing + self.reserve


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineMemory:
    weights: int
    adapters: int
    workspace: int
    budget: int  # what it may take
    longest: int  # KV cache of a sequence of max_model_len
    usual: float  # of one of mean length, its prompt shared by the group

    @property
    def kv_room(self) -> int:
        """May be negative."""
        return self.budget - self.weights - self.adapters - self.workspace

    @property
    def longest_fit(self) -> int:
        return max(0, self.kv_room // self.longest)

    @property
    def usual_fit(self) -> int:
        return max(0, int(self.kv_room / self.usual))


def learner_memory(
    shape: ModelShape, rehearsal: Rehearsal, learner: LearnerConfig, *, tokens: int, dtype: str, device: str
) -> LearnerMemory:
    weights = shape.total
    if learner.shard_base:
        weights += shape.layers // learner.num_ranks - shape.layers + LAYERS_WHOLE * shape.largest_layer
    return LearnerMemory(
        weights=weights * DTYPE_BYTES[dtype],
        adapter=shape.lora * ADAPTER_BYTES,
        activations=rehearsal.kept_bytes,
        passing=rehearsal.passing_bytes,
        reserve=int(RESERVE_GIB * GIB) if device == "cuda" else 0,
        tokens=tokens,
    )


def engine_memory(shape: ModelShape, config: RunConfig, lengths: Lengths, *, gpu_bytes: int | None) -> EngineMemory:
    """`gpu_bytes` None: on the CPU, where the config says how large the KV cache is."""
    engine, size = config.rollout.engine, DTYPE_BYTES[config.model.dtype]
    ranks, group = engine.tensor_parallel_size, config.rollout.group_size
    weights = shape.total * size // ranks
    adapters = LORA_SLOTS * shape.lora * engine_lora_rank(config.model.lora.rank) // config.model.lora.rank * size
    # A batch of prompt tokens through one layer, and the logits of everything that is decoded.
    workspace = BATCHED_TOKENS * (4 * shape.hidden + 3 * shape.mlp) * size // ranks
    workspace += SAMPLER_COPIES * engine.max_num_seqs * shape.vocabulary * 4
    workspace += int(RESERVE_GIB * GIB)
    if gpu_bytes is None:
        workspace = 0
        budget = weights + adapters + engine.cpu_kv_cache_gib * GIB
    else:
        budget = int(engine.gpu_memory_utilization * gpu_bytes)
    prompt, state = shape.kv_bytes(lengths.prompt, size, ranks), shape.state_bytes // ranks
    whole = shape.kv_bytes(lengths.prompt + lengths.completion, size, ranks)
    return EngineMemory(
        weights=weights,
        adapters=adapters,
        workspace=workspace,
        budget=budget,
        longest=shape.kv_bytes(config.max_model_len, size, ranks) + state,
        usual=whole - prompt + prompt / group + state,
    )
