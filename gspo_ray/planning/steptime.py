"""Seconds of one step, phase by phase. Roofline arithmetic: operations over peak, bytes over bandwidth, each times an
efficiency that gpus.py states."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gspo_ray.config import AlgoConfig, RunConfig
from gspo_ray.planning.gpus import Gpu
from gspo_ray.planning.lengths import Lengths
from gspo_ray.planning.memory import DTYPE_BYTES, EngineMemory
from gspo_ray.planning.shape import ModelShape

# Throughput with one adapter over that without: 7.60 / 11.45 requests/s, Llama-2-7B on an A100 (vLLM PR 11267).
LORA_SPEED = 0.66
ITERATION_S = 0.002  # a guess: what an engine does for each round of tokens besides the model
ANSWERS_PER_S = 100  # a guess: judged by one verifier process
NETWORK_BYTES_PER_S = 1e9  # a guess: an adapter through the object store over 10 Gbit/s
SYNC_S = 1.0  # a guess: export, load into the engines, probe


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """Seconds. The phases follow one another; a step takes their sum."""

    prefill: float
    decode: float
    reward: float
    learner: float
    sync: float
    decode_rounds: int
    decode_bound: str  # "bandwidth" or "compute"
    learner_flops: float  # of the whole step

    @property
    def rollout(self) -> float:
        return self.prefill + self.decode

    @property
    def total(self) -> float:
        return self.rollout + self.reward + self.learner + self.sync


@dataclass(frozen=True, slots=True, kw_only=True)
class Flops:
    """Operations of a pass over a whole batch, two for a multiplication and addition (as `bench.flops` counts)."""

    forward: float
    backward: float
    recompute: float  # of checkpointed layers; the head is computed twice in any case

    @property
    def step(self) -> float:
        return self.forward + self.backward


def step_time(
    config: RunConfig,
    shape: ModelShape,
    engine: EngineMemory,
    lengths: Lengths,
    gpu: Gpu,
    *,
    shares_prompts: bool,
    num_engines: int | None = None,
    num_ranks: int | None = None,
) -> StepTime:
    """`num_engines` and `num_ranks`: as configured, unless given. All groups are taken to have a gradient."""
    num_engines, num_ranks = num_engines or config.rollout.num_engines, num_ranks or config.learner.num_ranks
    problems, group = config.data.problems_per_step, config.rollout.group_size
    prompts = math.ceil(problems / num_engines)
    prefill, decode, rounds, bound = _rollout(config, shape, engine, lengths, gpu, prompts)
    flops = batch_flops(shape, lengths, problems=problems, group_size=group, shares_prompts=shares_prompts)
    operations = learner_operations(flops, config.algo, checkpointing=config.learner.gradient_checkpointing)
    adapter_bytes = 4 * shape.lora
    return StepTime(
        prefill=prefill,
        decode=decode,
        reward=problems * group / (ANSWERS_PER_S * config.reward.num_workers),
        learner=operations / (num_ranks * gpu.learner_efficiency * _peak(config, gpu)),
        sync=SYNC_S + num_engines * adapter_bytes / NETWORK_BYTES_PER_S,
        decode_rounds=rounds,
        decode_bound=bound,
        learner_flops=operations,
    )


def batch_flops(shape: ModelShape, lengths: Lengths, *, problems: int, group_size: int, shares_prompts: bool) -> Flops:
    """Packed rows with one copy of a prompt, or padded ones with all of it."""
    prompt, completion, sequences = lengths.prompt, lengths.completion, problems * group_size
    if shares_prompts:
        tokens = problems * prompt + sequences * completion
        pairs = problems * _triangle(prompt) + sequences * (prompt * completion + _triangle(completion))
    else:
        tokens = sequences * (prompt + completion)
        pairs = sequences * _triangle(prompt + completion)
    linear = shape.linear + shape.active_experts * shape.experts
    head = 2.0 * shape.head * sequences * completion
    layers = 2 * (linear + shape.lora) * tokens + 4 * shape.pair_width * pairs
    backward = (2 * linear + 4 * shape.lora) * tokens + 8 * shape.pair_width * pairs
    return Flops(forward=layers + head, backward=backward + head, recompute=layers)


def learner_operations(flops: Flops, algo: AlgoConfig, *, checkpointing: bool) -> float:
    """Of all passes of one step: updates, old log-probs, reference."""
    update = flops.step + checkpointing * flops.recompute
    scoring = (algo.needs_old_logprobs + algo.needs_reference) * flops.forward
    return algo.num_epochs * update + scoring


def _rollout(
    config: RunConfig, shape: ModelShape, engine: EngineMemory, lengths: Lengths, gpu: Gpu, prompts: int
) -> tuple[float, float, int, str]:
    """Prefill seconds, decode seconds, rounds of decoding, and what bounds them, of the fullest engine.

    Each round reads the weights once and gives every running sequence a token; the last answer is the longest.
    """
    size, ranks = DTYPE_BYTES[config.model.dtype], config.rollout.engine.tensor_parallel_size
    sequences = prompts * config.rollout.group_size
    at_once = max(1, min(sequences, config.rollout.engine.max_num_seqs, engine.usual_fit))
    tokens = sequences * lengths.completion
    rounds = max(lengths.longest, math.ceil(tokens / at_once))
    active = shape.linear + shape.active_experts * shape.experts + shape.head
    touched = 1 - (1 - shape.active_experts) ** at_once  # experts that at least one of the sequences needs
    weights = (shape.linear + touched * shape.experts + shape.head) * size / ranks
    cache = shape.kv_bytes(lengths.prompt + lengths.completion // 2, size, ranks) + shape.state_bytes // ranks
    bandwidth = gpu.decode_efficiency * LORA_SPEED * gpu.bandwidth_gb_s * 1e9
    compute = gpu.prefill_efficiency * LORA_SPEED * _peak(config, gpu) * ranks
    reading = (rounds * weights + tokens * cache) / bandwidth
    computing = 2 * active * tokens / compute
    prefill = prompts * (2 * active * lengths.prompt + 4 * shape.pair_width * _triangle(lengths.prompt)) / compute
    bound = "bandwidth" if reading >= computing else "compute"
    return prefill, max(reading, computing) + rounds * ITERATION_S, rounds, bound


def _peak(config: RunConfig, gpu: Gpu) -> float:
    """Float32 runs at an eighth of the bfloat16 peak without TF32: a guess that suits none of the types exactly."""
    return gpu.tflops * 1e12 / (8 if config.model.dtype == "float32" else 1)


def _triangle(length: int) -> int:
    return length * (length + 1) // 2
