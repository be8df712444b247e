"""Advantages of a group: values by hand, and the two traps (0 / 1e-8 and NaN)."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gspo_ray.algo.advantages import group_advantages


def test_the_standard_deviation_has_n_minus_one_in_its_divisor():
    # mean 1/4; variance with ddof 1: (9/16 + 3/16) / 3 = 1/4, std 1/2; (3/4) / (1/2) = 1.5 and (-1/4) / (1/2) = -0.5.
    # With ddof 0 it would be +1.7320 / -0.5774.
    (advantages,) = group_advantages([[1, 0, 0, 0]])
    assert advantages == pytest.approx([1.5, -0.5, -0.5, -0.5], abs=1e-7)


def test_the_epsilon_is_added_to_the_standard_deviation():
    # mean 0.5e-8, std (ddof 1) = sqrt(2 * 0.25) * 1e-8 = 0.70711e-8: 0.5 / (0.70711 + 1) = 0.292893
    (advantages,) = group_advantages([[1e-8, 0.0]])
    assert advantages == pytest.approx([0.292893, -0.292893], abs=1e-6)


@pytest.mark.parametrize("reward", [0.0, 1.0, 0.1, -3.7, 1e300])
def test_equal_rewards_give_exactly_zero(reward):
    # 0.1 eight times: the float mean of eight 0.1 may be off by an ulp, and ulp / 1e-8 is not nothing.
    assert group_advantages([[reward] * 8]) == [[0.0] * 8]


def test_a_group_of_one_gives_zero_and_not_nan():
    assert group_advantages([[1.0]]) == [[0.0]]


def test_groups_do_not_see_each_other():
    # A5/A11: [1,1,0]: mean 2/3, var (1/9 + 1/9 + 4/9) / 2 = 1/3, std 0.57735; 1/3 / 0.57735 = 0.57735, -2/3 -> -1.1547
    first, second = group_advantages([[1, 1, 0], [0, 0]])
    assert first == pytest.approx([0.5773503, 0.5773503, -1.1547005], abs=1e-6)
    assert second == [0.0, 0.0]
    assert group_advantages([[0, 0], [1, 1, 0]]) == [second, first]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_reward_that_is_not_finite_is_refused(bad):
    with pytest.raises(ValueError, match="finite"):
        group_advantages([[1.0, 0.0], [1.0, bad]])


@given(st.lists(st.integers(-5, 5).map(float), min_size=2, max_size=16))
def test_agrees_with_numpy_in_float64(rewards):
    (advantages,) = group_advantages([rewards])
    values = np.array(rewards, dtype=np.float64)
    wanted = (values - values.mean()) / (values.std(ddof=1) + 1e-8)
    assert advantages == pytest.approx(wanted.tolist(), abs=1e-9)
    assert sum(advantages) == pytest.approx(0.0, abs=1e-9)
