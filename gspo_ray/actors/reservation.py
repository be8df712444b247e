"""All the room that a run asks for, or none: refused at once where it cannot be had, waited for where it may come."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable

import ray
from ray.util.placement_group import PlacementGroup, placement_group

from gspo_ray.actors.autoscaler import AutoscalerReport, autoscaler_report
from gspo_ray.actors.placement import Demand, Role, Room
from gspo_ray.errors import ResourceError

LOCAL_TIMEOUT_S = 60.0  # on a cluster that cannot grow: for what an earlier run is still giving back
SILENCE_S = 60.0  # between two lines that say the same
KINDS = ("CPU", "GPU")

_REMEDY = (
    "Lower rollout.num_engines, learner.num_ranks, reward.num_workers or cluster.cpus_per_* (fractions are fine on one "
    "machine), set cluster.device=cpu if there are no GPUs, or use a larger cluster."
)


async def reserve(
    wanted: Demand, *, can_grow: bool, timeout_s: float, say: Callable[[str], None], poll_s: float = 2.0
) -> Room:
    """Raises ResourceError, with what is asked for and what is there, when it cannot be had or did not come in time."""
    if not can_grow and (problem := shortage(wanted)):
        raise ResourceError(f"{problem} {_REMEDY}")
    room = Room(wanted, {role.name: _group(role) for role in wanted.roles})
    ready = {name: asyncio.ensure_future(_ready(group)) for name, group in room.groups.items()}
    wait = _Wait(room, can_grow=can_grow, limit_s=timeout_s if can_grow else LOCAL_TIMEOUT_S, say=say)
    try:
        while (await asyncio.wait(ready.values(), timeout=poll_s, return_when=asyncio.FIRST_EXCEPTION))[1]:
            for future in ready.values():
                if future.done():
                    future.result()
            report = await asyncio.to_thread(autoscaler_report)
            wait.look(report, missing={name for name, future in ready.items() if not future.done()})
    except BaseException:
        for future in ready.values():
            future.cancel()
        room.give_back()
        raise
    return room


class _Wait:
    """What the person is told meanwhile, and when it is in vain."""

    def __init__(self, room: Room, *, can_grow: bool, limit_s: float, say: Callable[[str], None]) -> None:
        self._room, self._can_grow, self._limit_s, self._say = room, can_grow, limit_s, say
        self._started = time.monotonic()
        self._said, self._said_at = "", 0.0
        self._rounds_refused: set[int] = set()

    def look(self, report: AutoscalerReport, *, missing: set[str]) -> None:
        """`missing`: roles that have no room yet. Raises ResourceError when there is nothing to wait for."""
        wanted, groups = self._room.wanted, self._room.groups
        waited = time.monotonic() - self._started
        state = shortage(wanted) or f"{wanted}; they exist but are taken by other work."
        refused = [r for r in wanted.roles if r.name in missing and groups[r.name].id.hex() in report.impossible]
        held = _held_by_others(wanted, missing)
        self._rounds_refused = self._rounds_refused | {report.round} if refused and not held else set()
        # Twice: a node that is just leaving counts against the autoscaler's maximum for one round.
        if len(self._rounds_refused) > 1:
            what = " and ".join(f"{role.count} x {_takes(role)}" for role in refused)
            raise ResourceError(
                f"{state} The autoscaler cannot make room for {what}, with all nodes that it may start. {_REMEDY}"
            )
        if waited >= self._limit_s:
            raise ResourceError(f"no room on the cluster after {self._limit_s:.0f} s: {state} {_REMEDY}")
        if refused and held:
            state += f" The autoscaler can start no more, and other work holds {held}."
        elif self._can_grow:
            state += f" {report}"
        if state != self._said or waited - self._said_at >= SILENCE_S:
            self._say(f"Waiting for the cluster ({waited:.0f} of {self._limit_s:.0f} s): {state}")
            self._said, self._said_at = state, waited


def shortage(wanted: Demand) -> str:
    """A sentence when the cluster as it is could not hold the run even if it were idle, else ''."""
    there = ray.cluster_resources()
    if any(wanted.total(kind) > there.get(kind, 0.0) + 1e-6 for kind in KINDS):
        has = ", ".join(f"{there.get(kind, 0.0):g} {kind}" for kind in KINDS)
        return f"{wanted}, but the cluster has {has}."
    nodes = [node for node in ray.nodes() if node["Alive"]]
    for role in wanted.roles:
        fitting = [node["Resources"] for node in nodes if matches(node["Labels"], role.labels)]
        where = f" with the labels {_text(role.labels)}" if role.labels else ""
        if not fitting:
            return f"{wanted}, but the cluster has no node{where} for the {role.name}."
        for kind, need in role.takes.items():
            if need > (largest := max(node.get(kind, 0.0) for node in fitting)) + 1e-6:
                return (
                    f"one actor of the run ({role.name}) needs {need:g} {kind} on one node, but the largest "
                    f"node{where} has {largest:g}."
                )
    return ""


def matches(labels: dict[str, str], selector: dict[str, str]) -> bool:
    """Ray's label selectors: value, !value, in(a, b), !in(a, b). A label that is absent matches only the negations."""
    for key, text in selector.items():
        wanted = re.split(r", ?", text.removeprefix("!").removeprefix("in(").removesuffix(")"))
        if (labels.get(key) in wanted) == text.startswith("!"):
            return False
    return True


def _group(role: Role) -> PlacementGroup:
    return placement_group(
        [dict(role.takes) for _ in range(role.count)],
        strategy=role.strategy,
        bundle_label_selector=[dict(role.labels) for _ in range(role.count)] if role.labels else None,
    )


async def _ready(group: PlacementGroup) -> None:
    await group.ready()


def _held_by_others(wanted: Demand, missing: set[str]) -> str:
    """CPUs and GPUs that neither are free nor hold a part of this run; '' for none."""
    there, free = ray.cluster_resources(), ray.available_resources()
    held = {}
    for kind in KINDS:
        ours = sum(role.count * role.takes.get(kind, 0.0) for role in wanted.roles if role.name not in missing)
        held[kind] = there.get(kind, 0.0) - free.get(kind, 0.0) - ours
    return ", ".join(f"{amount:g} {kind}" for kind, amount in held.items() if amount > 1e-6)


def _takes(role: Role) -> str:
    """Such as "engine (4 CPU, 1 GPU; gspo-ray/group: sampler)"."""
    labels = f"; {_text(role.labels)}" if role.labels else ""
    return f"{role.name} ({', '.join(f'{amount:g} {kind}' for kind, amount in role.takes.items())}{labels})"


def _text(labels: dict[str, str]) -> str:
    return ", ".join(f"{key}: {value}" for key, value in labels.items())
