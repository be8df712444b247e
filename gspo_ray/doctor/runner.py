"""Checks in a process of their own: one that hangs, dies or takes the process along costs its own finding alone."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import gspo_ray
from gspo_ray.config import RunConfig
from gspo_ray.doctor.checks import Check, Place, checks
from gspo_ray.doctor.finding import Finding, Level

START_S = 60.0  # added to the first check of a process


def examine(config: RunConfig, place: Place, *, quick: bool, work: str = "gspo_ray.doctor.child") -> Iterator[Finding]:
    """One finding a check, in their order, each as soon as it is there."""
    todo = checks(config, place, quick=quick)
    while todo:
        request = {"config": config.model_dump(mode="json"), "place": asdict(place), "quick": quick}
        with _Child(work, request | {"names": [check.name for check in todo]}) as child:
            patience = START_S
            while todo and child.is_alive:
                check = todo.pop(0)
                yield child.next_finding(check, patience)
                patience = 0.0


class _Child:
    """Runs `work` in a session of its own, which ends as a whole: engines have children too."""

    def __init__(self, work: str, request: dict[str, Any]) -> None:
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the child
        self._read, write = os.pipe()
        paths = [str(Path(gspo_ray.__file__).resolve().parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
        self._process = subprocess.Popen(
            # -P keeps the current folder, and a stray types.py in it, off the child's path.
            [sys.executable, "-P", "-m", work, str(write)],
            stdin=subprocess.PIPE,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            pass_fds=(write,),
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )
        os.close(write)
        self._rest = b""
        self.is_alive = True
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it died at once: the first check says so
            self._process.stdin.write(json.dumps(request).encode())
            self._process.stdin.close()

    def next_finding(self, check: Check, patience_s: float) -> Finding:
        deadline = time.monotonic() + check.limit_s + patience_s
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self._read], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                self._end()
                fix = "The node is overloaded, or what this check looks at hangs."
                return Finding(check.name, Level.FAIL, f"no answer within {check.limit_s:g} s", fix)
            data = os.read(self._read, 2**16)
            if not data:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(5)  # so that it is not our signal that is reported
                self._end()
                return Finding(check.name, Level.FAIL, f"the process of this check {self._obituary()}", _DEATH)
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return Finding.from_dict(json.loads(line))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()
        os.close(self._read)
        self._output.close()

    def _end(self) -> None:
        self.is_alive = False
        with contextlib.suppress(ProcessLookupError):  # all of it has ended
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _obituary(self) -> str:
        code = self._process.returncode
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        self._output.seek(0)
        lines = self._output.read().decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f"{how}: {last[:300]}" if last else how


_DEATH = "SIGKILL is mostly the kernel when memory runs out (dmesg); SIGSEGV is a library that does not fit this node."
