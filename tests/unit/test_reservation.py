"""When waiting for room is in vain: what the autoscaler must say, how often, and what the person is told."""

import itertools
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gspo_ray.actors import reservation
from gspo_ray.actors.autoscaler import AutoscalerReport
from gspo_ray.actors.placement import Room, demand
from gspo_ray.actors.reservation import _Wait
from gspo_ray.config import ClusterConfig, EngineConfig
from gspo_ray.errors import ResourceError

ROUNDS = itertools.count(1)


def report(*, impossible: tuple[str, ...] = (), **more: Any) -> AutoscalerReport:
    fields: dict[str, Any] = {"round": next(ROUNDS), "coming": {}, "failed": ()} | more
    return AutoscalerReport(impossible=frozenset(impossible), **fields)


class Wait:
    """`_Wait` on a cluster whose other work holds `held`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, held: str = "") -> None:
        cluster = ClusterConfig(device="cpu", cpus_per_engine=4, engine_labels={"gspo-ray/group": "sampler"})
        wanted = demand(cluster, EngineConfig(), num_engines=3, num_reward_workers=1)
        groups = {role.name: cast(Any, SimpleNamespace(id=bytes(role.name, "utf-8"))) for role in wanted.roles}
        monkeypatch.setattr(reservation, "shortage", lambda wanted: "SHORT.")
        monkeypatch.setattr(reservation, "_held_by_others", lambda wanted, missing: held)
        self.said: list[str] = []
        self._wait = _Wait(Room(wanted, groups), can_grow=True, limit_s=600, say=self.said.append)

    def look(self, report: AutoscalerReport, missing: tuple[str, ...] = ("engine",)) -> None:
        self._wait.look(report, missing=set(missing))


ENGINES = b"engine".hex()  # what the autoscaler calls the engines' group


def test_what_no_node_could_ever_hold_is_refused_with_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    wait = Wait(monkeypatch)
    wait.look(report(impossible=(ENGINES,)))
    with pytest.raises(ResourceError, match=r"room for 3 x engine \(4 CPU; gspo-ray/group: sampler\), with all nodes"):
        wait.look(report(impossible=(ENGINES,)))


def test_one_round_is_not_enough_whatever_the_time_between_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that is just leaving counts against the maximum for one round."""
    wait = Wait(monkeypatch)
    first = report(impossible=(ENGINES,))
    for seen in (first, first, report(), report(impossible=(ENGINES,)), report()):
        wait.look(seen)


def test_while_other_work_holds_nodes_there_is_something_to_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    wait = Wait(monkeypatch, held="8 CPU")
    for _ in range(3):
        wait.look(report(impossible=(ENGINES,)))
    (line,) = wait.said
    assert "SHORT. The autoscaler can start no more, and other work holds 8 CPU." in line


def test_what_is_impossible_for_others_is_not_our_concern(monkeypatch: pytest.MonkeyPatch) -> None:
    wait = Wait(monkeypatch)
    for _ in range(3):
        wait.look(report(impossible=("another run's", b"learner".hex())))  # the learner has its room


def test_nodes_on_their_way_are_named_and_news_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    wait = Wait(monkeypatch)
    for coming in ({}, {"sampler": 2, "learner": 1}, {"sampler": 2, "learner": 1}, {"sampler": 1}):
        wait.look(report(coming=coming))
    assert [line.partition("SHORT. ")[2] for line in wait.said] == [
        "The autoscaler is starting no node yet.",
        "The autoscaler is starting 1 x learner, 2 x sampler.",
        "The autoscaler is starting 1 x sampler.",
    ]
    assert wait.said[0].startswith("Waiting for the cluster (0 of 600 s): ")


def test_a_launch_that_failed_is_told_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    wait = Wait(monkeypatch)
    wait.look(report(coming={"sampler": 1}, failed=("sampler: no capacity in us-west-2a",)))
    assert wait.said[0].endswith("starting 1 x sampler. A launch failed: sampler: no capacity in us-west-2a.")
