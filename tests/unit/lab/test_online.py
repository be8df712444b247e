"""The online loop on two binary decisions: the numbers of a public GSPO tutorial, and what must hold for any."""

import math

import pytest
import torch

from gspo_ray.errors import ConfigError
from gspo_ray.lab import decisions, online
from gspo_ray.lab.online import OnlineSettings

SMALL = OnlineSettings(rounds=2, groups=2, group_size=4, updates=2)


@pytest.fixture(scope="module")
def experiment():
    return online.run()


@pytest.mark.parametrize(
    ("beta", "finals"), [(0.0, (0.983443, 0.979609, 0.983805)), (1.0, (0.661570, 0.663586, 0.666853))]
)
def test_the_golden_values_with_and_without_kl(experiment, beta, finals):
    runs = [one for one in experiment.report["runs"] if one["beta"] == beta]
    assert [one["seed"] for one in runs] == [0, 1, 2]
    assert [one["history"][-1]["exact_reward_after_update"] for one in runs] == pytest.approx(finals, abs=5e-7)
    assert experiment.missed == []


def test_every_round_starts_on_policy_with_frozen_old_logprobs(experiment):
    rows = [row for one in experiment.report["runs"] for row in one["history"]]
    assert len(rows) == 6 * 20
    assert {row["initial_ratio_max_error"] for row in rows} == {0.0}
    assert {row["old_logps_max_change"] for row in rows} == {0.0}
    assert experiment.report["runs"][0]["sampled_responses"] == 1280
    assert experiment.report["runs"][0]["sampled_tokens"] == 2560


def test_the_same_seed_gives_the_same_run():
    first, second = (online.run(seeds=[5], betas=[0.5], settings=SMALL).report for _ in range(2))
    assert first == second


def test_the_kl_is_exact():
    # probabilities 0.5 and 0.8 against 0.5 each: 0 + (0.2 log 0.4 + 0.8 log 1.6)
    logits = torch.tensor([[0.0, 0.0], [0.0, math.log(4.0)]], dtype=torch.float64)
    reference = torch.full((2, 2), 0.5, dtype=torch.float64).log()
    expected = 0.2 * math.log(0.4) + 0.8 * math.log(1.6)
    assert float(decisions.exact_kl(logits, reference)) == pytest.approx(expected, abs=1e-12)


def test_the_sampled_kl_of_all_answers_averages_to_the_exact_one():
    logits = torch.tensor([[0.3, -0.2], [0.1, 0.9]], dtype=torch.float64)
    reference = torch.tensor([[0.0, 0.0], [0.5, 0.0]], dtype=torch.float64).log_softmax(-1)
    answers = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]])
    probabilities = decisions.token_logprobs(logits, answers).sum(-1).exp()
    estimates = [
        online._sampled_kl(decisions.token_logprobs(logits, answer[None]), reference, answer[None])
        for answer in answers
    ]
    mean = float((probabilities * torch.tensor(estimates, dtype=torch.float64)).sum())
    assert mean == pytest.approx(float(decisions.exact_kl(logits, reference)), abs=1e-12)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"rounds": 0}, "--rounds takes whole numbers from 1 to 1000000, got 0"),
        ({"rounds": 2.0}, "--rounds takes whole numbers"),
        ({"groups": 0}, "--groups takes whole numbers"),
        ({"groups": True}, "--groups takes whole numbers"),
        ({"updates": -1}, "--updates takes whole numbers"),
        ({"group_size": 1}, "--group-size takes whole numbers from 2"),
        ({"groups": 10_000, "group_size": 1000}, "--groups times --group-size"),
        ({"learning_rate": 0.0}, "--learning-rate takes finite numbers above 0"),
        ({"learning_rate": math.inf}, "--learning-rate"),
        ({"epsilon": 0.0}, "--epsilon takes finite numbers above 0 and below 1"),
        ({"epsilon": 1.0}, "--epsilon"),
    ],
)
def test_bad_settings_are_refused(settings, says):
    with pytest.raises(ConfigError, match=says):
        online.run(settings=OnlineSettings(**settings))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"betas": [-0.1]}, "--betas takes finite numbers of at least 0"),
        ({"betas": [math.nan]}, "--betas"),
        ({"seeds": [1, 1]}, "--seeds takes one or more different numbers, got 1 1"),
        ({"seeds": [-1]}, "--seeds takes whole numbers from 0"),
        ({"seeds": []}, "--seeds takes one or more different numbers, got none"),
    ],
)
def test_bad_seeds_and_betas_are_refused(arguments, says):
    with pytest.raises(ConfigError, match=says):
        online.run(settings=SMALL, **arguments)
