"""What a run asks of the cluster: refused with numbers when it cannot be had, and given back."""

import asyncio
import time

import pytest
import ray
from ray.util.placement_group import remove_placement_group

from gspo_ray.actors.placement import demand, engine_options, reserve
from gspo_ray.config import ClusterConfig, EngineConfig
from gspo_ray.errors import ResourceError

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("cluster")]


def ask(*, device="cpu", engines=1, cpus=0.25):
    cluster = ClusterConfig(device=device, cpus_per_engine=cpus, cpus_per_learner=cpus, cpus_per_reward_worker=cpus)
    return demand(cluster, EngineConfig(), num_engines=engines, num_reward_workers=1)


def no_words(text):
    raise AssertionError(f"nothing to wait for, but said: {text}")


def test_too_few_cpus_on_a_local_cluster_are_refused_at_once_with_both_numbers():
    started = time.monotonic()
    with pytest.raises(ResourceError, match=r"asks for 6 CPU, 0 GPU .*cluster has 2 CPU, 0 GPU"):
        asyncio.run(reserve(ask(cpus=2.0), can_grow=False, timeout_s=600, say=no_words))
    assert time.monotonic() - started < 5


def test_gpus_that_are_not_there_are_refused():
    with pytest.raises(ResourceError, match=r"asks for 0\.75 CPU, 2 GPU .*cluster\.device=cpu"):
        asyncio.run(reserve(ask(device="cuda"), can_grow=False, timeout_s=600, say=no_words))


def test_a_cluster_that_may_grow_is_waited_for_and_then_given_up():
    said: list[str] = []
    with pytest.raises(ResourceError, match="no room on the cluster after 2 s"):
        asyncio.run(reserve(ask(cpus=2.0), can_grow=True, timeout_s=2, say=said.append, poll_s=1))
    assert len(said) == 1
    assert "asks for 6 CPU" in said[0]


def test_resources_are_reserved_and_given_back():
    before = ray.available_resources()["CPU"]
    wanted = ask()
    group = asyncio.run(reserve(wanted, can_grow=False, timeout_s=60, say=no_words))
    options = engine_options(group, wanted, 0)
    assert options["num_cpus"] == 0.25
    assert options["num_gpus"] == 0
    assert ray.available_resources()["CPU"] == pytest.approx(before - 0.75)
    remove_placement_group(group)
    deadline = time.monotonic() + 10
    while ray.available_resources().get("CPU", 0) < before and time.monotonic() < deadline:
        time.sleep(0.1)
    assert ray.available_resources()["CPU"] == before
