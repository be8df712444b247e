"""Jobs on a head as a person starts it, with its token: submitted, followed, stopped, resumed, refused.

The tests share one head and one run and follow each other.
"""

import json
import re
import signal
import subprocess

import pytest

from tests.e2e.conftest import ROOT, Cli, wait_for
from tests.e2e.ray_nodes import BIN, environment, free_ports, ray_node, short_folder
from tests.e2e.test_train import mlflow_run

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

SHORT = ("--data.problems_per_step", "4", "--rollout.max_tokens", "16", "--checkpoint.every", "1")


@pytest.fixture(scope="module")
def head():
    """(address of its job server, folder)"""
    with short_folder() as folder:
        port, dashboard = free_ports(2)
        with ray_node(folder / "h", head=(port, dashboard), flags=("--num-cpus=2",), env=node_environment(folder)):
            yield f"http://127.0.0.1:{dashboard}", folder


def node_environment(folder, **more):
    """The demo model is in the cache of this machine's user already."""
    from gspo_ray.models import cache_root

    return environment(folder / "h", GSPO_RAY_CACHE=str(cache_root()), **more)


def submit(folder, **more):
    """`gspo-ray submit` as another person with an own home folder calls it."""
    return Cli(folder / "output.log", environment(folder / "laptop", **more))


def flags(head):
    address, folder = head
    return ("--config", "configs/demo.yaml", "--address", address, "--storage_path", str(folder / "runs"), *SHORT)


def ray_job(head, *words):
    address, folder = head
    command = [BIN / "ray", "job", words[0], "--address", address, *words[1:]]
    done = subprocess.run(command, env=environment(folder / "laptop"), cwd=ROOT, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("token", "says"),
    [({"RAY_AUTH_TOKEN": "another-token"}, "does not take the token"), ({"RAY_AUTH_TOKEN": ""}, "token")],
    ids=["wrong", "missing"],
)
def test_without_the_clusters_token_nothing_is_taken(head, tmp_path, token, says):
    cli = Cli(tmp_path / "output.log", environment(head[1] / "laptop", **token))
    assert cli.run("submit", *flags(head)) == 2
    output = cli.log.read_text()
    assert says in output
    assert "RAY_AUTH_TOKEN" in output
    assert "Traceback" not in output


@pytest.fixture(scope="module")
def stopped(head):
    """Followed by `gspo-ray submit`, stopped by `ray job stop` when step 1 is saved. Gives (exit code, output)."""
    _, folder = head
    cli = submit(folder)
    process = cli.start("submit", *flags(head), "--steps", "50")
    try:
        wait_for(lambda: list((folder / "runs").glob("demo-*/checkpoints/step-000001/COMPLETE")), 600, process)
        (job,) = re.findall(r"^Job (\S+) on", cli.log.read_text(), re.MULTILINE)
        assert ray_job(head, "stop", job)[0] == 0
        code = process.wait(120)
    finally:
        process.kill()
    assert cli.left_behind() == []
    return code, cli.log.read_text()


def test_the_log_is_followed_and_a_stopped_job_is_marked_as_killed(head, stopped):
    code, output = stopped
    assert code == 128 + signal.SIGTERM
    assert "Uploading configs/demo.yaml and" in output
    assert re.search(r"Left out: .*\.git/", output)
    assert re.search(r"^ +1/50 ", output, re.MULTILINE)
    assert "SIGTERM: ending the run in order" in output
    (run_dir,) = (head[1] / "runs").glob("demo-*")
    assert mlflow_run(run_dir)[1].info.status == "KILLED"


def test_a_resumed_job_goes_on_and_ends_with_the_runs_exit_code(head, stopped):
    _, folder = head
    (run_dir,) = (folder / "runs").glob("demo-*")
    before = len((run_dir / "metrics.jsonl").read_text().splitlines())
    cli = submit(folder)
    code = cli.run("submit", *flags(head), "--resume", "--steps", str(before + 1))
    assert code == 0, cli.log.read_text()[-3000:]
    assert cli.left_behind() == []
    steps = [json.loads(line)["step"] for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    assert steps == list(range(1, before + 2))
    assert mlflow_run(run_dir)[1].info.status == "FINISHED"


def test_a_job_that_is_refused_there_ends_with_2_here(head):
    cli = submit(head[1])
    code = cli.run("submit", *flags(head), "--model.path", "/nowhere/base")
    assert code == 2
    assert "error: model.path: no folder /nowhere/base" in cli.log.read_text()


def test_rays_own_command_starts_the_same_run_and_results_that_would_be_lost_are_refused(head):
    words = ("gspo-ray", "train", "--config", "configs/demo.yaml")
    code, output = ray_job(head, "submit", "--working-dir", ".", "--", *words)
    assert code == 1  # all that it knows of a job's code
    assert "storage_path 'runs' lies in this job's uploaded folder" in output
    assert "failed with exit code 2" in output
