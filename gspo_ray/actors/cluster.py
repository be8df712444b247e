"""Joining a Ray cluster, or starting one on this machine for the length of a run."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import ray
from ray.exceptions import RayError

from gspo_ray.errors import ConfigError, ResourceError

# Set in one process, these do not reach others on the cluster by themselves. Folders belong to one machine.
_FORWARDED = ("HF_", "MLFLOW_", "VLLM_", "NCCL_", "GSPO_RAY_", "TOKENIZERS_PARALLELISM")
CONNECT_TIMEOUT_S = 10
_FOLDERS = ("_CACHE", "_HOME", "_ROOT", "_PATH")


def forwarded_environment() -> dict[str, str]:
    """Variables that go along from driver to actors, and from the one who submits to the driver."""
    return {k: v for k, v in os.environ.items() if k.startswith(_FORWARDED) and not k.endswith(_FOLDERS)}


def refuse_uploaded_folder(storage_path: str) -> None:
    """Raises ConfigError for a folder inside the working directory of a job, which Ray deletes with the job."""
    folder = Path(storage_path).expanduser().resolve()
    if "working_dir_files" in folder.parts:  # where Ray unpacks it
        raise ConfigError(
            f"storage_path {storage_path!r} lies in this job's uploaded folder, which Ray deletes after it. "
            "Name a folder of the head node: --storage_path /data/runs."
        )


@contextmanager
def joined_cluster(address: str | None, *, say: Callable[[str], None]) -> Iterator[bool]:
    """`address`, else RAY_ADDRESS (set under `ray job submit`), else a new local cluster that ends with the run.

    Yields whether the cluster may still grow. Raises ResourceError when nothing answers at the address.
    """
    address = address or os.environ.get("RAY_ADDRESS")
    say(f"Joining the Ray cluster at {address} ..." if address else "Starting a local Ray cluster ...")
    _require_listener(address)
    # A variable may come with the job and from here as well; Ray refuses that otherwise, even for equal values.
    os.environ.setdefault("RAY_OVERRIDE_JOB_RUNTIME_ENV", "1")
    try:
        ray.init(
            address=address or "local",
            runtime_env={"env_vars": forwarded_environment()},
            log_to_driver=False,
            include_dashboard=None if address else False,
            # A local cluster's own warnings (its access token) concern nobody.
            logging_level=logging.WARNING if address else logging.ERROR,
        )
    except (ConnectionError, RuntimeError, RayError) as error:  # not there, another version, wrong token
        where = f"the Ray cluster at {address} (cluster.address or RAY_ADDRESS)" if address else "a local Ray cluster"
        raise ResourceError(f"cannot use {where}: {error}") from error
    try:
        yield address is not None
    finally:
        ray.shutdown()


def _require_listener(address: str | None) -> None:
    """Ray itself tries for many minutes before it says that nobody is there."""
    host, _, port = (address or "").rpartition(":")
    if not (host and port.isdigit()) or "/" in host:  # auto, local, ray://
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_TIMEOUT_S).close()
    except OSError as error:
        raise ResourceError(
            f"nothing answers at the Ray cluster {address} (cluster.address or RAY_ADDRESS): {error}. Is it up, and "
            "is that the address that `ray start --head` printed?"
        ) from error
