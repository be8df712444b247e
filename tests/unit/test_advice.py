"""Every unusual choice is questioned in words, and usual ones are not."""

import pytest

from gspo_ray.advice import advise
from gspo_ray.config import AlgoConfig, RunConfig


def advice(**algo):
    return advise(RunConfig(algo=AlgoConfig(**algo)))


@pytest.mark.parametrize(
    "algo",
    [
        {},
        {"variant": "gspo_token"},
        {"variant": "grpo"},
        {"variant": "grpo", "eps_low": 0.2, "eps_high": 0.28, "aggregation": "token_mean"},
        {"kl": {"coef": 0.1}},
        {"old_logprobs": "sampler", "num_minibatches": 4},
    ],
)
def test_published_settings_need_no_advice(algo):
    assert advice(**algo) == []


@pytest.mark.parametrize(
    ("algo", "words"),
    [
        ({"eps_low": 0.2, "eps_high": 0.2}, "the clip would never act"),
        ({"eps_high": 0.2}, "algo.eps_high=0.2"),
        ({"variant": "grpo", "eps_low": 3e-4, "eps_high": 4e-4}, "would cut nearly every token"),
        ({"aggregation": "token_mean"}, "long answers more weight"),
        ({"aggregation": "constant_length"}, "long answers more weight"),
        ({"advantage": "batch"}, "different problems"),
        ({"old_logprobs": "reference"}, "without its adapter"),
        ({"kl": {"coef": 0.1, "estimator": "k1"}}, "only adds noise"),
    ],
)
def test_an_unusual_choice_is_questioned_in_one_sentence(algo, words):
    (sentence,) = advice(**algo)
    assert words in sentence
    assert "algo." in sentence


def test_the_band_follows_the_variant_unless_it_is_given():
    assert (AlgoConfig().eps_low, AlgoConfig().eps_high) == (3e-4, 4e-4)
    grpo = AlgoConfig(variant="grpo")
    assert (grpo.eps_low, grpo.eps_high) == (0.2, 0.2)
    mixed = AlgoConfig(variant="grpo", eps_high=0.28)
    assert (mixed.eps_low, mixed.eps_high) == (0.2, 0.28)
