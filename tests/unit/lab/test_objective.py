"""The golden values of a public GSPO tutorial, written out here again so that ours cannot drift together with them."""

import math

import pytest

from gspo_ray.errors import ConfigError
from gspo_ray.lab import objective


@pytest.fixture(scope="module")
def report():
    return objective.run().report


def test_no_golden_value_is_missed():
    experiment = objective.run()
    assert len(experiment.checks) == 31
    assert experiment.missed == []


@pytest.mark.parametrize(
    ("variant", "advantage", "value", "gradient"),
    [
        ("grpo", 1, 0.85, (0.25, 0.0)),  # (0.5 + 1.2) / 2; the token at 2 is cut
        ("grpo", -1, -1.4, (0.0, -1.0)),  # (-0.8 - 2) / 2; the token at 0.5 is cut
        ("gspo", 1, 1.0, (0.5, 0.5)),  # 0.5 * 2 = 1: the ratio of the sequence has not moved
        ("gspo", -1, -1.0, (-0.5, -0.5)),
        ("gspo_token", 1, 1.0, (0.5, 0.5)),
        ("gspo_token", -1, -1.0, (-0.5, -0.5)),
    ],
)
def test_token_ratios_that_cancel(report, variant, advantage, value, gradient):
    (row,) = [r for r in report["cancellation"] if (r["variant"], r["advantage"]) == (variant, advantage)]
    assert row["value"] == pytest.approx(value, abs=1e-12)
    assert row["gradient"] == pytest.approx(gradient, abs=1e-12)


@pytest.mark.parametrize(
    ("ratio", "advantage", "gradient"), [(1.3, 1, 0.0), (0.7, 1, 0.35), (1.3, -1, -0.65), (0.7, -1, 0.0)]
)
def test_the_four_corners(report, ratio, advantage, gradient):
    (row,) = [r for r in report["clipping"] if (r["ratio"], r["advantage"]) == (ratio, advantage)]
    assert row["gradient"] == pytest.approx([gradient, gradient], abs=1e-12)
    assert row["clipped_tokens"] == (2 if gradient == 0 else 0)


@pytest.mark.parametrize(("length", "raw"), [(2, 1.0201), (100, 2.7048), (1000, 20959.16)])
def test_the_raw_ratio_explodes_with_length_and_the_gspo_ratio_does_not(report, length, raw):
    (row,) = [r for r in report["length_normalization"] if r["length"] == length]
    assert row["raw_ratio"] == pytest.approx(raw, rel=1e-4)
    assert row["gspo_ratio"] == pytest.approx(1.01, abs=1e-12)


def test_the_root_breaks_the_importance_sampling_identity(report):
    identity = report["is_identity"]
    assert identity["expected_reward_under_new"] == pytest.approx(0.8)
    assert identity["reweighted_by_raw_ratio"] == pytest.approx(0.8)
    assert identity["reweighted_by_gspo_ratio"] == pytest.approx(0.5 * math.sqrt(1.6))  # 0.63246


def test_advantages_of_every_kind(report):
    found = {(row["kind"], *row["rewards"]): row["advantages"] for row in report["advantages"]}
    assert found["population", 0.0, 0.5, 0.5, 1.0] == pytest.approx([-math.sqrt(2), 0, 0, math.sqrt(2)], abs=1e-7)
    assert found["sample", 1.0, 0.0, 0.0, 0.0] == pytest.approx([1.5, -0.5, -0.5, -0.5], abs=1e-7)
    assert found["sample", 1.0, 1.0, 1.0, 1.0] == [0.0] * 4


def test_another_epsilon_has_no_golden_clips_but_keeps_the_rest():
    experiment = objective.run(epsilon=0.1)
    assert experiment.missed == []
    assert len(experiment.checks) == 12  # lengths, identity, advantages


@pytest.mark.parametrize("epsilon", [0, 1, -0.1, math.nan, math.inf, "0.2", True])
def test_a_bad_epsilon_is_refused(epsilon):
    with pytest.raises(ConfigError, match="--epsilon takes finite numbers above 0 and below 1, got"):
        objective.run(epsilon=epsilon)
