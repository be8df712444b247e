import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gspo_ray.evaluation.per_problem import majority_vote, pass_at_k, reported_ks, sample_rates
from gspo_ray.types import Finish, Outcome
from tests.unit.evaluation.factories import make_sample


def test_pass_at_k_is_the_share_of_subsets_that_hold_a_correct_sample():
    for n in range(1, 9):
        for c in range(n + 1):
            correct = [index < c for index in range(n)]
            for k in range(1, n + 1):
                subsets = list(itertools.combinations(correct, k))
                assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, subsets)) / len(subsets), abs=1e-15)


@pytest.mark.parametrize(
    ("n", "c", "k", "expected"),
    [
        (4, 1, 4, 1.0),  # drawing with replacement would give 1 - (3/4)**4 = 0.684
        (8, 2, 4, 0.785714),  # 1 - C(6,4) / C(8,4) = 1 - 15/70; with replacement 0.683594
        (12, 0, 12, 0.0),
        (12, 5, 1, 5 / 12),
    ],
)
def test_pass_at_k_draws_without_replacement(n, c, k, expected):
    assert pass_at_k(n, c, k) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("n", "c", "k"), [(1, 1, 2), (4, 5, 1), (4, -1, 1), (4, 2, 0)])
def test_what_the_samples_cannot_tell_is_refused(n, c, k):
    with pytest.raises(ValueError, match=f"pass@{k}"):
        pass_at_k(n, c, k)


def test_one_sample_a_problem_reports_nothing_beyond_k_1():
    assert reported_ks(1) == (1,)
    assert set(sample_rates([make_sample()])) == {"average", "majority", "format", "truncated", "tokens"}


@pytest.mark.parametrize(("n", "ks"), [(2, (1, 2)), (3, (1, 2, 3)), (8, (1, 2, 4, 8)), (12, (1, 2, 4, 8, 12))])
def test_k_goes_up_in_powers_of_two_to_n(n, ks):
    assert reported_ks(n) == ks


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        (["7", "7", "8"], 1.0),
        (["8", "8", "7"], 0.0),
        (["7", "8", "7", "8"], 0.5),
        (["7", "8", "9"], 1 / 3),
        (["8", "9"], 0.0),
        ([None, None, "7"], 1.0),  # what has no answer does not vote
        ([None, None], 0.0),
        (["8 cm", "8  cm", "7"], 0.0),  # white space does not split a vote
        (["8", "8.0", "7"], 1 / 3),  # another spelling of a wrong answer does
    ],
)
def test_a_tie_is_worth_the_chance_of_a_fair_draw(answers, expected):
    assert majority_vote(answers, [answer == "7" for answer in answers]) == pytest.approx(expected)


def test_right_answers_vote_together_however_they_are_written():
    assert majority_vote(["1/2", "0.5", "2", "2"], [True, True, False, False]) == 0.5


@given(st.lists(st.sampled_from(["7", "8", "9", "10", None]), min_size=1, max_size=8), st.integers(0, 1000))
def test_the_order_of_samples_changes_no_vote(answers, start):
    rotated = answers[start % len(answers) :] + answers[: start % len(answers)]
    assert majority_vote(rotated, [a == "7" for a in rotated]) == majority_vote(answers, [a == "7" for a in answers])


def test_the_numbers_of_a_problem_from_its_samples():
    samples = [
        make_sample(Outcome.CORRECT, completion_tokens=10),
        make_sample(Outcome.WRONG, completion_tokens=20),
        make_sample(Outcome.NO_ANSWER, completion_tokens=64, finish=Finish.LENGTH),
        make_sample(Outcome.TIMEOUT, completion_tokens=30),
    ]
    rates = sample_rates(samples)
    assert rates == {
        "average": 1 / 4,
        "pass@2": 1 / 2,  # 3 of the 6 pairs hold the correct one
        "pass@4": 1.0,
        "majority": 0.0,  # "8" twice (wrong, timed out), "7" once
        "format": 3 / 4,
        "truncated": 1 / 4,
        "tokens": 31.0,
    }


def test_the_average_of_hits_1_0_1_0_is_a_half():
    hits = [Outcome.CORRECT, Outcome.WRONG, Outcome.CORRECT, Outcome.WRONG]
    assert math.isclose(sample_rates([make_sample(outcome) for outcome in hits])["average"], 0.5)
