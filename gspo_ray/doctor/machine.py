"""A node's memory, CPUs, open files and shared memory against what Ray and the engine make of them."""

from __future__ import annotations

import os
import resource
import shutil
from dataclasses import dataclass
from pathlib import Path

import psutil

from gspo_ray.doctor.finding import Finding, Level, Problem, judged

GIB = 2**30
OPEN_FILES = 65536  # what Ray's documentation asks for on large clusters
FEW_FILES = 4096
LITTLE_MEMORY = 4 * GIB
LITTLE_SHM = GIB // 4  # adapters of a large model, and NCCL's own segments
SHM = Path("/dev/shm")


@dataclass(frozen=True, slots=True)
class Limits:
    """Of the cgroup; None: no limit."""

    memory_bytes: int | None
    cpus: float | None


def check_open_files(limits: tuple[int, int] | None = None) -> Finding:
    soft, hard = limits or resource.getrlimit(resource.RLIMIT_NOFILE)
    found = f"ulimit -n is {_count(soft)} (hard limit {_count(hard)})"
    if soft == resource.RLIM_INFINITY or soft >= FEW_FILES:
        return Finding("open files", Level.PASS, found)
    fix = f"ulimit -n {OPEN_FILES} before ray start (containers: --ulimit nofile={OPEN_FILES})."
    return Finding("open files", Level.WARN, f"{found}: Ray opens several files an actor and an object", fix)


def check_memory(limits: Limits | None = None, total: int = 0, available: int = 0) -> Finding:
    """In bytes; this machine's where none are given."""
    limits = limits or cgroup_limits()
    if not total:
        memory = psutil.virtual_memory()
        total, available = memory.total, memory.available
    if limits.memory_bytes is not None and limits.memory_bytes < total:
        found = f"{_gib(available)} available of {_gib(total)}, this container may use {_gib(limits.memory_bytes)}"
    else:
        found = f"{_gib(available)} available of {_gib(total)}"
    room = min(available, limits.memory_bytes or available)
    problems = []
    if room < LITTLE_MEMORY:
        level = Level.FAIL if room < GIB else Level.WARN
        text = f"little memory is left: {_gib(room)}"
        problems.append(Problem(level, text, "End other programs, or raise the container's memory limit."))
    return judged("memory", found, problems)


def check_cpus(ray_cpus: float | None, limits: Limits | None = None, usable: int | None = None) -> Finding:
    """`ray_cpus`: what this node told Ray; None without Ray."""
    limits = limits or cgroup_limits()
    usable = len(os.sched_getaffinity(0)) if usable is None else usable
    real = min(float(usable), limits.cpus or float(usable))
    found = f"{usable} CPUs" + (f", this container may use {real:g}" if real < usable else "")
    found += "" if ray_cpus is None else f", Ray counts {ray_cpus:g}"
    problems = []
    if ray_cpus is not None and ray_cpus > real * 1.01 + 0.01:
        text = f"Ray counts more CPUs than there are ({ray_cpus:g} > {real:g}): work would share them"
        problems.append(Problem(Level.WARN, text, f"ray start --num-cpus {max(1, int(real))}"))
    return judged("CPUs", found, problems)


def check_shm(object_store_bytes: float | None, total: int = 0, free: int = 0) -> Finding:
    """Ray's object store lives there, vLLM's and NCCL's messages, and the adapters on their way into an engine."""
    if not total and not SHM.is_dir():
        return Finding("/dev/shm", Level.WARN, "there is none: the object store and adapters go to disk", _SHM_FIX)
    if not total:
        usage = shutil.disk_usage(SHM)
        total, free = usage.total, usage.free
    found = f"{_gib(free)} free of {_gib(total)}"
    found += "" if object_store_bytes is None else f", object store {_gib(object_store_bytes)}"
    problems = []
    if object_store_bytes is not None and total < object_store_bytes:
        problems.append(Problem(Level.WARN, "smaller than Ray's object store, which then lies on disk", _SHM_FIX))
    if free < LITTLE_SHM:
        text = "full: adapters, vLLM and NCCL write there and would fail"
        problems.append(Problem(Level.FAIL, text, _SHM_FIX))
    return judged("/dev/shm", found, problems)


_SHM_FIX = (
    "Docker: --shm-size (or --ipc=host); Kubernetes: an emptyDir of medium Memory at /dev/shm. "
    "About a third of the memory."
)


def cgroup_limits(root: Path = Path("/sys/fs/cgroup")) -> Limits:
    """Of version 2, else version 1, as a container sees its own."""
    memory = _number(root / "memory.max") or _number(root / "memory/memory.limit_in_bytes")
    try:
        quota, period = (root / "cpu.max").read_text().split()
        cpus = None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        quota_us, period_us = (_number(root / f"cpu/cpu.cfs_{name}_us") for name in ("quota", "period"))
        cpus = quota_us / period_us if quota_us and period_us else None
    return Limits(memory_bytes=memory, cpus=cpus)


def _number(file: Path) -> int | None:
    """None for no file, for no limit ("max", -1), and for the huge number that stands for none in version 1."""
    try:
        value = int(file.read_text())
    except (OSError, ValueError):
        return None
    return value if 0 < value < 2**60 else None


def _gib(size: float) -> str:
    return f"{size / GIB:.1f} GiB"


def _count(limit: int) -> str:
    return "unlimited" if limit == resource.RLIM_INFINITY else str(limit)
