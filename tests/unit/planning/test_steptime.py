"""Operations against those that the bench counts on real batches, seconds against arithmetic by hand."""

import dataclasses

import pytest

from gspo_ray.algo.batch import unjudged_batch
from gspo_ray.bench.flops import ModelSize, packed_work, padded_work, step_flops
from gspo_ray.config import AlgoConfig
from gspo_ray.planning.gpus import Gpu
from gspo_ray.planning.lengths import Lengths
from gspo_ray.planning.memory import GIB, engine_memory
from gspo_ray.planning.shape import ModelShape
from gspo_ray.planning.steptime import ITERATION_S, LORA_SPEED, Flops, batch_flops, learner_operations, step_time
from tests.unit.planning.conftest import run_config

SHAPE = ModelShape(
    family="toy",
    total=10_000,
    layers=8_000,
    largest_layer=4_000,
    lora=500,
    linear=7_000,
    experts=0,
    active_experts=0.0,
    head=2_000,
    hidden=10,
    mlp=20,
    vocabulary=200,
    heads=4,
    kv_heads=2,
    pair_width=2 * 4 * 8,
    kv_width=2 * 2 * 2 * 8,
    windows=(),
    state_bytes=0,
)
LENGTHS = Lengths(prompt=5, completion=7, longest=14, assumed=False)
GPU = Gpu(
    memory_gib=10,
    tflops=1e-6,  # 10^6 a second
    bandwidth_gb_s=1e-4,  # 10^5 bytes a second
    learner_efficiency=0.5,
    prefill_efficiency=0.25,
    decode_efficiency=0.8,
)


@pytest.mark.parametrize("shares_prompts", [True, False])
def test_operations_are_those_that_the_bench_counts(shares_prompts: bool) -> None:
    batch = unjudged_batch([([1] * 5, [[2] * 7] * 3), ([3] * 5, [[4] * 7] * 3)])
    size = ModelSize(linear=7_000, lora=500, head=2_000, attention=64, shapes=(), head_shape=(1, 1))
    work = packed_work(batch) if shares_prompts else padded_work(batch, head_everywhere=False)
    ours = batch_flops(SHAPE, LENGTHS, problems=2, group_size=3, shares_prompts=shares_prompts)
    assert ours.step == step_flops(size, work)


def test_a_mixture_computes_the_experts_that_a_token_goes_through() -> None:
    mixed = dataclasses.replace(SHAPE, experts=16_000, active_experts=0.25)
    one = Lengths(prompt=1, completion=1, longest=1, assumed=False)
    plain, more = (batch_flops(s, one, problems=1, group_size=1, shares_prompts=True) for s in (SHAPE, mixed))
    assert more.forward - plain.forward == 2 * 4_000 * 2  # two tokens, two operations a weight


def test_passes_of_a_step() -> None:
    flops = Flops(forward=10, backward=20, recompute=9)
    assert learner_operations(flops, AlgoConfig(), checkpointing=False) == 30
    assert learner_operations(flops, AlgoConfig(), checkpointing=True) == 39
    # Four updates need old log-probs: one forward pass more. A second epoch: everything but that again.
    algo = AlgoConfig(num_minibatches=4, num_epochs=2)
    assert learner_operations(flops, algo, checkpointing=False) == 2 * 30 + 10
    kl = AlgoConfig.model_validate({"kl": {"coef": 0.1}})
    assert learner_operations(flops, kl, checkpointing=False) == 30 + 10


def test_seconds_of_the_phases() -> None:
    config = run_config(
        "x",
        data={"problems_per_step": 4, "max_prompt_tokens": 8},
        rollout={"group_size": 2, "max_tokens": 14, "num_engines": 2},
        reward={"num_workers": 2},
    )
    engine = engine_memory(SHAPE, config, LENGTHS, gpu_bytes=10 * GIB)
    time = step_time(config, SHAPE, engine, LENGTHS, GPU, shares_prompts=True)
    # An engine has 2 prompts and 4 sequences at once: 28 tokens, and as many rounds as the longest answer, 14.
    assert time.decode_rounds == 14
    # A round reads 7,000 + 2,000 weights of 2 bytes; a token the cache of 5 + 3 tokens, 64 numbers of 2 bytes each.
    reading = (14 * 9_000 * 2 + 28 * 8 * 64 * 2) / (0.8 * LORA_SPEED * 1e5)
    assert time.decode_bound == "bandwidth"
    assert time.decode == pytest.approx(reading + 14 * ITERATION_S)
    # Two prompts: 2 operations a weight and token, 4 a pair and entry; 5 tokens make 15 pairs.
    assert time.prefill == pytest.approx(2 * (2 * 9_000 * 5 + 4 * 64 * 15) / (0.25 * LORA_SPEED * 1e6))
    flops = batch_flops(SHAPE, LENGTHS, problems=4, group_size=2, shares_prompts=True)
    assert time.learner == pytest.approx(flops.step / (0.5 * 1e6))
    assert time.reward == 8 / (100 * 2)
    assert time.sync == pytest.approx(1.0 + 2 * 4 * 500 / 1e9)
    assert time.total == time.prefill + time.decode + time.reward + time.learner + time.sync
    twice = step_time(config, SHAPE, engine, LENGTHS, GPU, shares_prompts=True, num_ranks=2)
    assert twice.learner == time.learner / 2


def test_what_does_not_fit_at_once_takes_turns() -> None:
    config = run_config(
        "x", data={"problems_per_step": 8}, rollout={"group_size": 8, "max_tokens": 14, "engine": {"max_num_seqs": 16}}
    )
    engine = engine_memory(SHAPE, config, LENGTHS, gpu_bytes=10 * GIB)
    time = step_time(config, SHAPE, engine, LENGTHS, GPU, shares_prompts=True)
    assert time.decode_rounds == 64 * 7 / 16  # sequences x tokens, 16 at a time: 28, more than the longest answer's 14
