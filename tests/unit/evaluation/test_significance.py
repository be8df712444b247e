import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gspo_ray.evaluation.significance import (
    SAMPLED_FLIPS,
    bound_p_value,
    detectable_difference,
    detectable_from_error,
    holm,
    sign_flip_p_value,
)


def brute_force(differences):
    """All 2**P patterns, in whole numbers."""
    observed = abs(sum(differences))
    patterns = list(itertools.product((1, -1), repeat=len(differences)))
    sums = [abs(sum(s * d for s, d in zip(signs, differences, strict=True))) for signs in patterns]
    return sum(total >= observed for total in sums) / len(patterns)


@given(st.lists(st.integers(-12, 12), min_size=1, max_size=9))
@settings(max_examples=60, deadline=None)
def test_shares_have_the_p_value_of_all_sign_patterns(units):
    p_value, exact = sign_flip_p_value(np.array(units) / 12, denominator=12)
    assert exact
    assert p_value == pytest.approx(brute_force(units), abs=1e-12)


@given(st.lists(st.integers(-50, 50), min_size=1, max_size=8))
@settings(max_examples=40, deadline=None)
def test_few_problems_are_enumerated_whatever_their_differences(units):
    p_value, exact = sign_flip_p_value(np.array(units) * math.pi, denominator=12)
    assert exact
    assert p_value == pytest.approx(brute_force(units), abs=1e-12)


def test_a_worked_p_value():
    # differences 3, 2, 1, 1 of 4: the sum 7 is the largest of 2**4, and -7 the smallest: 2 / 16
    assert sign_flip_p_value(np.array([3, 2, 1, 1]) / 4, denominator=4) == (2 / 16, True)


def test_no_difference_at_all_shows_nothing():
    assert sign_flip_p_value(np.zeros(30), denominator=12) == (1.0, True)


def test_many_problems_stay_exact_and_agree_with_an_independent_permutation_test():
    stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(8)
    differences = rng.integers(-4, 6, size=200) / 12
    p_value, exact = sign_flip_p_value(differences, denominator=12)
    reference = stats.permutation_test(
        (differences,), np.mean, permutation_type="samples", n_resamples=20_000, rng=np.random.default_rng(1)
    ).pvalue
    assert exact
    assert p_value == pytest.approx(reference, abs=4 * math.sqrt(p_value / 20_000))


def test_many_uneven_differences_are_sampled_with_the_same_seed_each_time():
    differences = np.random.default_rng(4).normal(0.2, 1.0, size=40)
    first = sign_flip_p_value(differences, denominator=1)
    assert first[1] is False
    assert sign_flip_p_value(differences, denominator=1) == first
    exact_enough = brute_force_normal(differences)
    assert first[0] == pytest.approx(exact_enough, abs=0.02)


def brute_force_normal(differences):
    """The normal limit of the permutation distribution."""
    z = abs(differences.sum()) / math.sqrt((differences**2).sum())
    return math.erfc(z / math.sqrt(2))


def test_a_sampled_p_value_is_never_0():
    differences = np.full(40, math.pi) + np.arange(40) * 1e-3
    assert sign_flip_p_value(differences, denominator=1)[0] == 1 / (SAMPLED_FLIPS + 1)


def test_the_level_is_kept_when_nothing_differs():
    rng, false_alarms = np.random.default_rng(6), 0
    for _ in range(500):
        skill = rng.beta(0.4, 0.6, 30)
        differences = (rng.binomial(12, skill) - rng.binomial(12, skill)) / 12
        false_alarms += sign_flip_p_value(differences, denominator=12)[0] < 0.05
    assert false_alarms / 500 < 0.08  # 5 % plus three standard errors


def test_the_detectable_difference_is_found_four_times_in_five():
    rng, found, sd = np.random.default_rng(9), 0, 3.0
    effect = (2.0452 + 0.8542) * sd / math.sqrt(30)  # t quantiles with 29 degrees of freedom, from tables
    unit_like = np.resize([sd, -sd], 30) * math.sqrt(29 / 30)  # sample standard deviation exactly sd
    assert detectable_difference(unit_like) == pytest.approx(effect, rel=1e-3)
    for _ in range(400):
        differences = np.rint(rng.normal(effect, sd, 30) * 100) / 100
        found += sign_flip_p_value(differences, denominator=100)[0] < 0.05
    assert found / 400 == pytest.approx(0.8, abs=0.06)


def test_several_comparisons_need_a_larger_difference():
    differences = np.random.default_rng(1).normal(size=30)
    one, five = detectable_difference(differences), detectable_difference(differences, tests=5)
    assert one < five


def test_few_problems_can_show_nothing_however_large_the_difference():
    five, six = np.array([1.0, 2, 3, 4, 5]), np.array([1.0, 2, 3, 4, 5, 6])
    assert sign_flip_p_value(five, denominator=1)[0] == 2 / 32  # the smallest there is, and above 0.05
    assert detectable_difference(five) == math.inf
    assert sign_flip_p_value(six, denominator=1)[0] == 2 / 64
    assert math.isfinite(detectable_difference(six))
    assert detectable_difference(six, tests=2) == math.inf  # 2 / 64 is above 0.05 / 2


@pytest.mark.parametrize("differences", [[0.0] * 8, [0.25] * 9])
def test_what_does_not_vary_says_nothing_about_what_could_be_shown(differences):
    assert math.isnan(detectable_difference(np.array(differences)))


def test_the_normal_detectable_difference_is_the_textbook_2_8_standard_errors():
    assert detectable_from_error(1.0) == pytest.approx(1.95996 + 0.84162, abs=1e-4)


def test_the_bound_test_is_the_pooled_z_test_of_two_shares():
    # shares 0.2 and 0.5 of 30: pooled 0.35, error sqrt(2 * 0.35 * 0.65 / 30) = 0.12315, z = 2.4360
    p_value = bound_p_value(0.2, 0.5, 30, lowest=0.0, highest=1.0)
    assert p_value == pytest.approx(math.erfc(2.4360 / math.sqrt(2)), abs=1e-4)
    assert bound_p_value(200.0, 500.0, 30, lowest=0.0, highest=1000.0) == pytest.approx(p_value)


def test_two_means_at_the_same_border_do_not_differ():
    assert bound_p_value(1.0, 1.0, 30, lowest=0.0, highest=1.0) == 1.0


def test_holm_multiplies_the_smallest_by_all_and_never_turns_the_order_round():
    # sorted 0.01 * 3 = 0.03; 0.03 * 2 = 0.06; max(0.06, 0.04 * 1) = 0.06
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([0.04]) == [0.04]
    assert holm([]) == []


def test_the_best_of_many_equal_models_is_not_called_better():
    rng, claims = np.random.default_rng(12), 0
    for _ in range(300):
        skill = rng.beta(0.4, 0.6, 30)
        base = rng.binomial(12, skill)
        p_values = [sign_flip_p_value((rng.binomial(12, skill) - base) / 12, denominator=12)[0] for _ in range(5)]
        claims += min(holm(p_values)) < 0.05
    assert claims / 300 < 0.09  # 5 % plus three standard errors; uncorrected it is about 0.15
