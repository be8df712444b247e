"""Advantages of a group: values by hand, every kind, and the traps (0 / 1e-8, NaN, a reward that is missing)."""

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gspo_ray.algo.advantages import group_advantages, is_degenerate
from tests.unit.algo import oracle
from tests.unit.algo.cases import KINDS

kinds = pytest.mark.parametrize("kind", KINDS)


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        # mean 1/4. ddof 1: variance (9/16 + 3/16) / 3 = 1/4, std 1/2; ddof 0: 3/16, std 0.4330127.
        ("sample", [1.5, -0.5, -0.5, -0.5]),
        ("population", [1.7320508, -0.5773503, -0.5773503, -0.5773503]),
        ("mean_only", [0.75, -0.25, -0.25, -0.25]),
        ("leave_one_out", [1.0, -1 / 3, -1 / 3, -1 / 3]),  # 1 - 0; 0 - (1 + 0 + 0) / 3
        ("batch", [1.5, -0.5, -0.5, -0.5]),  # one group is the batch
    ],
)
def test_one_right_of_four(kind, wanted):
    (advantages,) = group_advantages([[1, 0, 0, 0]], kind=kind)
    assert advantages == pytest.approx(wanted, abs=1e-7)


def test_the_default_has_n_minus_one_in_its_divisor():
    assert group_advantages([[1, 0, 0, 0]]) == group_advantages([[1, 0, 0, 0]], kind="sample")


@pytest.mark.parametrize(
    ("kind", "std"),
    [("sample", math.sqrt(0.5) * 1e-8), ("population", 0.5e-8), ("batch", math.sqrt(0.5) * 1e-8)],
)
def test_the_epsilon_is_added_to_the_standard_deviation(kind, std):
    # mean 0.5e-8, deviations +-0.5e-8; variance with ddof 1 0.5e-16, with ddof 0 0.25e-16
    (advantages,) = group_advantages([[1e-8, 0.0]], kind=kind)
    assert advantages == pytest.approx([0.5e-8 / (std + 1e-8), -0.5e-8 / (std + 1e-8)], abs=1e-9)


@kinds
@pytest.mark.parametrize("reward", [0.0, 1.0, 0.1, -3.7, 1e300])
def test_equal_rewards_give_exactly_zero(kind, reward):
    # 0.1 eight times: the float mean of eight 0.1 may be off by an ulp, and ulp / 1e-8 is not nothing.
    assert group_advantages([[reward] * 8], kind=kind) == [[0.0] * 8]


@kinds
def test_a_group_of_one_gives_zero_and_not_nan(kind):
    assert group_advantages([[1.0]], kind=kind) == [[0.0]]


@kinds
def test_a_group_with_one_reward_that_is_known_gives_zero_and_not_nan(kind):
    assert group_advantages([[1.0, None, None, None], [None, None]], kind=kind) == [[0.0] * 4, [0.0] * 2]


@kinds
def test_survivors_are_compared_among_themselves(kind):
    # The reward that was lost is no zero: the others have the advantages of a group of three.
    (advantages,) = group_advantages([[1.0, None, 0.0, 0.0]], kind=kind)
    (three,) = group_advantages([[1.0, 0.0, 0.0]], kind=kind)
    assert advantages == [three[0], 0.0, *three[1:]]


def test_groups_of_uneven_size_do_not_share_a_baseline():
    # [1, 1, 0]: mean 2/3; ddof 0: variance 2/9, std 0.4714: 0.7071 and -1.4142; one baseline for all five would give
    # 1.2247 and -0.8165, and the second group a gradient that it has not got.
    advantages = group_advantages([[1, 1, 0], [0, 0]], kind="population")
    assert advantages[0] == pytest.approx([0.7071068, 0.7071068, -1.4142136], abs=1e-6)
    assert advantages[1] == [0.0, 0.0]
    assert group_advantages([[0, 0], [1, 1, 0]], kind="population") == advantages[::-1]
    # ddof 1: variance 1/3, std 0.57735
    assert group_advantages([[1, 1, 0], [0, 0]])[0] == pytest.approx([0.5773503, 0.5773503, -1.1547005], abs=1e-6)


def test_only_batch_compares_problems_with_each_other():
    # Five rewards 1 1 0 0 0: mean 0.4, ddof 1: (2 * 0.36 + 3 * 0.16) / 4 = 0.3, std 0.5477: 1.0954 and -0.7303
    first, second = group_advantages([[1, 1, 0], [0, 0]], kind="batch")
    assert first == pytest.approx([1.0954451, 1.0954451, -0.7302967], abs=1e-6)
    assert second == pytest.approx([-0.7302967, -0.7302967], abs=1e-6)


@kinds
@given(rewards=st.permutations([1.0, 0.0, 0.5, 0.5, None]))
@settings(max_examples=20, deadline=None, derandomize=True)
def test_the_order_within_a_group_does_not_matter(kind, rewards):
    (advantages,) = group_advantages([rewards], kind=kind)
    (wanted,) = group_advantages([[1.0, 0.0, 0.5, 0.5, None]], kind=kind)
    by_reward = dict(zip([1.0, 0.0, 0.5, 0.5, None], wanted, strict=True))
    assert advantages == pytest.approx([by_reward[reward] for reward in rewards], abs=1e-12)


def test_advantages_are_normalised_once():
    # ddof 0: [1,0,0,1] gives +-1, [1,1,1,0] gives 1/4 / 0.4330 = 0.5774 and -1.7321; the mean of a group is 0.
    advantages = group_advantages([[1, 0, 0, 1], [1, 1, 1, 0]], kind="population")
    assert advantages[0] == pytest.approx([1, -1, -1, 1], abs=1e-7)
    assert advantages[1] == pytest.approx([0.5773503, 0.5773503, 0.5773503, -1.7320508], abs=1e-6)
    assert [sum(group) for group in advantages] == pytest.approx([0, 0], abs=1e-12)


@kinds
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_reward_that_is_not_finite_is_refused(kind, bad):
    with pytest.raises(ValueError, match="finite"):
        group_advantages([[1.0, 0.0], [1.0, bad]], kind=kind)


@pytest.mark.parametrize("wrong", ["rloo", "", "Sample"])
def test_an_unknown_kind_is_refused_with_the_known_ones(wrong):
    with pytest.raises(ValueError, match="known are sample, population, mean_only, leave_one_out, batch"):
        group_advantages([[1.0, 0.0]], kind=wrong)


@kinds
@given(
    rewards_PG=st.lists(
        st.lists(st.one_of(st.none(), st.integers(-40, 40).map(lambda k: k / 8)), min_size=1, max_size=9),
        min_size=1,
        max_size=4,
    )
)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_agrees_with_the_oracle(kind, rewards_PG):
    ours, theirs = group_advantages(rewards_PG, kind=kind), oracle.advantages(rewards_PG, kind)
    assert [len(group) for group in ours] == [len(group) for group in rewards_PG]
    for group, wanted in zip(ours, theirs, strict=True):
        assert group == pytest.approx(wanted, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(
    ("rewards", "degenerate"),
    [
        ([1.0, 1.0], True),
        ([0.0, 0.0, None], True),
        ([1.0, None], True),
        ([None, None], True),
        ([1.0, 0.0], False),
        ([1.0, 0.0, None], False),
    ],
)
def test_a_group_teaches_nothing_when_its_known_rewards_are_equal(rewards, degenerate):
    assert is_degenerate(rewards) is degenerate
    assert (group_advantages([rewards]) == [[0.0] * len(rewards)]) is degenerate


@pytest.mark.parametrize(("size", "share"), [(2, 0.7048), (4, 0.4532), (8, 0.2044)])
def test_how_many_groups_teach_nothing_when_18_percent_of_the_answers_are_right(size, share):
    # p^G + (1 - p)^G, by enumeration of all groups
    total = 0.0
    for rewards in itertools.product([0.0, 1.0], repeat=size):
        right = sum(rewards)
        total += is_degenerate(rewards) * 0.18**right * 0.82 ** (size - right)
    assert total == pytest.approx(0.18**size + 0.82**size, abs=1e-12)
    assert total == pytest.approx(share, abs=5e-5)
