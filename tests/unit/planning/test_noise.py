import math

import pytest

from gspo_ray.config import AlgoConfig
from gspo_ray.lab import noise as lab
from gspo_ray.planning.noise import TOLERATED, ratio_noise, share_outside

BAND = (3e-4, 4e-4)


@pytest.mark.parametrize(("noise", "length"), list(lab.PUBLISHED))
def test_the_share_outside_is_that_of_the_noise_experiment_and_as_published(noise: float, length: int) -> None:
    ours = share_outside(noise / math.sqrt(length), *BAND)
    assert ours == pytest.approx(lab.closed_form(length, noise, *BAND), rel=1e-12)
    assert ours == pytest.approx(lab.PUBLISHED[noise, length], abs=0.01)


def test_noise_falls_with_the_root_of_the_length() -> None:
    found = ratio_noise(AlgoConfig(), tokens=400, dtype="bfloat16", device="cuda", token_noise=0.01)
    assert found.ratio_std == pytest.approx(0.01 / 20)
    assert share_outside(0.01 / math.sqrt(found.enough_tokens), *BAND) <= TOLERATED
    assert share_outside(0.01 / math.sqrt(found.enough_tokens - 1), *BAND) > TOLERATED
    assert not found.in_the_ratio  # the learner's own log-probs are the old ones


def test_noise_so_small_that_one_token_is_enough() -> None:
    found = ratio_noise(AlgoConfig(old_logprobs="sampler"), tokens=12, dtype="float32", device="cpu")
    assert found.enough_tokens == 1
    assert found.in_the_ratio
    # |s - 1| up to 7e-6 was measured for 12 tokens
    assert found.ratio_std == pytest.approx(7e-6, rel=0.05)


def test_a_token_ratio_averages_nothing() -> None:
    found = ratio_noise(AlgoConfig(variant="grpo"), tokens=400, dtype="bfloat16", device="cuda", token_noise=0.01)
    assert found.ratio_std == 0.01
    assert found.outside < 1e-9  # the band of 0.2 is far away
