"""Recorded rollouts: those of a run, as its tracker writes them, and the built-in batch."""

import json
import math

import pytest
import torch

from gspo_ray.errors import ConfigError, DataError
from gspo_ray.lab.recorded import perturbed, read_current, read_run, synthetic
from gspo_ray.tracking.local import LocalTracker
from tests.unit.factories import make_group, make_record


@pytest.fixture
def run_dir(tmp_path):
    tracker = LocalTracker(tmp_path)
    tracker.log_rollouts(make_record([make_group([1.0, 1.0])], step=1))
    groups = [make_group([1.0, 0.0], [(1, 2), (3, 4, 5)]), make_group([0.0, 1.0], [(6,), (7, 8)])]
    tracker.log_rollouts(make_record(groups, step=2))
    return tmp_path


def test_a_run_is_read_at_its_newest_step_or_at_a_given_one(run_dir):
    recorded = read_run(run_dir)
    assert recorded.rewards_PG == [[1.0, 0.0], [0.0, 1.0]]
    assert recorded.lens_B.tolist() == [2, 3, 1, 2]
    assert recorded.sampler_logprobs_BT.tolist()[0] == [-0.5, -0.5, 0.0]  # padded to the longest
    assert not recorded.synthetic
    assert read_run(run_dir, step=1).rewards_PG == [[1.0, 1.0]]
    assert read_run(run_dir / "rollouts" / "step_000001.jsonl").lens_B.tolist() == [3, 3]


def test_completions_that_the_loss_did_not_count_are_left_out_and_said(run_dir):
    file = run_dir / "rollouts" / "step_000002.jsonl"
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    rows[0]["outcome"], rows[1]["counted"], rows[3]["reward"] = "error", False, None
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    recorded = read_run(run_dir)
    assert recorded.rewards_PG == [[0.0]]
    assert "3 that the loss did not count left out" in recorded.source


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"sampler_logprobs": [math.inf]}, "finite numbers of at most 0"),
        ({"sampler_logprobs": [0.1]}, "finite numbers of at most 0"),
        ({"sampler_logprobs": []}, "no log-probs"),
        ({"sampler_logprobs": [None]}, "a log-prob is not a number"),
        ({"sampler_logprobs": [[-0.1]]}, "one a token"),
        ({"group": "drop"}, "no 'group'"),
    ],
)
def test_a_bad_row_is_named(run_dir, change, says):
    file = run_dir / "rollouts" / "step_000001.jsonl"
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    rows[1].update(change)
    if change.get("group") == "drop":
        del rows[1]["group"]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    with pytest.raises(DataError, match=rf"step_000001.jsonl:2: .*{says}"):
        read_run(file)


def test_groups_that_were_discarded_are_not_compared(tmp_path):
    record = make_record([make_group([1.0, 0.0])], step=1, discarded=[make_group([1.0, 1.0])])
    LocalTracker(tmp_path).log_rollouts(record)
    assert read_run(tmp_path).rewards_PG == [[1.0, 0.0]]


@pytest.mark.parametrize(
    ("text", "says"), [("{", "not valid JSON"), ("[1]", "not a JSON object"), ("\udcff", "cannot be read")]
)
def test_a_file_that_is_no_jsonl_is_named(tmp_path, text, says):
    file = tmp_path / "rollouts.jsonl"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(DataError, match=says):
        read_run(file)


def test_what_is_not_there_is_named(run_dir, tmp_path):
    with pytest.raises(DataError, match="no such folder or file"):
        read_run(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"--step 7: the run has step_000001\.jsonl to step_000002\.jsonl"):
        read_run(run_dir, step=7)
    with pytest.raises(ConfigError, match="--step picks a step of a run's folder"):
        read_run(run_dir / "rollouts" / "step_000001.jsonl", step=1)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no rollouts/step"):
        read_run(tmp_path / "empty")


def test_current_logprobs_must_fit_token_by_token(run_dir, tmp_path):
    recorded, file = read_run(run_dir), tmp_path / "current.jsonl"

    def write(lengths):
        file.write_text("".join(json.dumps({"logprobs": [-0.4] * n}) + "\n" for n in lengths), encoding="utf-8")

    write([2, 3, 1, 2])
    assert read_current(file, recorded).tolist()[2] == pytest.approx([-0.4, 0, 0])
    write([2, 3, 2, 2])
    with pytest.raises(DataError, match="do not fit the 4 rollouts"):
        read_current(file, recorded)
    file.write_text('{"logprob": [-1]}\n', encoding="utf-8")
    with pytest.raises(DataError, match=r"current\.jsonl:1: no `logprobs`"):
        read_current(file, recorded)


def test_the_built_in_batch_is_ragged_and_a_function_of_its_seed():
    first, again, other = (synthetic(groups=2, group_size=8, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(first.sampler_logprobs_BT, again.sampler_logprobs_BT)
    assert first.lens_B.tolist() != other.lens_B.tolist()
    assert len(first.lens_B) == 16
    assert int(first.lens_B.min()) >= 50
    assert int(first.lens_B.max()) <= 2000
    assert bool((first.sampler_logprobs_BT <= 0).all())
    assert "no model has sampled them" in first.source


def test_a_simulated_update_moves_tokens_along_the_advantage():
    recorded = synthetic(groups=1, group_size=8, seed=0)
    shift = perturbed(recorded, noise=0, update=1e-3, seed=0) - recorded.sampler_logprobs_BT
    rewarded = torch.tensor(recorded.rewards_PG).flatten() > 0
    assert 0 < int(rewarded.sum()) < 8
    assert bool((shift[rewarded][recorded.mask_BT[rewarded]] > 0).all())
    assert bool((shift[~rewarded][recorded.mask_BT[~rewarded]] < 0).all())
    assert bool((shift[~recorded.mask_BT] == 0).all())
