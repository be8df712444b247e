import pytest

from gspo_ray.planning.fit import fits, learner_limit, memory_problems
from gspo_ray.planning.gpus import GPUS
from gspo_ray.planning.memory import GIB, EngineMemory, LearnerMemory
from tests.unit.planning.conftest import run_config


def learner(activations: float, *, weights: float = 10, tokens: int = 16384) -> LearnerMemory:
    return LearnerMemory(
        weights=int(weights * GIB),
        adapter=GIB,
        activations=int(activations * GIB),
        passing=0,
        reserve=GIB,
        tokens=tokens,
    )


def engine(kv_room: float, *, longest: float = 1.0) -> EngineMemory:
    return EngineMemory(
        weights=8 * GIB,
        adapters=0,
        workspace=2 * GIB,
        budget=int((10 + kv_room) * GIB),
        longest=int(longest * GIB),
        usual=GIB / 2,
    )


def found(config, one: LearnerMemory, other: EngineMemory, *, checkpointed: float = 5) -> list[str]:
    problems = memory_problems(config, one, other, "A100-80", GPUS, with_checkpointing=lambda: learner(checkpointed))
    assert all(problem.fatal for problem in problems)
    return [problem.text for problem in problems]


def test_what_fits_is_no_problem() -> None:
    config = run_config("x")
    assert found(config, learner(67), engine(1)) == []  # 79 GiB of 79.2
    assert fits(config, learner(67), engine(1), GPUS["A100-80"])
    assert not fits(config, learner(68), engine(1), GPUS["A100-80"])
    assert not fits(config, learner(67), engine(0.9), GPUS["A100-80"])


def test_a_learner_that_does_not_fit_gets_its_ways_out() -> None:
    config = run_config("x")  # rows of up to 1024 + 4096 tokens
    (text,) = found(config, learner(100), engine(1))
    assert text.startswith("the learner needs 112.0 GiB of a GPU and gets 79.2 on A100-80. ")
    assert "Set learner.gradient_checkpointing=true (17.0 GiB)" in text
    # 67.2 GiB are left to activations: 67.2 / 100 of 16384 tokens are 11010, in whole thousands 10 x 1024
    assert "learner.micro_batch_tokens=10240" in text
    assert "a larger GPU (H200)" in text
    assert "shard_base" not in text


def test_recomputing_is_offered_only_where_it_helps() -> None:
    config = run_config("x")
    assert "gradient_checkpointing" not in found(config, learner(100), engine(1), checkpointed=70)[0]
    on = run_config("x", learner={"gradient_checkpointing": True})
    assert "gradient_checkpointing" not in found(on, learner(100), engine(1))[0]


def test_a_row_that_is_too_long_for_the_gpu() -> None:
    (text,) = found(run_config("x"), learner(400), engine(1))  # 2752 tokens would fit, a row has 5120
    assert "shorten the longest row" in text
    assert "micro_batch_tokens" not in text


def test_weights_that_do_not_fit_are_spread() -> None:
    (text,) = found(run_config("x"), learner(1, weights=120), engine(1), checkpointed=100)
    assert "learner.shard_base=true" in text
    assert "longest row" not in text  # nothing of that kind would help


@pytest.mark.parametrize(
    ("room", "fix"), [(0.5, "Lower rollout.max_tokens"), (-3, "Set rollout.engine.tensor_parallel_size=2")]
)
def test_an_engine_whose_cache_is_too_small(room: float, fix: str) -> None:
    (text,) = found(run_config("x"), learner(1), engine(room))
    assert f"leave {max(0, room):.1f} for the KV cache" in text
    assert "sequence of 5120 tokens needs 1.0" in text
    assert fix in text


def test_engine_and_learner_on_one_gpu_divide_it() -> None:
    engine_share = {"engine": {"gpu_memory_utilization": 0.5}}
    config = run_config("x", cluster={"colocate": True}, rollout=engine_share)
    assert learner_limit(config, GPUS["H100"]) == 0.5 * 79.1 * GIB
    assert learner_limit(run_config("x"), GPUS["H100"]) == 79.1 * GIB
