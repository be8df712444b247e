"""Every way out of a run, with the real engine: the exit code, the words, and no process left behind."""

import os
import signal

import psutil
import pytest

from tests.e2e.conftest import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

DEMO = ("train", "--config", "configs/demo.yaml")


def test_a_cluster_that_is_too_small_is_refused_at_once(fresh_cli, tmp_path):
    flags = ("--cluster.cpus_per_engine", "4096", "--storage_path", str(tmp_path / "runs"))
    assert fresh_cli.run(*DEMO, *flags, timeout_s=300) == 2
    *_, last = fresh_cli.log.read_text().splitlines()
    assert last.startswith("error: the run asks for")
    assert "asks for 4097 CPU, 0 GPU" in last
    assert "but the cluster has" in last
    assert not (tmp_path / "runs").exists()
    assert fresh_cli.left_behind() == []


def test_ctrl_c_while_the_engine_starts_leaves_nothing(fresh_cli, tmp_path):
    """The terminal sends SIGINT to the whole process group, children included."""
    process = fresh_cli.start(*DEMO, "--storage_path", str(tmp_path))
    wait_for(lambda: fresh_cli.find("EngineCore"), 400, process)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(200) == 128 + signal.SIGINT
    assert fresh_cli.left_behind() == []
    assert "Stopped by SIGINT. No checkpoint was written yet." in fresh_cli.log.read_text()


def test_an_engine_that_dies_in_a_step_ends_the_run_with_a_reason(fresh_cli, tmp_path):
    process = fresh_cli.start(*DEMO, "--rollout.max_tokens", "64", "--storage_path", str(tmp_path))
    wait_for(lambda: list(tmp_path.glob("demo-*/metrics.jsonl")), 500, process)
    for engine in fresh_cli.find("EngineCore"):
        psutil.Process(engine).kill()
    assert process.wait(200) == 1
    output = fresh_cli.log.read_text()
    assert "the run failed: engine engine-0 failed" in output
    assert "Traceback" not in output
    assert fresh_cli.left_behind() == []


def test_a_driver_that_is_killed_hard_takes_everything_along(fresh_cli, tmp_path):
    process = fresh_cli.start(*DEMO, "--storage_path", str(tmp_path))
    wait_for(lambda: fresh_cli.find("EngineCore"), 400, process)
    process.kill()
    process.wait(10)
    assert fresh_cli.left_behind(patience_s=40) == []
