from __future__ import annotations

import json
import math
import socket
import threading
import time
import uuid

import pytest
from mlflow import MlflowClient

from gspo_ray.algo.record import StepRecord
from gspo_ray.tracking.mlflow_tracker import MlflowTracker
from gspo_ray.tracking.mlflow_values import MAX_TABLE_ROWS, flatten, rollout_table
from gspo_ray.types import RunState, WeightVersion
from tests.unit.tracking.factories import make_group, make_step
from tests.unit.tracking.fake_mlflow import FakeClient


def finish(tracker, status="FINISHED"):
    tracker.close(status, timeout_s=120)  # busy test machines are slow


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """One real sqlite store for all tests: making its tables takes seconds."""
    folder = tmp_path_factory.mktemp("store") / "runs"
    uri = f"sqlite:///{folder}/mlflow.db"
    finish(make_tracker(uri))
    return folder, uri


def make_tracker(uri, *, experiment="tests", warn=None, **options):
    return MlflowTracker(uri, experiment, "a-run", warn=warn or pytest.fail, **options)


def test_a_run_is_stored_with_all_its_parts_beside_the_database(store, tmp_path, capfd, monkeypatch):
    folder, uri = store
    monkeypatch.chdir(tmp_path)
    adapter = tmp_path / "checkpoint" / "adapter"
    adapter.mkdir(parents=True)
    (adapter / "adapter_config.json").write_text("{}")
    (tmp_path / "checkpoint" / "optimizer.pt").write_text("large")
    (tmp_path / "rewards.png").write_bytes(b"png")
    version = WeightVersion(step=2, sha256="cd" * 32)

    tracker = make_tracker(uri, tags={"purpose": "test"})
    tracker.log_config({"model": {"lora": {"rank": 16}, "revision": None}, "steps": 2, "examples": [["q", "a"]] * 2000})
    for step in (1, 2):
        tracker.log_step(make_step(step, 0.1 * step, notes=("mind this",) if step == 2 else ()))
        tracker.log_rollouts(StepRecord(step=step, groups_P=[make_group()]))
    tracker.log_checkpoint(RunState(step=2, version=version), str(tmp_path / "checkpoint"))
    tracker.log_artifact(tmp_path / "rewards.png", "figures")
    finish(tracker)
    assert tracker.undelivered == 0
    assert uri in tracker.how_to_open

    client = MlflowClient(uri)
    run = client.get_run(tracker.run_id)
    assert run.info.status == "FINISHED"
    assert run.info.run_name == "a-run"
    assert run.data.params["model.lora.rank"] == "16"
    assert len(run.data.params["examples"]) == 6000
    assert run.data.tags["purpose"] == "test"
    assert run.data.tags["checkpoint.adapter_sha256"] == "cd" * 32
    history = client.get_metric_history(tracker.run_id, "reward/mean")
    assert [(point.step, point.value) for point in history] == [(1, pytest.approx(0.1)), (2, pytest.approx(0.2))]

    artifacts = folder / "mlartifacts" / tracker.run_id / "artifacts"
    assert sorted(str(p.relative_to(artifacts)) for p in artifacts.rglob("*") if p.is_file()) == [
        "checkpoints/step_000002/adapter_config.json",
        "config.yaml",
        "figures/rewards.png",
        "notes/step_000002.txt",
        "rollouts/step_000001.json",
        "rollouts/step_000002.json",
    ]
    assert "rank: 16" in (artifacts / "config.yaml").read_text()
    table = json.loads((artifacts / "rollouts" / "step_000002.json").read_text())
    assert [row[table["columns"].index("reward")] for row in table["data"]] == [1.0, 0.0]
    assert {"path": "rollouts/step_000002.json", "type": "table"} in json.loads(run.data.tags["mlflow.loggedArtifacts"])
    assert capfd.readouterr().out == ""
    assert not (tmp_path / "mlruns").exists()


def test_a_resumed_run_goes_on_in_the_same_run(store):
    _, uri = store
    first = make_tracker(uri)
    first.log_config({"steps": 10, "name": "x"})
    first.log_step(make_step(1))
    first.log_rollouts(StepRecord(step=1, groups_P=[make_group()]))
    finish(first, "KILLED")
    client = MlflowClient(uri)
    assert client.get_run(first.run_id).info.status == "KILLED"

    warnings: list[str] = []
    second = make_tracker(uri, run_id=first.run_id, warn=warnings.append)
    assert second.run_id == first.run_id
    assert client.get_run(first.run_id).info.status == "RUNNING"
    second.log_config({"steps": 20, "name": "x"})
    second.log_step(make_step(2))
    second.log_rollouts(StepRecord(step=2, groups_P=[make_group()]))
    finish(second)

    run = client.get_run(first.run_id)
    assert (run.info.status, run.data.params["steps"]) == ("FINISHED", "10")
    assert [point.step for point in client.get_metric_history(first.run_id, "reward/mean")] == [1, 2]
    assert len(json.loads(run.data.tags["mlflow.loggedArtifacts"])) == 2
    assert len(warnings) == 1
    assert "changed for the resumed part: steps" in warnings[0]


def test_a_number_that_is_not_finite_is_left_out_and_named(store):
    _, uri = store
    tracker = make_tracker(uri)
    tracker.log_step(make_step(1, math.nan, gspo__loss=math.inf))
    finish(tracker, "FAILED")
    run = MlflowClient(uri).get_run(tracker.run_id)
    assert run.info.status == "FAILED"
    assert "reward/mean" not in run.data.metrics
    assert run.data.metrics["learner/grad_norm"] == 0.42
    assert "reward/mean, outcome/correct_frac, gspo/loss" in run.data.tags["gspo_ray.last_note"]


def test_what_was_thrown_away_in_the_ui_is_restored_or_replaced(store):
    _, uri = store
    warnings: list[str] = []
    client = MlflowClient(uri)
    gone = client.create_experiment("gone")
    client.delete_experiment(gone)
    tracker = make_tracker(uri, experiment="gone", run_id=uuid.uuid4().hex, warn=warnings.append)
    finish(tracker)
    assert client.get_run(tracker.run_id).info.experiment_id == gone
    assert "has no run" in warnings[0]
    assert "'gone' was in the trash; it is restored" in warnings[1]


def test_an_adapter_that_was_pruned_in_the_meantime_is_counted(store, tmp_path):
    _, uri = store
    warnings: list[str] = []
    tracker = make_tracker(uri, warn=warnings.append)
    tracker.log_artifact(tmp_path / "gone.png")
    finish(tracker)
    assert tracker.undelivered == 1
    assert "refused gone.png" in warnings[0]
    assert "did not get 1 items" in warnings[1]


def test_a_dead_server_costs_no_time_and_is_said_in_plain_words():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        uri = f"http://127.0.0.1:{probe.getsockname()[1]}"  # closed again below: nobody listens there
    warnings: list[str] = []
    begin = time.monotonic()
    tracker = make_tracker(uri, warn=warnings.append)
    tracker.log_config({"a": 1})
    for step in range(1, 101):
        tracker.log_step(make_step(step))
        tracker.log_rollouts(StepRecord(step=step, groups_P=[make_group()]))
    assert time.monotonic() - begin < 1
    assert tracker.run_id is None
    begin = time.monotonic()
    tracker.close("FINISHED", timeout_s=1.5)
    assert 1 < time.monotonic() - begin < 2.5
    assert tracker.undelivered == 204  # start, config twice, 100 steps, 100 tables, end
    assert len(warnings) == 3
    assert "did not take the start of the run (ConnectionRefusedError: [Errno 111] Connection refused)" in warnings[0]
    assert "waiting up to" in warnings[1]
    assert "did not get 204 items of this run (the start of the run, the config, step 1, step 2, ...)" in warnings[2]


def test_what_an_outage_kept_is_delivered_in_order():
    client = FakeClient()
    warnings: list[str] = []
    client.down.set()
    tracker = make_tracker("fake", client_factory=lambda uri: client, warn=warnings.append, first_wait_s=0.01)
    for step in range(1, 11):
        tracker.log_step(make_step(step))
    assert tracker.run_id is None
    client.down.clear()
    assert tracker._records.drain(5)
    client.down.set()
    tracker.log_step(make_step(11))
    client.down.clear()
    tracker.close("FINISHED")
    assert client.steps() == list(range(1, 12))
    assert client.calls[-1] == ("set_terminated", "FINISHED")
    assert [name for name, _ in client.calls].count("create_run") == 1
    assert tracker.undelivered == 0


def test_a_broken_artifact_store_does_not_hold_up_the_metrics():
    client = FakeClient()
    warnings: list[str] = []
    client.broken_artifacts = True
    tracker = make_tracker("fake", client_factory=lambda uri: client, warn=warnings.append)
    for step in (1, 2):
        tracker.log_rollouts(StepRecord(step=step, groups_P=[make_group()]))
        tracker.log_step(make_step(step))
    tracker.close("FINISHED", timeout_s=1)
    assert client.steps() == [1, 2]
    assert client.calls[-1] == ("set_terminated", "FINISHED")
    assert tracker.undelivered == 2
    assert "PermissionError: no credentials" in warnings[0]


def test_a_killed_run_says_so_before_anything_else():
    client = FakeClient()
    client.down.set()
    tracker = make_tracker("fake", client_factory=lambda uri: client, warn=lambda text: None, first_wait_s=30)
    for step in range(1, 6):
        tracker.log_step(make_step(step))
    assert tracker.run_id is None
    client.down.clear()
    begin = time.monotonic()
    tracker.close("KILLED")
    assert time.monotonic() - begin < 2
    calls = [name for name, _ in client.calls]
    assert calls.index("set_terminated") < calls.index("log_batch")
    assert client.steps() == [1, 2, 3, 4, 5]


def test_a_server_that_hangs_does_not_hold_up_the_end():
    client = FakeClient()
    warnings: list[str] = []
    client.hang = threading.Event()
    tracker = make_tracker("fake", client_factory=lambda uri: client, warn=warnings.append)
    tracker.log_step(make_step(1))
    assert client.tried.wait(5)
    begin = time.monotonic()
    tracker.close("KILLED", timeout_s=0.3)
    assert time.monotonic() - begin < 1
    assert "did not get 3 items" in warnings[-1]
    client.hang.set()
    tracker.close("FINISHED")  # a second close changes nothing
    assert ("set_terminated", "FINISHED") not in client.calls


def test_flatten_and_table():
    assert flatten({"a": {"b": [1, "x"], "c": None}, "d": True}) == {"a.b": '[1, "x"]', "a.c": "None", "d": "True"}
    groups = [make_group(("a", "b", "c"), (0.0, 1.0, 0.0))] * 3 + [make_group(("a", "b"), (1.0, 1.0))]
    table = json.loads(rollout_table(StepRecord(step=7, groups_P=groups)) or "")
    assert [row[table["columns"].index("reward")] for row in table["data"]] == [1.0, 0.0] * 3 + [1.0]
    assert (
        len(json.loads(rollout_table(StepRecord(step=1, groups_P=[make_group()] * 100)) or "")["data"])
        == MAX_TABLE_ROWS
    )
    assert rollout_table(StepRecord(step=1, groups_P=[])) is None
