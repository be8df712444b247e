"""Two learner actors as one learner: they meet, agree with one that is alone, and end together."""

import asyncio
import contextlib
import math
import os
import signal
import time
from dataclasses import replace

import psutil
import pytest
import ray
import torch

from gspo_ray.actors.factories import learner_factory
from gspo_ray.actors.placement import demand
from gspo_ray.actors.reservation import reserve
from gspo_ray.actors.workers import create_workers
from gspo_ray.config import AlgoConfig, ClusterConfig, LearnerConfig, LoraConfig, ModelConfig, RunConfig
from gspo_ray.errors import LearnerError, ModelError
from tests.unit.factories import make_batch
from tests.unit.learner.conftest import save_tiny_llama
from tests.unit.learner.helpers import random_batch, random_group, tensors

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("cluster")]


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny-llama")
    path = save_tiny_llama(folder)
    (folder / "tokenizer.json").write_text("{}")  # a model folder has one; the learner does not read it
    return RunConfig(
        model=ModelConfig(path=path, dtype="float32", lora=LoraConfig(rank=8, alpha=16)),
        algo=AlgoConfig(old_logprobs="sampler"),
        learner=LearnerConfig(
            learning_rate=1e-2, adam_eps=1e-3, cpu_threads=1, num_ranks=2, micro_batch_tokens=64, max_grad_norm=None
        ),
        cluster=ClusterConfig(device="cpu", cpus_per_engine=0.25, cpus_per_learner=0.25, cpus_per_reward_worker=0.25),
    )


@contextlib.contextmanager
def running(config):
    """Workers of a run without engines; what a test leaves alive is killed."""
    wanted = demand(
        config.cluster,
        config.rollout.engine,
        num_engines=0,
        num_learners=config.learner.num_ranks,
        num_reward_workers=config.reward.num_workers,
    )
    room = asyncio.run(reserve(wanted, can_grow=False, timeout_s=60, say=print))
    workers = create_workers(
        room,
        engine_factories=[],
        learner_factory=learner_factory(config),
        learner=config.learner,
        reward=config.reward,
    )
    try:
        yield workers
    finally:
        asyncio.run(workers.close())


def sharded(config):
    return config.model_copy(update={"learner": config.learner.model_copy(update={"shard_base": True})})


@pytest.fixture(scope="module")
def two(config):
    with running(config) as workers:
        asyncio.run(workers.start(timeout_s=300))
        yield workers.learner


def long_batch():
    """Seconds of work at 64 tokens a pass."""
    return make_batch([random_group(seed, (1.0, 0.0, 1.0, 0.0), lens=(50, 60, 40, 55)) for seed in range(120)])


def test_two_actors_do_what_one_learner_does(two, config):
    alone = learner_factory(config)(None)
    old = alone.fill_old_logprobs(random_batch()).old_logprobs_BT
    assert old is not None
    filled = asyncio.run(two.fill_old_logprobs(random_batch())).old_logprobs_BT
    torch.testing.assert_close(filled, old, rtol=0, atol=1e-5)
    batch = replace(random_batch(), sampler_logprobs_BT=old)
    start = alone.export_state()
    assert asyncio.run(two.export_adapter()) == start.adapter  # the same seed on every rank
    for step in (1, 2):
        got, wanted = asyncio.run(two.step(batch, step=step)), alone.step(batch, step=step)
        assert got.grad_norm == pytest.approx(wanted.grad_norm, rel=1e-5)
        assert sorted(s.row for s in got.sequences) == list(range(9))
    ours, theirs = tensors(asyncio.run(two.export_adapter())), tensors(alone.export_adapter())
    assert all(float((ours[name] - theirs[name]).abs().max()) < 1e-6 for name in theirs)
    assert asyncio.run(two.score([5, 9, 3, 60], num_prompt=1)) == pytest.approx(
        alone.score([5, 9, 3, 60], num_prompt=1), abs=1e-5
    )
    asyncio.run(two.load_state(start))  # on every rank, or the next update would find them apart
    assert asyncio.run(two.step(batch, step=1)).updated
    assert asyncio.run(two.export_state()).adapter.version.step == 1


@pytest.mark.parametrize("row", [1, 5])
def test_an_error_of_either_rank_is_the_error_of_the_call_and_both_go_on(two, row):
    # Two rows to compute: 3 + 9 tokens for rank 0, 5 + 2 for rank 1.
    batch = replace(random_batch(), advantages_B=torch.tensor([0.0, 1, 0, 0, 0, 1, 0, 0, 0]))
    poisoned = replace(batch, sampler_logprobs_BT=batch.sampler_logprobs_BT.clone())
    poisoned.sampler_logprobs_BT[row, 0] = math.nan
    with pytest.raises(LearnerError, match=r"unusable numbers in the loss: log-prob .* is not finite") as caught:
        asyncio.run(two.step(poisoned, step=3))
    assert type(caught.value) is LearnerError
    assert asyncio.run(two.step(batch, step=3)).updated


def test_a_model_that_cannot_be_loaded_is_named_by_the_start_and_nobody_waits(config, tmp_path):
    broken = config.model_copy(update={"model": config.model.model_copy(update={"path": str(tmp_path)})})
    with running(broken) as workers, pytest.raises(ModelError, match=str(tmp_path)):
        asyncio.run(workers.start(timeout_s=300))


def test_with_sharded_base_weights_the_error_of_one_rank_ends_the_call_although_the_other_hangs(config):
    batch = replace(random_batch(), advantages_B=torch.tensor([0.0, 1, 0, 0, 0, 1, 0, 0, 0]))
    poisoned = replace(batch, sampler_logprobs_BT=batch.sampler_logprobs_BT.clone())
    poisoned.sampler_logprobs_BT[5, 0] = math.nan
    with running(sharded(config)) as workers:
        asyncio.run(workers.start(timeout_s=300))
        assert asyncio.run(workers.learner.step(batch, step=1)).updated
        started = time.monotonic()
        with pytest.raises(LearnerError, match="unusable numbers in the loss"):
            asyncio.run(workers.learner.step(poisoned, step=2))
        assert time.monotonic() - started < 15


def learner_pids():
    found = set()
    for process in psutil.process_iter(["cmdline"]):
        if any(word.startswith("ray::LearnerActor") for word in process.info["cmdline"] or []):
            found.add(process.pid)
    return found


@pytest.mark.parametrize("change", [lambda config: config, sharded], ids=["whole", "sharded"])
def test_a_rank_that_is_killed_in_the_middle_of_a_step_ends_the_call(config, change):
    before = learner_pids()
    with running(change(config)) as workers:
        asyncio.run(workers.start(timeout_s=300))
        victim = max(learner_pids() - before)

        async def step():
            call = asyncio.create_task(workers.learner.step(long_batch(), step=1))
            await asyncio.sleep(1.0)
            assert not call.done()
            started = time.monotonic()
            os.kill(victim, signal.SIGKILL)  # as the kernel does when memory runs out
            try:
                await call
            finally:
                took.append(time.monotonic() - started)

        took: list[float] = []
        with pytest.raises(LearnerError, match=r"learner rank [01] died"):
            asyncio.run(step())
        assert took[0] < 15  # 0.1 s here
        # And whatever is asked of them afterwards.
        with pytest.raises(LearnerError, match=r"learner rank [01] died"):
            asyncio.run(workers.learner.step(random_batch(), step=2))


def test_a_rank_that_is_gone_before_the_call_is_named(config):
    with running(config) as workers:
        asyncio.run(workers.start(timeout_s=300))
        ray.kill(workers.learner_handles[1])
        started = time.monotonic()
        with pytest.raises(LearnerError, match="learner rank 1 died"):
            asyncio.run(workers.learner.step(random_batch(), step=1))
        assert time.monotonic() - started < 15
