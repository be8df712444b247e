"""The verifier process: `python -m gspo_ray.reward.worker <memory_limit_mib>`, started by `child.Child` only.

Says {"ready": true} when math-verify is loaded, then answers {"completion", "gold", "style"} with {"outcome",
"extracted", "reason", "retire"}, one at a time, until its standard input ends. {"gold"} alone asks whether that
gold answer can be read: then the reason says why not, and the outcome is null. It has no clock: its owner kills it.
"""

from __future__ import annotations

import ctypes
import logging
import os
import resource
import signal
import sys
from typing import Any, BinaryIO

from gspo_ray.reward import frames
from gspo_ray.types import Outcome

_MIB = 2**20
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main(argv: list[str]) -> None:
    limit_mib = int(argv[1])
    _confine(limit_mib)
    requests, replies = _take_pipes()
    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that its own timeouts are off
    from gspo_ray.reward.verify import gold_fault, judge  # here, after the limits: this is the heavy import

    judge(r"\boxed{x + \sqrt{2}}", r"\frac{\pi}{2}")  # builds the grammar tables, so that no item pays for them
    _send(replies, {"ready": True})
    base_mib = peak_mib = _vm_peak_mib()
    headroom_mib = limit_mib - base_mib
    while (request := frames.read(requests)) is not None:
        if "completion" in request:
            outcome, extracted, reason = judge(request["completion"], request["gold"], request["style"])
        else:
            outcome, extracted, reason = None, None, gold_fault(request["gold"])
        before_mib, peak_mib = peak_mib, _vm_peak_mib()
        # sympy and math-verify swallow MemoryError and then call the answer wrong, so "wrong" is not believed of an
        # item that came near the limit. A quarter: big integers double, the allocation that failed left no trace.
        hungry = peak_mib - before_mib > headroom_mib / 4
        if hungry and outcome is Outcome.WRONG:
            outcome, reason = Outcome.ERROR, f"took {peak_mib - before_mib:.0f} MiB of memory near the limit"
        # Caches may hold on to what a hungry item made; the next items deserve an empty process.
        retire = hungry or peak_mib - base_mib > headroom_mib / 2 or reason.startswith("MemoryError")
        _send(replies, {"outcome": outcome, "extracted": extracted, "reason": reason, "retire": retire})


def _send(stream: BinaryIO, message: dict[str, Any]) -> None:
    stream.write(frames.pack(message))
    stream.flush()


def _confine(limit_mib: int) -> None:
    if sys.platform == "linux":  # die with the owner, even when that one is killed
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the owner's to handle
    resource.setrlimit(resource.RLIMIT_AS, (limit_mib * _MIB, limit_mib * _MIB))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _take_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Move the two pipes away from fd 0 and 1, so that no library's print or input can reach them."""
    requests = os.fdopen(os.dup(0), "rb")
    replies = os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)
    return requests, replies


def _vm_peak_mib() -> float:
    """Largest address space so far, in MiB; 0 where the system does not tell."""
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmPeak:"))
    except FileNotFoundError:
        return 0.0


if __name__ == "__main__":
    main(sys.argv)
