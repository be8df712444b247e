"""Peak resident memory of this process and of what it started."""

from __future__ import annotations

import contextlib
from pathlib import Path

import psutil


def peak_memory_mib(*, children: bool = True) -> float:
    """Sum of the peaks (VmHWM) of this process and its descendants, in MiB. Shared pages count each time."""
    process = psutil.Process()
    total_kib = 0
    for member in (process, *(process.children(recursive=True) if children else ())):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # ended meanwhile
            for line in Path(f"/proc/{member.pid}/status").read_text().splitlines():
                if line.startswith("VmHWM:"):
                    total_kib += int(line.split()[1])
    return total_kib / 1024
