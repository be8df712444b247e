"""What can be wrong between nodes: clocks, the object store, collective operations, the GPUs all together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gspo_ray.doctor.finding import Finding, Level, Problem, judged

MB, GB = 1e6, 1e9
SKEW_WARN_S, SKEW_FAIL_S = 1.0, 300.0  # signatures of object storage expire after some minutes
SLOW_STORE = 100 * MB  # bytes a second; an adapter of an 8B model has some 200 MB, and goes to every node each step
SLOW_REDUCE = 1 * GB


class Reading(NamedTuple):
    """Another node's clock, in seconds of this one."""

    sent: float
    theirs: float
    received: float


class Skew(NamedTuple):
    seconds: float
    """How far theirs is ahead."""
    bound: float
    """The true value is within this of `seconds`, however the round trip was divided."""


def clock_skew(readings: Sequence[Reading]) -> Skew:
    """From the quickest round trip, whose middle is the best guess of when theirs was read."""
    best = min(readings, key=lambda reading: reading.received - reading.sent)
    return Skew(best.theirs - (best.sent + best.received) / 2, (best.received - best.sent) / 2)


def check_clocks(skews: Mapping[str, Skew]) -> Finding:
    """Of the nodes but this one."""
    if not skews:
        return Finding("clocks", Level.SKIP, "one node")
    problems = []
    for node, skew in skews.items():
        if (least := abs(skew.seconds) - skew.bound) > SKEW_WARN_S:
            level = Level.FAIL if least > SKEW_FAIL_S else Level.WARN
            text = f"the clock of {node} is off by {skew.seconds:+.2f} s (+-{skew.bound:.3f})"
            problems.append(Problem(level, text, "Run chrony or another NTP client on every node."))
    worst = max(skews.values(), key=lambda skew: abs(skew.seconds))
    return judged("clocks", f"at most {abs(worst.seconds) * 1e3:.0f} ms apart (+-{worst.bound * 1e3:.0f})", problems)


def check_object_store(bytes_per_second: Mapping[tuple[str, str], float | str]) -> Finding:
    """(from, to) -> speed, or why there is none."""
    if not bytes_per_second:
        return Finding("object store", Level.SKIP, "one node: nothing travels")
    problems = []
    for (source, target), speed in bytes_per_second.items():
        if isinstance(speed, str):
            fix = "Open all ports between the nodes (Ray's object manager takes a random one), or fix them: ray start."
            problems.append(Problem(Level.FAIL, f"{source} to {target}: {speed}", fix))
        elif speed < SLOW_STORE:
            text = f"{source} to {target}: {speed / MB:.0f} MB/s is slow, adapters travel every step"
            problems.append(Problem(Level.WARN, text, "Use nodes of one zone and network; look at MTU and traffic."))
    speeds = [speed for speed in bytes_per_second.values() if not isinstance(speed, str)]
    found = f"{min(speeds) / MB:.0f} to {max(speeds) / MB:.0f} MB/s" if speeds else ""
    return judged("object store", found, problems)


def check_all_reduce(num_gpus: int, bytes_per_second: float) -> Finding:
    """Bus bandwidth, as NCCL's own tests count: 2 (n - 1) / n of the bytes of one rank, by the time."""
    found = f"{num_gpus} GPUs, {bytes_per_second / GB:.1f} GB/s bus bandwidth"
    problems = []
    if bytes_per_second < SLOW_REDUCE:
        fix = "NCCL_DEBUG=INFO tells the way it takes: NCCL_SOCKET_IFNAME, InfiniBand and peer access are the usual."
        problems.append(Problem(Level.WARN, "NCCL is slow", fix))
    return judged("all-reduce", found, problems)


def check_gpu_count(wanted: int, there: float) -> Finding:
    """Of the whole cluster as it is now."""
    if wanted == 0:
        return Finding("GPUs in all", Level.SKIP, "cluster.device is cpu")
    problems = []
    if there < 1:
        text = f"the config asks for {wanted} GPUs and Ray knows of none"
        fix = "Set cluster.device=cpu, join nodes with GPUs, or let the cluster grow to them."
        problems.append(Problem(Level.FAIL, text, fix))
    elif there < wanted:
        text = f"the config asks for {wanted} GPUs, the cluster has {there:g} now"
        fix = "Fine if it grows by itself; else lower rollout.num_engines or learner.num_ranks."
        problems.append(Problem(Level.WARN, text, fix))
    return judged("GPUs in all", f"{there:g} there, {wanted} wanted" if not problems else "", problems)
