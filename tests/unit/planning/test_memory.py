"""Every figure derived from Qwen3-4B's shape (see test_shape.py)."""

import dataclasses

from gspo_ray.config import LearnerConfig
from gspo_ray.planning.lengths import Lengths
from gspo_ray.planning.memory import GIB, engine_memory, learner_memory
from gspo_ray.planning.rehearsal import Rehearsal
from gspo_ray.planning.shape import ModelShape
from gspo_ray.rollout.engine_vllm import MAX_LORAS
from tests.unit.planning.conftest import model, run_config

WEIGHTS, LORA, TOKEN = 4_022_468_096, 33_030_144, 147_456
LENGTHS = Lengths(prompt=200, completion=1000, longest=4096, assumed=False)


def test_a_learner_is_the_sum_of_its_parts(qwen3_4b: ModelShape) -> None:
    found = learner_memory(
        qwen3_4b,
        Rehearsal(kept_bytes=1000, peak_bytes=1700),
        LearnerConfig(),
        tokens=64,
        dtype="bfloat16",
        device="cuda",
    )
    # float32 weight, gradient and two moments: 16 bytes a trainable weight
    assert (found.weights, found.adapter) == (2 * WEIGHTS, 16 * LORA)
    assert (found.activations, found.passing, found.reserve) == (1000, 700, 1.5 * GIB)
    assert found.total == 2 * WEIGHTS + 16 * LORA + 1700 + 1.5 * GIB


def test_on_the_cpu_nothing_is_reserved(qwen3_4b: ModelShape) -> None:
    found = learner_memory(
        qwen3_4b, Rehearsal(kept_bytes=0, peak_bytes=0), LearnerConfig(), tokens=64, dtype="float32", device="cpu"
    )
    assert found.total == 4 * WEIGHTS + 16 * LORA


def test_sharded_layers_are_spread_and_three_are_whole(qwen3_4b: ModelShape) -> None:
    learner = LearnerConfig(shard_base=True, num_ranks=4)
    found = learner_memory(
        qwen3_4b, Rehearsal(kept_bytes=0, peak_bytes=0), learner, tokens=64, dtype="bfloat16", device="cuda"
    )
    outside = WEIGHTS - qwen3_4b.layers  # embeddings, the tied head, the last norm
    assert outside == 151936 * 2560 + 2560
    assert found.weights == 2 * (outside + qwen3_4b.layers // 4 + 3 * qwen3_4b.layers // 36)


def test_an_engine_gives_the_cache_what_is_left(qwen3_4b: ModelShape) -> None:
    config = run_config(
        "x",
        data={"max_prompt_tokens": 2048},
        rollout={"max_tokens": 4096, "engine": {"gpu_memory_utilization": 0.5, "max_num_seqs": 64}},
    )
    found = engine_memory(qwen3_4b, config, LENGTHS, gpu_bytes=80 * GIB)
    assert found.weights == 2 * WEIGHTS
    assert found.adapters == MAX_LORAS * 2 * LORA
    # 2048 tokens of 4 x 2560 + 3 x 9728 numbers, three times 64 rows of logits in float32, and 1.5 GiB
    workspace = 2048 * (4 * 2560 + 3 * 9728) * 2 + 3 * 64 * 151936 * 4 + 1.5 * GIB
    assert found.workspace == workspace
    assert found.kv_room == 40 * GIB - found.weights - found.adapters - workspace
    assert found.longest == (2048 + 4096) * TOKEN
    assert found.longest_fit == found.kv_room // found.longest
    # eight completions share a prompt of 200 tokens
    assert found.usual == (1000 + 200 / 8) * TOKEN
    assert found.usual_fit == int(found.kv_room / found.usual)


def test_an_engine_pads_the_rank(qwen3_4b: ModelShape) -> None:
    config = run_config("x")
    odd = config.model_copy(update={"model": model("x", rank=20)})
    shape = dataclasses.replace(qwen3_4b, lora=LORA // 16 * 20)
    padded = engine_memory(shape, odd, LENGTHS, gpu_bytes=80 * GIB).adapters
    assert padded == 2 * 2 * (LORA // 16 * 32)  # two slots of rank 32 in bfloat16


def test_tensor_parallel_engines_share_weights_and_cache(qwen3_4b: ModelShape) -> None:
    config = run_config("x", rollout={"engine": {"tensor_parallel_size": 2}})
    found = engine_memory(qwen3_4b, config, LENGTHS, gpu_bytes=80 * GIB)
    assert found.weights == WEIGHTS
    assert found.longest == config.max_model_len * TOKEN // 2


def test_a_cache_without_room_holds_nothing(qwen3_4b: ModelShape) -> None:
    found = engine_memory(qwen3_4b, run_config("x"), LENGTHS, gpu_bytes=4 * GIB)
    assert found.kv_room < 0
    assert (found.longest_fit, found.usual_fit) == (0, 0)


def test_on_the_cpu_the_config_says_how_large_the_cache_is(qwen3_4b: ModelShape) -> None:
    config = run_config("x", rollout={"engine": {"cpu_kv_cache_gib": 3}})
    found = engine_memory(qwen3_4b, config, LENGTHS, gpu_bytes=None)
    assert found.kv_room == 3 * GIB
