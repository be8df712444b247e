"""Memory, time and neighbours of the process that measures."""

from __future__ import annotations

import resource
import time
from pathlib import Path
from typing import NamedTuple

import psutil
import torch

SPARE_BYTES = 512 * 2**20  # left to the rest of the machine
NOT_BUSY = {"idle", "iowait", "guest", "guest_nice"}  # a guest's time is in `user` already


class Span(NamedTuple):
    seconds: float
    cpu_seconds: float  # of this process
    busy_others: float  # cores


class Stopwatch:
    """Of the device's work, not of its queue."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._started, self._own, self._all = self._now()

    def read(self) -> Span:
        now, own, everybody = self._now()
        seconds, cpu = now - self._started, own - self._own
        return Span(seconds, cpu, max(0.0, (everybody - self._all - cpu) / seconds))

    def _now(self) -> tuple[float, float, float]:
        if self._device != "cpu":
            torch.cuda.synchronize()
        times = psutil.cpu_times()._asdict()
        busy = sum(seconds for kind, seconds in times.items() if kind not in NOT_BUSY)
        return time.perf_counter(), time.process_time(), busy


def has_gpu() -> bool:
    return torch.cuda.is_available()


def available_bytes() -> int:
    return max(0, psutil.virtual_memory().available - SPARE_BYTES)


def limit_memory(limit: int) -> None:
    """A batch that is too large then ends this process alone, and not one that the kernel picks."""
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def held_bytes(device: str) -> int:
    return psutil.Process().memory_info().rss if device == "cpu" else torch.cuda.memory_allocated()


def forget_peak(device: str) -> None:
    if device != "cpu":
        torch.cuda.reset_peak_memory_stats()
    else:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def peak_bytes(device: str) -> int:
    """Since forget_peak: resident memory of the process, or what is allocated on the GPU."""
    if device != "cpu":
        return torch.cuda.max_memory_allocated()
    status = Path("/proc/self/status").read_text(encoding="ascii")
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024
