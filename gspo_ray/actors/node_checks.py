"""The doctor's checks on every node of the cluster, and what is measured between nodes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from gspo_ray.actors.all_reduce import all_reduce_speed
from gspo_ray.config import RunConfig
from gspo_ray.doctor import between, gpu, versions
from gspo_ray.doctor.checks import Place, checks
from gspo_ray.doctor.finding import Finding, Level
from gspo_ray.doctor.report import CLUSTER
from gspo_ray.doctor.runner import examine

START_S = 180.0  # a node's worker process with this package in it
TRAVEL_BYTES, TRAVEL_S = 64 * 2**20, 60.0
SILENCE_S = 900.0  # longer than any check of a node may take
READINGS = 8  # of a clock


class NodeDoctor:
    """On one node. What breaks here breaks in the process that `examine` starts."""

    def __init__(self, config: RunConfig, place: Place, *, quick: bool) -> None:
        self._examine = partial(examine, config, place, quick=quick)

    def versions(self) -> dict[str, str]:
        return versions.installed_versions() | {"NVIDIA driver": gpu.driver_version() or "-"}

    def now(self) -> float:
        return time.time()

    def put(self, num_bytes: int) -> list[ray.ObjectRef]:
        """In a list, so that Ray does not fetch it with the arguments of a call."""
        return [ray.put(np.zeros(num_bytes, np.uint8))]

    def fetch(self, refs: Sequence[ray.ObjectRef]) -> float:
        """Seconds."""
        started = time.perf_counter()
        ray.get(refs[0], timeout=TRAVEL_S)
        return time.perf_counter() - started

    def examine(self) -> Iterator[Finding]:
        yield from self._examine()


RemoteNodeDoctor = ray.remote(NodeDoctor)


def examine_cluster(
    config: RunConfig, *, quick: bool, progress: Callable[[str, int, int], None]
) -> dict[str, list[Finding]]:
    """Findings of the cluster and of each node. `progress(node, done, of)`. A node that fails has a finding too."""
    nodes = _alive_nodes()
    places = {name: _place(node) for name, node in nodes.items()}
    doctors = {
        # It asks for no resources: a busy cluster is examined as well.
        name: RemoteNodeDoctor.options(
            num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        ).remote(config, places[name], quick=quick)
        for name, node in nodes.items()
    }
    report: dict[str, list[Finding]] = {name: [] for name in (CLUSTER, *doctors)}
    found: dict[str, dict[str, str]] = {}
    for name, pending in {name: doctor.versions.remote() for name, doctor in doctors.items()}.items():
        try:
            found[name] = ray.get(pending, timeout=START_S)
        except RayError as error:
            report[name].append(_broken_node(error))
    doctors = {name: doctors[name] for name in found}
    report[CLUSTER] += [
        versions.compare_nodes(found),
        between.check_clocks(_clocks({name: doctor for name, doctor in doctors.items() if not places[name].is_driver})),
        between.check_object_store(_travel(doctors)),
        *_gpus(config),
    ]
    streams = {doctor.examine.options(num_returns="streaming").remote(): name for name, doctor in doctors.items()}
    totals = {name: len(checks(config, places[name], quick=quick)) for name in doctors}
    while streams:
        ready, _ = ray.wait(list(streams), timeout=SILENCE_S)
        if not ready:
            for name in streams.values():
                report[name].append(Finding("node", Level.FAIL, f"no word for {SILENCE_S:.0f} s", _NODE_FIX))
            break
        for stream in ready:
            name = streams[stream]
            try:
                report[name].append(ray.get(next(stream)))
                progress(name, len(report[name]), totals[name])
            except StopIteration:
                del streams[stream]
            except RayError as error:
                report[name].append(_broken_node(error, f"lost with {len(report[name])} of {totals[name]} checks made"))
                del streams[stream]
    return report


def list_nodes() -> list[dict[str, Any]]:
    """As Ray has them, the dead ones too."""
    return list(ray.nodes())


def total_gpus() -> float:
    return float(ray.cluster_resources().get("GPU", 0.0))


def _alive_nodes() -> dict[str, Mapping[str, Any]]:
    named: dict[str, Mapping[str, Any]] = {}
    for node in ray.nodes():
        if node["Alive"]:
            name = f"{node['NodeManagerHostname']} {node['NodeManagerAddress']}"
            named[f"{name} {node['NodeID'][:6]}" if name in named else name] = node
    return named


def _place(node: Mapping[str, Any]) -> Place:
    resources = node["Resources"]
    return Place(
        is_driver=node["NodeID"] == ray.get_runtime_context().get_node_id(),
        object_store_bytes=resources.get("object_store_memory"),
        ray_cpus=resources.get("CPU", 0.0),
    )


def _clocks(doctors: Mapping[str, Any]) -> dict[str, between.Skew]:
    skews = {}
    for name, doctor in doctors.items():
        with suppress(RayError):  # a node that is lost now says so in its own findings
            readings = []
            for _ in range(READINGS):
                sent = time.time()
                theirs = ray.get(doctor.now.remote(), timeout=START_S)
                readings.append(between.Reading(sent, theirs, time.time()))
            skews[name] = between.clock_skew(readings)
    return skews


def _travel(doctors: Mapping[str, Any]) -> dict[tuple[str, str], float | str]:
    """Every node sends to the next one, one after the other: each of them once at either end."""
    names, speeds = list(doctors), {}
    for source, target in zip(names, names[1:] + names[:1], strict=True):
        if source == target:
            break
        try:
            for num_bytes in (2**20, TRAVEL_BYTES):  # the first opens the connection
                refs = ray.get(doctors[source].put.remote(num_bytes), timeout=TRAVEL_S)
                seconds = ray.get(doctors[target].fetch.remote(refs), timeout=2 * TRAVEL_S)
            speeds[source, target] = num_bytes / seconds
        except RayError as error:
            speeds[source, target] = _first_line(error)
    return speeds


def _gpus(config: RunConfig) -> list[Finding]:
    cuda = config.cluster.device == "cuda"
    both = 1 if config.cluster.colocate else config.engine_gpus + config.learner.num_ranks
    wanted = both if cuda else 0
    count = between.check_gpu_count(wanted, total_gpus())
    free = int(ray.available_resources().get("GPU", 0.0))
    if not cuda or free < 2:
        return [count, Finding("all-reduce", Level.SKIP, "fewer than two GPUs are free")]
    try:
        return [count, between.check_all_reduce(free, all_reduce_speed(free, device="cuda"))]
    except RayError as error:
        fix = "NCCL_DEBUG=INFO tells where it stops; NCCL_SOCKET_IFNAME names the network to use."
        return [count, Finding("all-reduce", Level.FAIL, f"{free} GPUs: {_first_line(error)}", fix)]


def _broken_node(error: RayError, what: str = "nothing can run here") -> Finding:
    return Finding("node", Level.FAIL, f"{what}: {_first_line(error)}", _NODE_FIX)


def _first_line(error: Exception) -> str:
    """Ray puts its traces before the error itself."""
    cause = getattr(error, "cause", None) or error
    text = " ".join(str(cause).split())
    return f"{type(cause).__name__}: {text[-300:]}"


_NODE_FIX = (
    "Install this version of gspo_ray on the node as on the others; its logs are in /tmp/ray/session_latest/logs."
)
