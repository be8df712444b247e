from __future__ import annotations

import json
import math

import pytest

from gspo_ray.algo.record import StepRecord
from gspo_ray.tracking.local import LocalTracker, read_metrics
from tests.unit.factories import make_record, make_sequence, make_update
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
    LocalTracker(tmp_path).log_rollouts(StepRecord(step=1, groups_P=[group]))
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
    LocalTracker(tmp_path).log_rollouts(StepRecord(step=1, groups_P=[make_group(rewards=())]))
    row = json.loads((tmp_path / "rollouts" / "step_000001.jsonl").read_text().splitlines()[0])
    assert (row["reward"], row["outcome"]) == (None, None)


def test_resume_forgets_later_steps_and_a_torn_line(tmp_path):
    tracker = LocalTracker(tmp_path)
    for step in (1, 2, 3):
        tracker.log_step(make_step(step))
        tracker.log_rollouts(StepRecord(step=step, groups_P=[make_group()]))
    with tracker.metrics_path.open("a") as file:
        file.write('{"step": 4, "rewa')

    resumed = LocalTracker(tmp_path, resume_step=2)
    resumed.log_step(make_step(3, 0.9))

    assert [record["step"] for record in read_metrics(tracker.metrics_path)] == [1, 2, 3]
    assert read_metrics(tracker.metrics_path)[-1]["reward/mean"] == 0.9
    assert sorted(p.name for p in (tmp_path / "rollouts").iterdir()) == ["step_000001.jsonl", "step_000002.jsonl"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["metrics.jsonl", "rollouts"]  # no temporary file stays


def test_what_the_loss_made_of_a_completion_stands_beside_its_text(tmp_path):
    group = make_group(("\\boxed{7}", "\\boxed{8}"), (1.0, 0.0))
    flat = make_group(("\\boxed{7}", "7"), (1.0, 1.0), problem_id="flat")
    first = make_update([make_sequence(1, ratio=1.01, clipped=True)])
    second = make_update([make_sequence(1, ratio=1.02)])
    record = make_record([group], [first, second], discarded=[flat], counted_PG=[[True, False]])
    assert record.step == 2
    LocalTracker(tmp_path).log_rollouts(record)
    rows = [json.loads(line) for line in (tmp_path / "rollouts" / "step_000002.jsonl").read_text().splitlines()]
    assert [(row["problem_id"], row["discarded"]) for row in rows] == [
        ("add-3-4", False),
        ("add-3-4", False),
        ("flat", True),
        ("flat", True),
    ]
    # rewards 1 and 0: +-0.70711 (std with N - 1)
    assert [row["advantage"] for row in rows] == [pytest.approx(0.707107), pytest.approx(-0.707107), None, None]
    assert [row["counted"] for row in rows] == [True, False, None, None]
    assert [len(row["updates"]) for row in rows] == [0, 2, 0, 0]
    numbers = rows[1]["updates"][0]
    assert numbers["log_ratio"] == pytest.approx(math.log(1.01))
    assert numbers["clipped_tokens"] == 10
    assert numbers["mismatch"]["log_ratio"] == 0.0
