import math

import numpy as np
import pytest

from gspo_ray.evaluation.intervals import Estimate, bootstrap, newcombe, t_quantile, wilson

stats = pytest.importorskip("scipy.stats")


def test_the_interval_is_that_of_an_independent_bootstrap_at_the_expanded_level():
    values = np.random.default_rng(3).beta(0.4, 0.6, size=30)
    tail = stats.norm.cdf(-math.sqrt(30 / 29) * stats.t.ppf(0.975, 29))
    reference = stats.bootstrap(
        (values,),
        np.mean,
        n_resamples=100_000,
        confidence_level=1 - 2 * tail,
        method="percentile",
        rng=np.random.default_rng(1),
    ).confidence_interval
    ours = bootstrap(values)
    assert ours.value == values.mean()
    # 10,000 resamples put the ends within about 1 % of the width
    assert ours.low == pytest.approx(reference.low, abs=0.006)
    assert ours.high == pytest.approx(reference.high, abs=0.006)


def test_two_values_have_the_enumerable_distribution_of_means():
    # means 0, 0.5, 1 with chances 1/4, 1/2, 1/4: a 95 % interval must hold all three
    assert bootstrap(np.array([0.0, 1.0])) == Estimate(0.5, 0.0, 1.0)


def test_the_same_values_give_the_same_bits_and_no_global_state_is_touched():
    values = np.random.default_rng(5).random(17)

    before = repr(np.random.get_state())
    first = bootstrap(values)
    assert bootstrap(values.copy()) == first
    assert repr(np.random.get_state()) == before


@pytest.mark.parametrize("count", [10, 30])
def test_coverage_is_close_to_nominal_for_paired_differences(count):
    rng = np.random.default_rng(11)
    hits = 0
    for _ in range(200):
        skill = rng.beta(0.4, 0.6, count)
        estimate = bootstrap((rng.binomial(12, skill) - rng.binomial(12, skill)) / 12)
        hits += estimate.low <= 0 <= estimate.high
    assert hits / 200 > 0.90  # 95 % less three standard errors


@pytest.mark.parametrize("count", [1, 30])
def test_equal_values_give_the_exact_binomial_interval(count):
    all_wrong, all_right = np.zeros(count), np.ones(count)
    exact = stats.binomtest(0, count).proportion_ci(method="exact")
    assert bootstrap(all_wrong, lowest=0, highest=1).high == pytest.approx(exact.high)
    assert bootstrap(all_wrong, lowest=0, highest=1).low == 0
    assert bootstrap(all_right, lowest=0, highest=1).low == pytest.approx(1 - exact.high)


def test_equal_values_without_bounds_allow_no_interval():
    assert bootstrap(np.full(5, 12.0)).value == 12.0
    assert not bootstrap(np.full(5, 12.0)).is_known


def test_equal_values_between_the_bounds_may_be_off_either_way():
    unseen = 1 - 0.025 ** (1 / 10)
    ours = bootstrap(np.full(10, 0.25), lowest=0, highest=1)
    assert [ours.low, ours.high] == pytest.approx([0.25 - 0.25 * unseen, 0.25 + 0.75 * unseen])


@pytest.mark.parametrize(("hits", "count"), [(0, 30), (17, 30), (30, 30), (1, 3)])
def test_wilson_is_the_score_interval(hits, count):
    reference = stats.binomtest(hits, count).proportion_ci(method="wilson")
    ours = wilson(hits / count, count)
    assert [ours.low, ours.high] == pytest.approx([reference.low, reference.high], abs=1e-12)


def test_wilson_of_a_mean_in_other_bounds_is_the_same_interval_rescaled():
    share, tokens = wilson(0.25, 30), wilson(2048.0, 30, lowest=0.0, highest=8192.0)
    assert [tokens.value, tokens.low, tokens.high] == pytest.approx([2048.0, 8192 * share.low, 8192 * share.high])


def test_wilson_over_problems_holds_for_samples_that_depend_on_each_other_where_generations_do_not():
    rng, hits, naive = np.random.default_rng(2), 0, 0
    for _ in range(400):
        mean = np.repeat(rng.random(30) < 0.4, 12).mean()  # a problem is always or never solved
        hits += wilson(mean, 30).low <= 0.4 <= wilson(mean, 30).high
        naive += wilson(mean, 360).low <= 0.4 <= wilson(mean, 360).high
    assert hits / 400 > 0.93
    assert naive / 400 < 0.60


def test_newcombe_gives_his_published_example():
    # Newcombe 1998, table II, method 10: 56/70 - 48/80 = 0.2, interval 0.0524 to 0.3339
    ours = newcombe(wilson(48 / 80, 80), wilson(56 / 70, 70))
    assert [ours.value, ours.low, ours.high] == pytest.approx([0.2, 0.0524, 0.3339], abs=5e-5)


@pytest.mark.parametrize("freedom", [5, 9, 29, 499])
@pytest.mark.parametrize("probability", [0.8, 0.975, 0.995])
def test_the_t_quantile_is_within_a_thousandth(freedom, probability):
    assert t_quantile(probability, freedom) == pytest.approx(stats.t.ppf(probability, freedom), rel=1e-3)
