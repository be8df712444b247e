"""Five steps on one frozen batch, against the numbers of a public GSPO tutorial."""

import pytest

from gspo_ray.errors import ConfigError
from gspo_ray.lab import update


def test_the_golden_values():
    experiment = update.run()
    report, history = experiment.report, experiment.report["history"]
    assert report["advantages"] == pytest.approx([-1.41421, 0, 0, 1.41421], abs=5e-6)
    assert [row["exact_expected_reward"] for row in history] == pytest.approx(
        [0.5, 0.5440794421, 0.5871459958, 0.6279859323, 0.6279859323, 0.6279859323], abs=5e-11
    )
    assert [row["objective"] for row in history[:4]] == pytest.approx(
        [0, 0.0623377431, 0.1232430456, 0.1414213522], abs=5e-11
    )
    assert experiment.checks
    assert experiment.missed == []


def test_on_the_plateau_every_gradient_is_cut():
    history = update.run(steps=8).report["history"]
    assert {row["exact_expected_reward"] for row in history[3:]} == {history[3]["exact_expected_reward"]}
    assert history[-1]["flat_fraction"] == 0.5  # the two answers without an advantage have nothing to cut
    assert history[-1]["ratios"][0] < 0.8
    assert history[-1]["ratios"][3] > 1.2


def test_other_settings_have_no_golden_values():
    assert update.run(steps=2).checks == ()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"steps": 0}, "--steps takes whole numbers from 1"),
        ({"steps": 2.0}, "--steps takes whole numbers from 1 to 10000, got 2.0"),
        ({"learning_rate": 0}, "--learning-rate takes finite numbers above 0"),
        ({"epsilon": 1}, "--epsilon"),
    ],
)
def test_bad_settings_are_refused(settings, says):
    with pytest.raises(ConfigError, match=says):
        update.run(**settings)
