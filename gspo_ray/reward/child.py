"""One verifier process seen from its owner: start it, talk to it under a deadline, kill it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Any

import gspo_ray
from gspo_ray.reward import frames

_CHUNK = 2**20  # bytes handed to one write or read call


class Child:
    """Owns one `gspo_ray.reward.worker`. Starting returns at once; `wait_ready` waits until it can judge.

    Both ways of talking raise TimeoutError when the deadline passes and EOFError when the process is dead. After
    either the conversation is out of step: `kill` it.
    """

    def __init__(self, memory_limit_mib: int) -> None:
        package_root = str(Path(gspo_ray.__file__).resolve().parents[1])
        paths = [package_root, *filter(None, [os.environ.get("PYTHONPATH")])]
        # A file takes any amount of complaints without blocking; "a": truncating it moves the child's writes too.
        self._stderr = tempfile.TemporaryFile(mode="a+b")  # noqa: SIM115 - lives as long as the child
        self._process = subprocess.Popen(
            # -P keeps the current folder, and a stray types.py in it, off the child's path.
            [sys.executable, "-P", "-m", "gspo_ray.reward.worker", str(memory_limit_mib)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            bufsize=0,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests: IO[bytes] = self._process.stdin
        self._replies: IO[bytes] = self._process.stdout
        for pipe in (self._requests, self._replies):
            os.set_blocking(pipe.fileno(), False)
        self._is_ready = False
        self._obituary: str | None = None

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def wait_ready(self, timeout_s: float) -> None:
        if not self._is_ready:
            self._receive(time.monotonic() + timeout_s)
            self._is_ready = True

    def ask(self, message: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """Send one message and wait for its reply, `timeout_s` seconds for both."""
        deadline = time.monotonic() + timeout_s
        self._stderr.truncate(0)
        rest = memoryview(frames.pack(message))
        while rest:
            _wait(self._requests, select.POLLOUT, deadline)
            try:
                rest = rest[os.write(self._requests.fileno(), rest[:_CHUNK]) :]
            except BrokenPipeError as error:
                raise self._gone() from error
        return self._receive(deadline)

    def _receive(self, deadline: float) -> dict[str, Any]:
        data = bytearray()
        size = frames.HEADER.size
        while len(data) < size:
            _wait(self._replies, select.POLLIN, deadline)
            chunk = os.read(self._replies.fileno(), min(size - len(data), _CHUNK))
            if not chunk:
                raise self._gone()
            data += chunk
            if len(data) == size == frames.HEADER.size:
                size += frames.HEADER.unpack(data)[0]
        reply: dict[str, Any] = json.loads(data[frames.HEADER.size :])
        return reply

    def _gone(self) -> EOFError:
        """The pipes close a moment before the exit status is there."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=2)
        return EOFError("the verifier process is dead")

    def kill(self) -> str:
        """SIGKILL (nothing gentler reaches a long C call), reap, free the pipes. May be called again.

        Returns how it had ended by itself, if it had, and the last 2000 bytes of its standard error.
        """
        if self._obituary is not None:
            return self._obituary
        code = self._process.poll()
        self._process.kill()
        self._process.wait()
        self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, self._stderr.tell() - 2000))
        words = self._stderr.read().decode(errors="replace").strip()
        for stream in (self._requests, self._replies, self._stderr):
            stream.close()
        ended = "was running" if code is None else f"ended with status {code} (negative: a signal)"
        self._obituary = f"{ended}; standard error: {words or '(empty)'}"
        return self._obituary


def _wait(stream: IO[bytes], event: int, deadline: float) -> None:
    """Until `stream` can move or its other end is gone. poll, because select refuses fds above 1023."""
    poller = select.poll()
    poller.register(stream, event)
    remaining_s = deadline - time.monotonic()
    if remaining_s <= 0 or not poller.poll(remaining_s * 1000):
        raise TimeoutError
