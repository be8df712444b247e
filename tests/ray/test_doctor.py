"""The doctor on real nodes: what it finds there, what it measures between them, and what a broken node costs."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from zipfile import ZipFile

import pytest
import ray

from gspo_ray.actors import node_checks
from gspo_ray.actors.all_reduce import all_reduce_speed
from gspo_ray.config import RunConfig
from gspo_ray.doctor.checks import Place, checks
from gspo_ray.doctor.finding import Finding, Level
from gspo_ray.doctor.report import CLUSTER

pytestmark = [pytest.mark.ray]

ROOT = Path(__file__).parents[2]
MB = 1e6


@pytest.fixture
def config(tmp_path):
    return RunConfig.model_validate({"storage_path": str(tmp_path / "runs"), "cluster": {"device": "cpu"}})


def ignore(*_):
    pass


def two_doctors(config):
    return {name: node_checks.RemoteNodeDoctor.options(num_cpus=0).remote(config, Place(), quick=True) for name in "ab"}


@pytest.mark.usefixtures("cluster")
def test_what_is_measured_between_nodes_is_measured(config):
    doctors = two_doctors(config)
    speeds = node_checks._travel(doctors)
    assert list(speeds) == [("a", "b"), ("b", "a")]
    assert all(isinstance(speed, float) and speed > MB for speed in speeds.values())
    for skew in node_checks._clocks(doctors).values():  # one machine, one clock
        assert abs(skew.seconds) <= skew.bound + 1e-3
        assert skew.bound < 1
    assert node_checks._travel({"a": doctors["a"]}) == {}


@pytest.mark.usefixtures("cluster")
def test_a_way_that_breaks_is_told_and_the_others_are_measured(config):
    doctors = two_doctors(config)
    ray.kill(doctors["b"])
    speeds = node_checks._travel(doctors)
    assert all("ActorDiedError" in str(speed) for speed in speeds.values())


@pytest.mark.usefixtures("cluster")
def test_ranks_meet_and_share(config):
    assert all_reduce_speed(2, device="cpu") > MB


@pytest.mark.usefixtures("cluster")
def test_a_node_that_dies_in_the_middle_keeps_its_findings_and_gets_one_more(config, monkeypatch):
    class Dying(node_checks.NodeDoctor):
        def examine(self):
            yield Finding("first", Level.PASS, "")
            time.sleep(2)  # so that it has left
            os._exit(1)

    monkeypatch.setattr(node_checks, "RemoteNodeDoctor", ray.remote(Dying))
    report = node_checks.examine_cluster(config, quick=True, progress=ignore)
    assert [finding.check for finding in report[CLUSTER]][:3] == ["same versions", "clocks", "object store"]
    (node,) = (findings for name, findings in report.items() if name != CLUSTER)
    assert [(finding.check, finding.level) for finding in node] == [("first", Level.PASS), ("node", Level.FAIL)]
    assert "lost with 1 of " in node[-1].found


@pytest.mark.usefixtures("cluster")
def test_a_node_without_this_package_is_a_finding(config, monkeypatch):
    class Foreign(node_checks.NodeDoctor):
        def versions(self):
            raise ModuleNotFoundError("No module named 'gspo_ray'")

    monkeypatch.setattr(node_checks, "RemoteNodeDoctor", ray.remote(Foreign))
    report = node_checks.examine_cluster(config, quick=True, progress=ignore)
    (finding,) = (finding for name, findings in report.items() if name != CLUSTER for finding in findings)
    assert finding.level is Level.FAIL
    assert "No module named 'gspo_ray'" in finding.found


@pytest.mark.timeout(900)
def test_the_command_finds_this_machine_fit_engine_and_all(config, tmp_path):
    """A cluster of its own, tiny model and real engine; about a minute."""
    words = ["doctor", "--cluster.device", "cpu", "--model.dtype", "float32", "--storage_path", config.storage_path]
    bundle = tmp_path / "report.zip"
    env = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")} | {"HF_TOKEN": "hf_planted0123456789"}
    done = subprocess.run(
        [sys.executable, "-m", "gspo_ray.cli", *words, "--json", "--bundle", str(bundle)],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=800,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    tree = json.loads(done.stdout)
    assert tree["failed"] is False
    assert "Traceback" not in done.stderr
    (node,) = (found for name, found in tree["nodes"].items() if name != CLUSTER)
    assert [finding["check"] for finding in node] == [check.name for check in checks(config, Place(), quick=False)]
    assert node[-1]["check"] == "engine"
    assert node[-1]["level"] == "pass"
    assert not (tmp_path / "runs").exists()  # it looks and leaves nothing
    with ZipFile(bundle) as archive:
        kept = json.loads(archive.read("findings.json"))  # the same, less what is nobody's business
        assert kept["summary"] == tree["summary"]
        assert {name: len(found) for name, found in kept["nodes"].items()} == {
            name: len(found) for name, found in tree["nodes"].items()
        }
        texts = [archive.read(name).decode() for name in archive.namelist()]
    assert not any("hf_planted" in text for text in texts)
