"""Which rewards are compared, what length costs, and what is left out of loss and divisor."""

from dataclasses import replace

import pytest

from gspo_ray.algo.rewards import counted, judged_rewards, penalised, soft_length_penalty
from gspo_ray.types import Finish, Outcome
from tests.unit.factories import make_group, make_verdict


def group_with(outcomes, finishes=None, lens=None):
    """One completion an outcome; CORRECT is paid 1, everything else 0."""
    group = make_group([0.0] * len(outcomes), [range(10, 10 + n) for n in lens or [3] * len(outcomes)])
    finishes = finishes or [Finish.STOP] * len(outcomes)
    return replace(
        group,
        completions=tuple(replace(c, finish=f) for c, f in zip(group.completions, finishes, strict=True)),
        verdicts=tuple(make_verdict(float(o is Outcome.CORRECT), outcome=o) for o in outcomes),
    )


def test_a_failure_of_the_verifier_is_no_wrong_answer():
    group = group_with([Outcome.CORRECT, Outcome.ERROR, Outcome.WRONG, Outcome.TIMEOUT, Outcome.NO_ANSWER])
    assert judged_rewards(group) == [1.0, None, 0.0, 0.0, 0.0]
    assert counted(group, mask_truncated=False) == [True, False, True, True, True]


def test_truncated_completions_are_masked_only_when_asked_for():
    group = group_with([Outcome.CORRECT] * 3, [Finish.STOP, Finish.LENGTH, Finish.STOP])
    assert counted(group, mask_truncated=False) == [True, True, True]
    assert counted(group, mask_truncated=True) == [True, False, True]


def test_masking_truncated_completions_leaves_their_lengths_to_be_measured():
    # Lengths 10, 20, 64 (the limit): min, mean and max must stay 10, 31.33 and 64.
    group = group_with([Outcome.CORRECT] * 3, [Finish.STOP, Finish.STOP, Finish.LENGTH], lens=(10, 20, 64))
    assert counted(group, mask_truncated=True) == [True, True, False]
    assert [len(completion.token_ids) for completion in group.completions] == [10, 20, 64]


@pytest.mark.parametrize(
    ("length", "penalty"),
    [
        # DAPO eq. 13 with L_max = 100 and L_cache = 20
        (1, 0.0),
        (80, 0.0),
        (81, -0.05),  # (100 - 20 - 81) / 20
        (90, -0.5),
        (100, -1.0),
        (140, -1.0),  # longer than L_max: no more than -1
    ],
)
def test_the_length_penalty_falls_over_the_buffer(length, penalty):
    assert soft_length_penalty(length, max_tokens=100, buffer=20) == pytest.approx(penalty, abs=1e-12)


def test_the_penalty_is_added_to_what_was_judged():
    group = group_with([Outcome.CORRECT, Outcome.ERROR, Outcome.WRONG], lens=(10, 10, 5))
    # limit 10, buffer 4: length 10 costs 1, length 5 nothing; a missing reward stays missing
    assert penalised(judged_rewards(group), group, max_tokens=10, buffer=4) == [0.0, None, 0.0]
