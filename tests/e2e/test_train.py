"""The whole topology with the real engine on CPU: stopped by SIGTERM, resumed, finished, and then looked at.

The tests share one run and follow each other.
"""

import hashlib
import json
import math
import signal
from pathlib import Path

import pytest

from gspo_ray.checkpoint import complete_checkpoints, load_checkpoint
from tests.e2e.conftest import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1500)]

# A temperature other than 1 and a rank that vLLM has to round up (to 16): both must be right on both sides.
SMALL: tuple[str, ...] = ("--rollout.group_size", "4", "--rollout.max_tokens", "24", "--checkpoint.every", "1")
SMALL += ("--rollout.temperature", "0.7", "--model.lora.rank", "12")
# Two updates a batch, of shuffled rows, with a pull to the reference; evaluations on the way.
SMALL += ("--algo.num_minibatches", "2", "--algo.minibatch_rows", "shuffled", "--algo.kl.coef", "0.01")
SMALL += ("--eval.every", "2", "--eval.samples", "2", "--eval.max_problems", "4", "--eval.max_tokens", "24")


@pytest.fixture(scope="module")
def storage(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def stopped(cli, storage):
    """A run of 50 steps that gets SIGTERM as soon as step 1 is saved. Gives (run folder, exit code)."""
    process = cli.start(
        "train", "--config", "configs/demo.yaml", *SMALL, "--steps", "50", "--storage_path", str(storage)
    )
    try:
        wait_for(lambda: list(storage.glob("demo-*/checkpoints/step-000001/COMPLETE")), 700, process)
        process.send_signal(signal.SIGTERM)
        code = process.wait(120)
    finally:
        process.kill()
    (run_dir,) = storage.glob("demo-*")
    return run_dir, code


@pytest.fixture(scope="module")
def finished(cli, storage, stopped):
    """The same run, resumed to step 3."""
    run_dir, _ = stopped
    code = cli.run("train", "--resume", str(run_dir), "--steps", "3")
    return run_dir, code


def mlflow_run(run_dir: Path):
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{run_dir.parent / 'mlflow.db'}")
    run_id = json.loads((run_dir / "mlflow_run.json").read_text())["run_id"]
    return client, client.get_run(run_id)


def metrics(run_dir: Path):
    return [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]


def rollouts(run_dir: Path, step: int):
    return [json.loads(line) for line in (run_dir / "rollouts" / f"step_{step:06d}.jsonl").read_text().splitlines()]


def test_sigterm_ends_the_run_in_order(cli, stopped):
    run_dir, code = stopped
    assert code == 128 + signal.SIGTERM
    assert cli.left_behind() == []
    assert mlflow_run(run_dir)[1].info.status == "KILLED"
    state, _ = load_checkpoint(complete_checkpoints(run_dir / "checkpoints")[-1])  # checks every sha256
    assert state.step >= 1
    output = cli.log.read_text()
    assert f"gspo-ray train --resume {run_dir}" in output
    assert "Traceback" not in output


def test_the_resumed_run_finishes_and_leaves_no_process(cli, finished):
    run_dir, code = finished
    assert code == 0, cli.log.read_text()[-3000:]
    assert cli.left_behind() == []
    assert [row["step"] for row in metrics(run_dir)] == [1, 2, 3]
    assert (run_dir / "rewards.png").stat().st_size > 10_000
    assert json.loads((run_dir / "summary.json").read_text())["state"]["step"] == 3
    assert [path.name for path in complete_checkpoints(run_dir / "checkpoints")] == [f"step-{n:06d}" for n in (1, 2, 3)]


def test_each_step_is_sampled_from_the_adapter_pushed_before_it(finished):
    run_dir, _ = finished
    for step in (2, 3):
        adapter = run_dir / "checkpoints" / f"step-{step - 1:06d}" / "adapter" / "adapter_model.safetensors"
        pushed = hashlib.sha256(adapter.read_bytes()).hexdigest()
        rows = rollouts(run_dir, step)
        assert {row["version_sha256"] for row in rows} == {pushed}
        assert {row["version_step"] for row in rows} == {step - 1}
    first = {row["version_sha256"] for row in rollouts(run_dir, 1)}
    assert len(first) == 1
    assert first != {row["version_sha256"] for row in rollouts(run_dir, 2)}


def test_sampler_and_learner_agree_before_the_update(finished):
    """float32 on both sides: |s_i - 1| < 1e-4 for every sequence at the sampling weights."""
    for row in metrics(finished[0]):
        assert row["learner/updates"] == 2
        assert math.exp(row["mismatch/seq_log_ratio_max"]) - 1 < 1e-4
        assert row["mismatch/clip_frac"] == 0
        assert row["sync/probe_gap"] < row["sync/probe_tolerance"] == 1e-3
        assert row["sync/probe_shift"] > 10 * row["sync/probe_gap"]  # the new adapter, not the one before


def test_the_reference_is_where_the_policy_started(finished):
    """Step 1: the first mini-batch is scored at the reference itself, the second one update away from it."""
    distances = [update["kl_k3_sum"] for row in rollouts(finished[0], 1) for update in row["updates"]]
    assert len(distances) == 32  # the KL term pulls on every row, once
    assert sorted(distance == 0 for distance in distances) == [False] * 16 + [True] * 16
    assert min(distances) == 0
    assert all(row["kl/k3"] > 0 for row in metrics(finished[0]))


def test_evaluations_on_the_way_are_compared_with_the_base(finished):
    run_dir, _ = finished
    names = sorted(path.name for path in (run_dir / "eval").iterdir())
    assert names == ["step_000000.jsonl", "step_000002.jsonl", "step_000003.jsonl"]
    base, _, last = (json.loads((run_dir / "eval" / name).read_text().splitlines()[-1]) for name in names)
    assert base["protocol"]["adapter_sha256"] is None
    assert (last["problems"], last["generations"]) == (4, 8)
    assert last["comparison"]["verdict"] in ("better", "worse", "undecidable")
    pushed = run_dir / "checkpoints" / "step-000003" / "adapter" / "adapter_model.safetensors"
    assert last["protocol"]["adapter_sha256"] == hashlib.sha256(pushed.read_bytes()).hexdigest()
    client, run = mlflow_run(run_dir)
    assert {p.step for p in client.get_metric_history(run.info.run_id, "eval/average")} == {0, 2, 3}


def test_finished_completions_end_in_the_eos_token_and_groups_differ(finished):
    rows = rollouts(finished[0], 1)
    assert len(rows) == 8 * 4
    assert all(row["token_ids"][-1] == 2 for row in rows if row["finish"] == "stop")
    assert any(row["finish"] == "stop" for row in rows)
    assert all(len(row["token_ids"]) == len(row["sampler_logprobs"]) == row["tokens"] <= 24 for row in rows)
    assert len({row["text"] for row in rows}) > 8
    assert len({row["seed"] for row in rows}) == len(rows)


def test_mlflow_holds_the_whole_run(finished):
    run_dir, _ = finished
    client, run = mlflow_run(run_dir)
    assert run.info.status == "FINISHED"
    assert run.data.params["rollout.group_size"] == "4"
    history = client.get_metric_history(run.info.run_id, "reward/mean")
    assert {point.step for point in history} == {1, 2, 3}
    assert {a.path for a in client.list_artifacts(run.info.run_id)} >= {"config.yaml", "checkpoints", "rewards.png"}


def test_the_adapter_loads_in_peft_and_changes_the_model(finished):
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    from gspo_ray.models import resolve_model

    base = AutoModelForCausalLM.from_pretrained(resolve_model("smollm2-135m"), dtype=torch.float32)
    model = PeftModel.from_pretrained(base, finished[0] / "checkpoints" / "step-000003" / "adapter")
    ids = torch.tensor([[1, 2, 3, 4]])
    with torch.no_grad():
        adapted = model(input_ids=ids).logits
        with model.disable_adapter():
            bare = model(input_ids=ids).logits
    assert (adapted - bare).abs().max() > 1e-3
