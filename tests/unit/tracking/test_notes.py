"""Words: when they come, what they say, and that they are not said again."""

import math

import pytest

from gspo_ray.tracking.notes import FLAT_STEPS, StepNotes
from gspo_ray.tracking.step_metrics import step_metrics
from tests.unit.factories import make_group, make_record, make_sequence, make_update


def make_notes(old_logprobs="learner"):
    return StepNotes(eps_low=3e-4, eps_high=4e-4, old_logprobs=old_logprobs)


def about(notes, record):
    return notes.about(record, step_metrics(record, extra={}, eps_low=3e-4, eps_high=4e-4))


SIGNAL = make_record([make_group()], [make_update([make_sequence()])])
FLAT = make_record([make_group((0.0, 0.0))], [make_update(updated=False, tokens=0)])
NOISY = make_record(  # std 0.01, a bfloat16 engine
    [make_group()], [make_update([make_sequence(0, gap=0.01), make_sequence(1, gap=-0.01)])]
)


def test_a_step_with_signal_and_no_trouble_needs_no_words():
    assert about(make_notes(), SIGNAL) == []


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ([(0.0, 0.0)], "every completion was wrong"),
        ([(1.0, 1.0)], "every completion was right"),
        ([(1.0, 1.0), (0.0, 0.0)], "within each group all rewards are equal"),
    ],
)
def test_a_step_without_signal_says_why(groups, words):
    (note,) = about(make_notes(), make_record([make_group(rewards) for rewards in groups], [make_update()]))
    assert words in note


@pytest.mark.parametrize(
    ("old_logprobs", "words"), [("learner", "keeps the gap out"), ("sampler", "The clip acts on noise. Two remedies")]
)
def test_a_band_below_the_noise_is_said_once_with_the_numbers(old_logprobs, words):
    notes = make_notes(old_logprobs)
    (note,) = about(notes, NOISY)
    assert "1.0e-02" in note
    assert "-0.0003 / +0.0004" in note
    assert "100%" in note
    assert words in note
    assert "old_logprobs=learner" in note
    assert "model.dtype=float32" in note
    assert about(notes, NOISY) == []


def test_a_band_above_the_noise_is_not_worth_a_note():
    quiet = [make_sequence(0, gap=7e-6), make_sequence(1, gap=-7e-6)]
    assert about(make_notes(), make_record([make_group()], [make_update(quiet)])) == []


def test_a_refused_update_is_named():
    refused = make_update([make_sequence()], updated=False, nonfinite=("q.lora_A", "k.lora_A"), norm=math.nan)
    (note,) = about(make_notes(), make_record([make_group()], [refused]))
    assert "2 tensors, first q.lora_A" in note


def test_discarded_groups_are_counted_and_named():
    record = make_record(
        [make_group(), make_group((0.0, 0.0))],
        [make_update([make_sequence()])],
        discarded=[make_group((1.0, 1.0), problem_id="easy"), make_group((0.0, 0.0), problem_id="hard")],
        refills=2,
    )
    (note,) = about(make_notes(), record)
    assert "replaced 2 groups" in note
    assert "in 2 tries (problems easy, hard)" in note
    assert "1 groups are still without one" in note


def test_many_flat_steps_in_a_row_are_said_when_they_have_lasted():
    notes = make_notes()
    assert not [note for _ in range(FLAT_STEPS - 1) for note in about(notes, FLAT) if "In each of the last" in note]
    assert about(notes, SIGNAL) == []  # the count starts again
    said = [any("In each of the last 5 steps" in note for note in about(notes, FLAT)) for _ in range(FLAT_STEPS + 2)]
    assert said == [False] * (FLAT_STEPS - 1) + [True, False, False]
