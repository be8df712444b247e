"""Ray nodes on this machine as a person starts them, each with a home folder, a disk and ports of its own."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from ray.util import get_node_ip_address

TOKEN = "a-token-of-these-tests-alone-0123456789"
BIN = Path(sys.executable).parent


def store_address(port: int) -> str:
    """Of a head's control store. Ray takes loopback for this machine's address and listens there."""
    return f"{get_node_ip_address()}:{port}"


def free_ports(number: int) -> list[int]:
    sockets = [socket.socket() for _ in range(number)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


@contextmanager
def short_folder() -> Iterator[Path]:
    """Ray's socket paths are at most 107 characters: pytest's folders are too deep."""
    folder = Path(tempfile.mkdtemp(prefix="gr-", dir="/tmp"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def environment(home: Path, **more: str) -> dict[str, str]:
    """Of a process whose user has `home`: nothing of Ray's or ours from outside, the token, no other cache."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "GSPO_RAY_", "HF_", "MLFLOW_"))}
    return kept | {
        "HOME": str(home),
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": TOKEN,
        **more,
    }


@contextmanager
def ray_node(home: Path, *, join: str | None = None, head: tuple[int, int] | None = None, flags=(), env=None):
    """`head`: ports of the control store and of the dashboard; `join`: the address of a head. Gives the process."""
    agent, client, metrics = free_ports(3)
    words = ["--temp-dir", str(home / "r"), "--min-worker-port", "0"]
    words += ["--max-worker-port", "0", "--dashboard-agent-listen-port", str(agent), "--metrics-export-port"]
    words += [str(metrics), "--object-store-memory", "200000000", "--disable-usage-stats", "--block", *flags]
    if head is not None:
        words += ["--head", "--port", str(head[0]), "--ray-client-server-port", str(client)]
        words += ["--dashboard-host", "127.0.0.1", "--dashboard-port", str(head[1]), "--include-dashboard", "true"]
    else:
        words += ["--address", str(join)]
    home.mkdir(exist_ok=True)
    with (home / "ray.log").open("ab") as log:
        process = subprocess.Popen(
            [BIN / "ray", "start", *words], env=env or environment(home), stdout=log, stderr=log, cwd=home
        )
    try:
        wait_until(lambda: "This command will now block" in (home / "ray.log").read_text(), process, home / "ray.log")
        yield process
    finally:
        end(process)


def wait_until(condition, process: subprocess.Popen, log: Path, timeout_s: float = 240) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert process.poll() is None, log.read_text()[-3000:]
        assert time.monotonic() < deadline, log.read_text()[-3000:]
        time.sleep(0.2)


def end(process: subprocess.Popen) -> None:
    """`ray start --block` ends its own children; whatever outlives that is ended here, and nothing else."""
    family = [process.pid, *(child.pid for child in psutil.Process(process.pid).children(recursive=True))]
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(10)
    for pid in family[1:]:
        if psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
            psutil.Process(pid).kill()
