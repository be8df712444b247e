"""`gspo-ray submit` against a job server that is made up: what it is asked, and what its answers become."""

import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import AuthenticationError
from ray.job_submission import JobStatus

from gspo_ray import submit as submit_module
from gspo_ray.actors.cluster import forwarded_environment
from gspo_ray.cli.main import main

CONFIG = "cluster: {device: cpu}\ndata: {source: jsonl, path: data/train.jsonl}\n"
ADDRESS = "http://head:8265"


class Server:
    """A `JobSubmissionClient` whose job ends as told."""

    status, exit_code, message = JobStatus.SUCCEEDED, 0, ""
    error: Exception | None = None
    asked: tuple[str, dict[str, Any]]
    uploaded: set[str]

    def __init__(self, address: str | None) -> None:
        if self.error is not None:
            raise self.error

    def get_address(self) -> str:
        return ADDRESS

    def submit_job(self, *, entrypoint: str, runtime_env: dict[str, Any]) -> str:
        type(self).asked = entrypoint, runtime_env
        folder = Path(runtime_env["working_dir"])
        type(self).uploaded = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
        return "job-1"

    async def tail_job_logs(self, job: str):
        yield f"log of {job}\n"

    def get_job_info(self, job: str) -> Any:
        return SimpleNamespace(status=self.status, driver_exit_code=self.exit_code, message=self.message)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> type[Server]:
    """And a project in the current folder."""
    for name, text in (("my.yaml", CONFIG), ("data/train.jsonl", "{}\n"), ("data/other.jsonl", "{}\n")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    for name in ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS", "HF_HOME"):
        monkeypatch.setenv(name, "")  # so that what the command sets is undone as well
        monkeypatch.delenv(name)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    kind = type("OneServer", (Server,), {})
    monkeypatch.setattr(submit_module, "JobSubmissionClient", kind)
    return kind


def run(*words: str) -> int:
    return main(["submit", "--config", "my.yaml", "--address", ADDRESS, *words])


def test_the_job_is_the_same_command_with_the_project_and_the_environment(server, monkeypatch, capsys):
    for name in forwarded_environment():  # of this machine, or of another test in this process
        monkeypatch.delenv(name)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://mlflow:5000")
    monkeypatch.setenv("HF_HOME", "/home/me/.cache")  # a folder of this machine
    flags = ("--storage_path", "/data/runs", "--model.lora.target_modules", "[q_proj, v_proj]")
    assert run("--resume", *flags, "--pip", "sympy==1.14") == 0
    entrypoint, environment = server.asked
    assert shlex.split(entrypoint) == ["gspo-ray", "train", "--config", "my.yaml", "--resume", "latest", *flags]
    assert server.uploaded == {"my.yaml", "data/train.jsonl"}
    assert environment["pip"] == ["sympy==1.14"]
    assert environment["env_vars"]["MLFLOW_TRACKING_URI"] == "http://mlflow:5000"
    assert environment["env_vars"]["RAY_JOB_STOP_WAIT_TIME_S"] == "60"
    assert "HF_HOME" not in environment["env_vars"]
    output = capsys.readouterr().out
    for line in (
        "my.yaml, data/train.jsonl and 0 other",
        "Left out: data/",
        "that goes along: MLFLOW_TRACKING_URI",
        "Job job-1",
        "log of job-1",
    ):
        assert line in output
    assert "http://mlflow" not in output  # names, not values: some are secrets


@pytest.mark.parametrize(
    ("status", "driver", "code"),
    [
        (JobStatus.SUCCEEDED, 0, 0),
        (JobStatus.FAILED, 2, 2),
        (JobStatus.FAILED, 137, 137),
        (JobStatus.FAILED, -9, 128 + 9),
        (JobStatus.FAILED, None, 1),
        (JobStatus.STOPPED, None, 128 + 15),
    ],
)
def test_the_exit_code_is_the_jobs(server, status, driver, code):
    server.status, server.exit_code = status, driver
    assert run("--storage_path", "/data/runs") == code


def test_without_waiting_it_says_how_to_follow_and_to_stop(server, capsys):
    assert run("--storage_path", "/data/runs", "--no-wait") == 0
    output = capsys.readouterr().out
    assert f"ray job logs --follow --address {ADDRESS} job-1" in output
    assert f"ray job stop --address {ADDRESS} job-1" in output
    assert "log of" not in output


def test_ctrl_c_leaves_the_job_alone_and_says_so(server, capsys, monkeypatch):
    def interrupted(self, job):
        raise KeyboardInterrupt

    monkeypatch.setattr(server, "get_job_info", interrupted)
    assert run("--storage_path", "/data/runs") == 130
    assert "The job goes on. Follow it: ray job logs" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "storage_path 'runs' is relative"),
        (("--storage_path", "/d", "--data.path", "data/none.jsonl"), "data.path data/none.jsonl is no file in"),
        (("--storage_path", "/d", "--data.path", "../elsewhere.jsonl"), "is no file in"),
        (("--storage_path", "/d", "--stps", "3"), "unknown flag --stps"),
    ],
)
def test_what_would_fail_or_be_lost_there_is_refused_here(server, capsys, words, says):
    Path("../elsewhere.jsonl").write_text("{}\n")
    assert run(*words) == 2
    assert says in capsys.readouterr().err
    assert not hasattr(server, "asked")


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (AuthenticationError("Authentication required"), "does not take the token"),
        (ConnectionError("Failed to connect"), "did not take the request: Failed to connect"),
    ],
)
def test_a_cluster_that_says_no_is_named_with_the_way_out(server, capsys, error, says):
    server.error = error
    assert run("--storage_path", "/d") == 2
    message = capsys.readouterr().err
    assert f"the cluster at {ADDRESS} {says}" in message


def test_no_address_is_asked_for(server, capsys):
    assert main(["submit", "--config", "my.yaml", "--storage_path", "/d"]) == 2
    assert "--address http://HEAD:8265" in capsys.readouterr().err
