"""`gspo-ray train` as a job of a cluster elsewhere: what goes along, its log as it comes, and its exit code."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from aiohttp import ClientError
from ray.exceptions import AuthenticationError
from ray.job_submission import JobStatus, JobSubmissionClient

from gspo_ray.actors.cluster import forwarded_environment
from gspo_ray.config import RunConfig
from gspo_ray.errors import ConfigError, ResourceError
from gspo_ray.job_files import JobFiles, collect

STOP_WAIT_S = 60  # Ray kills a stopped job after 3 s otherwise, before MLflow and checkpoints are in order


def submit(
    config: RunConfig, path: Path, words: Sequence[str], *, address: str | None, pip: Sequence[str], wait: bool
) -> int:
    """The job's exit code, or 0 at once without `wait`. `words` follow `gspo-ray train --config PATH`.

    Raises ConfigError and ResourceError for what the person can mend.
    """
    path, here = path.resolve(), Path.cwd().resolve()
    root = here if path.is_relative_to(here) else path.parent
    files = _files(config, root, path.relative_to(root))
    entrypoint = shlex.join(["gspo-ray", "train", "--config", str(path.relative_to(root)), *words])
    with _reaching(address), tempfile.TemporaryDirectory() as folder:
        client = JobSubmissionClient(address)
        files.copy_to(Path(folder))
        environment = forwarded_environment()
        _describe(files, environment)
        job = client.submit_job(
            entrypoint=entrypoint,
            runtime_env={
                "working_dir": folder,
                "env_vars": environment | {"RAY_JOB_STOP_WAIT_TIME_S": str(STOP_WAIT_S)},
                **({"pip": list(pip)} if pip else {}),
            },
        )
    at = f"--address {client.get_address()} {job}"
    print(f"Job {job} on {client.get_address()}: {entrypoint}")
    how = f"Follow it: ray job logs --follow {at}   Stop it: ray job stop {at}"
    if not wait:
        print(how)
        return 0
    try:
        with _reaching(address):
            asyncio.run(_print_log(client, job))
            return _exit_code(client, job)
    except KeyboardInterrupt:
        print(f"\nThe job goes on. {how}")
        return 128 + signal.SIGINT
    except ResourceError as error:
        raise ResourceError(f"{error} The job may go on. {how}") from error


def _files(config: RunConfig, root: Path, config_file: Path) -> JobFiles:
    """Raises ConfigError for paths that would mean something else on the cluster, or be lost there."""
    if not config.storage_path.startswith(("/", "~")) and "://" not in config.storage_path:
        raise ConfigError(
            f"storage_path {config.storage_path!r} is relative: in a job it would lie in the uploaded folder, which "
            "Ray deletes. Name a folder of the head node, such as --storage_path /data/runs."
        )
    named = [config_file]
    for key, value in (("data.path", config.data.path), ("eval.path", config.eval.path)):
        if value is None or value.startswith(("/", "~")):
            continue  # on the cluster's own disk
        file = (root / value).resolve()
        if not file.is_file() or not file.is_relative_to(root):
            raise ConfigError(f"{key} {value} is no file in {root}. Name a file of the cluster by its absolute path.")
        named.append(Path(os.path.normpath(value)))
    return collect(root, named=named)


def _describe(files: JobFiles, environment: dict[str, str]) -> None:
    named = ", ".join(map(str, files.named))
    print(f"Uploading {named} and {len(files.others)} other files of {files.root}, {files.num_bytes / 2**20:.1f} MiB")
    if files.left_out:
        print(f"Left out: {', '.join(files.left_out)}")
    if environment:  # whoever may list the cluster's jobs can read them
        print(f"Environment that goes along: {', '.join(sorted(environment))}")


@contextmanager
def _reaching(address: str | None) -> Iterator[None]:
    """Ray's errors in words. An address given here wins over the environment, which Ray would prefer."""
    if address:
        os.environ["RAY_API_SERVER_ADDRESS"] = address
    where = os.environ.get("RAY_API_SERVER_ADDRESS") or os.environ.get("RAY_ADDRESS")
    if not where:
        raise ConfigError("which cluster? Give --address http://HEAD:8265, or set RAY_API_SERVER_ADDRESS.")
    try:
        yield
    except AuthenticationError as error:
        raise ResourceError(
            f"the cluster at {where} does not take the token: {error}. Set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN, or "
            "put the cluster's token into ~/.ray/auth_token (on its head: ray get-auth-token)."
        ) from error
    except (ConnectionError, ClientError, RuntimeError) as error:
        raise ResourceError(f"the cluster at {where} did not take the request: {error}.") from error


async def _print_log(client: JobSubmissionClient, job: str) -> None:
    async for lines in client.tail_job_logs(job):
        sys.stdout.write(lines)
        sys.stdout.flush()


def _exit_code(client: JobSubmissionClient, job: str) -> int:
    """128 + n for a driver that signal n ended. Of a stopped job Ray keeps no code: it got SIGTERM."""
    while not (info := client.get_job_info(job)).status.is_terminal():
        time.sleep(0.5)
    if info.status == JobStatus.STOPPED:
        code = 128 + signal.SIGTERM
    elif info.driver_exit_code is None:  # it never started, or its node is gone
        print(info.message)
        code = 0 if info.status == JobStatus.SUCCEEDED else 1
    else:
        code = info.driver_exit_code if info.driver_exit_code >= 0 else 128 - info.driver_exit_code
    print(f"Job {job} {info.status.value.lower()}, exit code {code}.")
    return code
