from __future__ import annotations

import json
import math

import pytest

from gspo_ray.tracking.local import LocalTracker, read_metrics
from tests.unit.tracking.factories import make_group, make_step


def test_every_step_is_one_line_that_is_on_disk_at_once(tmp_path):
    tracker = LocalTracker(tmp_path)
    for step in (1, 2):
        tracker.log_step(make_step(step, 0.1 * step, notes=("a note",)))
        assert len(tracker.metrics_path.read_text().splitlines()) == step
    first, second = read_metrics(tmp_path / "metrics.jsonl")
    assert (first["step"], first["notes"]) == (1, ["a note"])
    assert second["reward/mean"] == pytest.approx(0.2)
    assert second["time"] >= first["time"] > 1e9


def test_a_number_that_json_lacks_becomes_null(tmp_path):
    tracker = LocalTracker(tmp_path)
    tracker.log_step(make_step(1, math.nan, gspo__loss=math.inf))
    (record,) = read_metrics(tracker.metrics_path)
    assert record["reward/mean"] is None
    assert record["gspo/loss"] is None


def test_a_completion_is_stored_completely_enough_to_be_replayed(tmp_path):
    group = make_group(("line one\n\u2028 \\boxed{7}", "8"))
    LocalTracker(tmp_path).log_rollouts(1, [group])
    lines = (tmp_path / "rollouts" / "step_000001.jsonl").read_text().splitlines()
    row = json.loads(lines[0])
    completion = group.completions[0]
    assert len(lines) == 2
    assert row["text"] == completion.text
    assert tuple(row["token_ids"]) == completion.token_ids
    assert tuple(row["sampler_logprobs"]) == completion.sampler_logprobs  # exactly
    assert tuple(row["prompt_ids"]) == group.prompt.token_ids
    assert row["mean_sampler_logprob"] == pytest.approx(-0.2)
    assert (row["outcome"], row["reward"], row["gold"], row["version_sha256"]) == ("correct", 1.0, "7", "ab" * 32)
    assert (json.loads(lines[1])["group"], json.loads(lines[1])["sample"]) == (0, 1)


def test_an_unscored_group_has_no_verdict(tmp_path):
    LocalTracker(tmp_path).log_rollouts(1, [make_group(rewards=())])
    row = json.loads((tmp_path / "rollouts" / "step_000001.jsonl").read_text().splitlines()[0])
    assert (row["reward"], row["outcome"]) == (None, None)


def test_resume_forgets_later_steps_and_a_torn_line(tmp_path):
    tracker = LocalTracker(tmp_path)
    for step in (1, 2, 3):
        tracker.log_step(make_step(step))
        tracker.log_rollouts(step, [make_group()])
    with tracker.metrics_path.open("a") as file:
        file.write('{"step": 4, "rewa')

    resumed = LocalTracker(tmp_path, resume_step=2)
    resumed.log_step(make_step(3, 0.9))

    assert [record["step"] for record in read_metrics(tracker.metrics_path)] == [1, 2, 3]
    assert read_metrics(tracker.metrics_path)[-1]["reward/mean"] == 0.9
    assert sorted(p.name for p in (tmp_path / "rollouts").iterdir()) == ["step_000001.jsonl", "step_000002.jsonl"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["metrics.jsonl", "rollouts"]  # no temporary file stays
