"""The rate of every step, by hand."""

import math

import pytest

from gspo_ray.config import LearnerConfig
from gspo_ray.learner.schedule import learning_rate


def rates(total, **config):
    settings = LearnerConfig(learning_rate=1e-4, **config)
    return [learning_rate(settings, step=step, total_steps=total) for step in range(1, total + 1)]


def test_constant_is_constant():
    assert rates(3) == [1e-4] * 3


def test_linear_falls_by_equal_parts():
    assert rates(4, lr_schedule="linear") == pytest.approx([1e-4, 0.75e-4, 0.5e-4, 0.25e-4])


def test_cosine_is_half_way_down_half_way_through():
    # (1 + cos(pi k / 4)) / 2 for k = 0..3
    wanted = [1e-4, (1 + math.sqrt(0.5)) / 2 * 1e-4, 0.5e-4, (1 - math.sqrt(0.5)) / 2 * 1e-4]
    assert rates(4, lr_schedule="cosine") == pytest.approx(wanted)


def test_warm_up_counts_steps_and_not_micro_batches():
    # 10 steps up to 1e-4: half of it in step 5
    assert rates(20, warmup_steps=10)[4] == pytest.approx(5e-5)
    assert rates(20, warmup_steps=10)[9:] == pytest.approx([1e-4] * 11)


def test_the_decay_begins_after_the_warm_up():
    assert rates(6, warmup_steps=2, lr_schedule="linear") == pytest.approx(
        [0.5e-4, 1e-4, 1e-4, 0.75e-4, 0.5e-4, 0.25e-4]
    )
