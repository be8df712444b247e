"""What a run asks of the cluster: refused with numbers when it cannot be had, and given back."""

import asyncio
import time

import pytest
import ray

from gspo_ray.actors.autoscaler import autoscaler_report
from gspo_ray.actors.placement import demand
from gspo_ray.actors.reservation import reserve, shortage
from gspo_ray.config import ClusterConfig, EngineConfig
from gspo_ray.errors import ResourceError

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("cluster")]


def ask(*, device="cpu", engines=1, cpus=0.25, **more):
    cluster = ClusterConfig(
        device=device, cpus_per_engine=cpus, cpus_per_learner=cpus, cpus_per_reward_worker=cpus, **more
    )
    return demand(cluster, EngineConfig(), num_engines=engines, num_reward_workers=1)


def no_words(text):
    raise AssertionError(f"nothing to wait for, but said: {text}")


def wait_for_cpus(amount):
    deadline = time.monotonic() + 10
    while ray.available_resources().get("CPU", 0) < amount and time.monotonic() < deadline:
        time.sleep(0.1)
    assert ray.available_resources()["CPU"] == pytest.approx(amount)


def test_too_few_cpus_on_a_local_cluster_are_refused_at_once_with_both_numbers():
    started = time.monotonic()
    with pytest.raises(ResourceError, match=r"asks for 6 CPU, 0 GPU .*cluster has 2 CPU, 0 GPU"):
        asyncio.run(reserve(ask(cpus=2.0), can_grow=False, timeout_s=600, say=no_words))
    assert time.monotonic() - started < 5


def test_gpus_that_are_not_there_are_refused():
    with pytest.raises(ResourceError, match=r"asks for 0\.75 CPU, 2 GPU .*cluster\.device=cpu"):
        asyncio.run(reserve(ask(device="cuda"), can_grow=False, timeout_s=600, say=no_words))


def test_labels_that_no_node_has_are_refused_by_name():
    wanted = ask(learner_labels={"ray.io/market-type": "on-demand"})
    with pytest.raises(ResourceError, match=r"no node with the labels ray\.io/market-type: on-demand for the learner"):
        asyncio.run(reserve(wanted, can_grow=False, timeout_s=600, say=no_words))


def test_ray_reads_selectors_as_we_do():
    """A label that the node lacks: a negation finds room, which is what `shortage` says."""
    wanted = ask(engine_labels={"market": "!spot"})
    assert shortage(wanted) == ""
    asyncio.run(reserve(wanted, can_grow=False, timeout_s=60, say=no_words)).give_back()
    wait_for_cpus(2)


def test_a_cluster_that_may_grow_is_waited_for_and_then_given_up():
    said: list[str] = []
    with pytest.raises(ResourceError, match="no room on the cluster after 2 s"):
        asyncio.run(reserve(ask(cpus=1.0), can_grow=True, timeout_s=2, say=said.append, poll_s=0.5))
    assert len(said) == 1  # the same is not said again
    assert "asks for 3 CPU" in said[0]
    assert "No autoscaler reports on this cluster" in said[0]
    wait_for_cpus(2)  # what two of the three roles had got is given back


def test_resources_are_reserved_and_given_back():
    room = asyncio.run(reserve(ask(), can_grow=False, timeout_s=60, say=no_words))
    options = room.engine_options(0)
    assert options["num_cpus"] == 0.25
    assert options["num_gpus"] == 0
    assert ray.available_resources()["CPU"] == pytest.approx(2 - 0.75)
    room.give_back()
    wait_for_cpus(2)


def test_without_an_autoscaler_nothing_is_reported():
    report = autoscaler_report()
    assert (report.round, report.coming, report.failed, report.impossible) == (0, {}, (), frozenset())
