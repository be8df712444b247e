"""Runs the command line as a user does, in a process of its own, and finds everything it left behind."""

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[2]


def wait_for(condition: Callable[[], object], timeout_s: float, process: subprocess.Popen) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert process.poll() is None, "the run ended by itself"
        assert time.monotonic() < deadline, "nothing happened in time"
        time.sleep(0.2)


class Cli:
    """`gspo-ray` with a mark in its environment, which every process it starts inherits."""

    def __init__(self, log: Path, env: dict[str, str] | None = None) -> None:
        """`env`: of the process, else this one's without Ray's variables."""
        self.mark = uuid.uuid4().hex
        self.log = log
        self._env = env or {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}

    def start(self, *words: str) -> subprocess.Popen:
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "gspo_ray.cli", *words],
                env=self._env | {"GSPO_RAY_TEST_MARK": self.mark},
                cwd=ROOT,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a process group of its own, as a shell gives it
            )

    def run(self, *words: str, timeout_s: float = 900) -> int:
        process = self.start(*words)
        try:
            return process.wait(timeout_s)
        finally:
            process.kill()

    def left_behind(self, patience_s: float = 30) -> list[str]:
        """Command lines of marked processes that still live after a moment's patience."""
        deadline = time.monotonic() + patience_s
        while (alive := self._marked()) and time.monotonic() < deadline:
            time.sleep(0.5)
        return list(alive.values())

    def find(self, text: str) -> list[int]:
        """Process ids of this run whose command line has `text`."""
        return [pid for pid, line in self._marked().items() if text in line]

    def _marked(self) -> dict[int, str]:
        found = {}
        for process in psutil.process_iter():
            try:
                marked = process.environ().get("GSPO_RAY_TEST_MARK") == self.mark
                if marked and process.status() != psutil.STATUS_ZOMBIE:
                    found[process.pid] = " ".join(process.cmdline())
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue  # ended meanwhile, or another user's
        return found


@pytest.fixture
def fresh_cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path / "output.log")


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Cli:
    return Cli(tmp_path_factory.mktemp("cli") / "output.log")
