"""Gradients of published settings on the same rollouts."""

import json
from itertools import chain

import numpy as np
import pytest

from gspo_ray.errors import ConfigError
from gspo_ray.lab import compare
from gspo_ray.lab.compare import CompareSettings
from gspo_ray.lab.gradients import SETTINGS, gradient
from gspo_ray.lab.recorded import perturbed, synthetic
from gspo_ray.tracking.local import LocalTracker
from tests.unit.factories import make_group, make_record


@pytest.fixture(scope="module")
def experiment():
    return compare.run(settings=CompareSettings(batches=40))


def test_no_golden_value_is_missed(experiment):
    assert experiment.missed == []
    assert sum(check.agrees is None for check in experiment.checks) == 2  # the paper's run, for orientation


def test_gspo_token_is_gspo_and_token_mean_is_not(experiment):
    rows = experiment.report["settings"]
    assert rows["gspo_token"]["cosine"] == pytest.approx(1, abs=1e-12)
    assert rows["gspo_token"]["relative_error"] == pytest.approx(0, abs=1e-12)
    assert rows["gspo_token"]["cut_tokens"] == rows["gspo"]["cut_tokens"]
    assert rows["gspo_token_mean"]["cosine"] < 0.9


def test_the_published_cosine_lies_within_the_spread_of_such_batches(experiment):
    # one ragged batch of 16 sequences, 50 to 2000 tokens: cosine 0.69, relative error 0.72
    spread = experiment.report["token_mean_spread"]
    assert spread["cosine"]["low"] < 0.69 < spread["cosine"]["high"]
    assert spread["relative_error"]["low"] < 0.72 < spread["relative_error"]["high"]


def test_the_cosine_of_token_mean_in_closed_form():
    # |A| alike, nothing moved: cos = 1 / sqrt(mean n * mean 1/n), whatever the log-probs
    recorded = synthetic(groups=1, group_size=16, seed=3)
    recorded = type(recorded)(
        source="",
        synthetic=True,
        rewards_PG=[[1.0] * 8 + [0.0] * 8],
        lens_B=recorded.lens_B,
        sampler_logprobs_BT=recorded.sampler_logprobs_BT,
    )
    same = perturbed(recorded, noise=0, update=0, seed=0)
    paper, mean = (gradient(SETTINGS[name], recorded, same)[0] for name in ("gspo", "gspo_token_mean"))
    lens = recorded.lens_B.double()
    expected = 1 / float((lens.mean() * (1 / lens).mean()).sqrt())
    assert float((paper * mean).sum() / paper.norm() / mean.norm()) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("name", ["gspo", "grpo", "dapo", "dr_grpo"])
def test_a_gradient_agrees_with_numpy(name):
    recorded = synthetic(groups=2, group_size=4, seed=1)
    current = perturbed(recorded, noise=0.2, update=0.01, seed=2)
    ours, numbers = gradient(SETTINGS[name], recorded, current)
    setting = SETTINGS[name].objective
    low, high = 1 - setting.eps_low, 1 + setting.eps_high
    lens = recorded.lens_B.numpy()
    groups = [np.array(rewards) for rewards in recorded.rewards_PG]
    scale = [1.0 if name == "dr_grpo" else rewards.std(ddof=1) + 1e-8 for rewards in groups]
    advantages = list(chain.from_iterable((r - r.mean()) / s for r, s in zip(groups, scale, strict=True)))
    cut_tokens = 0
    for row, n in enumerate(lens):
        ratio = np.exp(current[row, :n].numpy() - recorded.sampler_logprobs_BT[row, :n].numpy())
        if name == "gspo":
            ratio = np.full(n, np.exp(np.log(ratio).mean()))
        cut = ((advantages[row] > 0) & (ratio > high)) | ((advantages[row] < 0) & (ratio < low))
        weight = {"gspo": 1 / n / 8, "grpo": 1 / n / 8, "dapo": 1 / lens.sum(), "dr_grpo": 1 / 8 / lens.max()}[name]
        np.testing.assert_allclose(
            ours[row, :n].numpy(), np.where(cut, 0, -weight * advantages[row] * ratio), atol=1e-9
        )
        cut_tokens += int(cut.sum())
    assert numbers["cut_tokens"] == pytest.approx(cut_tokens / lens.sum())
    assert cut_tokens > 0


def test_a_run_is_compared_at_log_probs_from_a_file(tmp_path):
    LocalTracker(tmp_path).log_rollouts(make_record([make_group([1.0, 0.0], [(1, 2), (3, 4, 5, 6)])]))
    current = tmp_path / "current.jsonl"
    current.write_text("".join(json.dumps({"logprobs": [-0.5] * n}) + "\n" for n in (2, 4)), encoding="utf-8")
    report = compare.run(source=tmp_path, current=current).report
    assert report["sequences"] == 2
    assert report["settings"]["gspo"]["outside_sequences"] == 0  # current = sampled
    assert "token_mean_spread" not in report  # the published batch was not this one
    # gradients +-A/2/n on n = 2 and 4 tokens: cos = (1/1) / sqrt(mean n * mean 1/n) = 1 / sqrt(3 * 0.375)
    assert report["settings"]["gspo_token_mean"]["cosine"] == pytest.approx(1 / (3 * 0.375) ** 0.5, abs=1e-12)


def test_groups_without_a_signal_leave_nothing_to_compare(tmp_path):
    LocalTracker(tmp_path).log_rollouts(make_record([make_group([1.0, 1.0])]))
    experiment = compare.run(source=tmp_path)
    assert experiment.report["settings"]["dapo"]["cosine"] is None
    assert experiment.missed == []
    assert any("No sequence has a gradient" in note for note in experiment.notes)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"groups": 0}, "--groups takes whole numbers"),
        ({"group_size": 1}, "--group-size takes whole numbers from 2"),
        ({"groups": 500, "group_size": 8}, "--groups times --group-size"),
        ({"noise": -0.1}, "--noise takes finite numbers of at least 0"),
        ({"update": 2}, "--update"),
        ({"batches": 1}, "--batches"),
        ({"seed": -1}, "--seed"),
    ],
)
def test_bad_settings_are_refused(arguments, says):
    with pytest.raises(ConfigError, match=says):
        compare.run(settings=CompareSettings(**arguments))


def test_options_that_contradict_each_other_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="--current holds log-probs of a run's rollouts"):
        compare.run(current=tmp_path)
    with pytest.raises(ConfigError, match="neither --noise nor --update"):
        compare.run(source=tmp_path, current=tmp_path, settings=CompareSettings(noise=0.1))
    with pytest.raises(ConfigError, match="--step picks a step of a run: give --run"):
        compare.run(step=3)
    with pytest.raises(ConfigError, match="shape the built-in batch"):
        compare.run(source=tmp_path, settings=CompareSettings(groups=3))
