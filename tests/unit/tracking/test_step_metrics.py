"""The numbers of a step, each worked out by hand from a step small enough to see through."""

import math
from dataclasses import replace

import pytest

from gspo_ray.algo.stats import SequenceStats, UpdateStats
from gspo_ray.tracking.metrics import METRICS
from gspo_ray.tracking.step_metrics import step_metrics
from gspo_ray.types import Finish, Outcome
from tests.unit.factories import make_group, make_verdict


def make_sequence(row=0, *, advantage=1.0, ratio=1.0, clipped=False, gap: float | None = 0.0, tokens=10, diff=0.0):
    return SequenceStats(
        row=row,
        advantage=advantage,
        log_ratio=math.log(ratio),
        clipped=clipped,
        mismatch_log_ratio=gap,
        token_abs_diff_sum=diff * tokens,
        token_abs_diff_max=2 * diff,
        num_tokens=tokens,
    )


def make_update(sequences=(), *, loss=0.0, norm=1.0, updated=True, nonfinite=(), tokens=100, seconds=2.0):
    return UpdateStats(
        loss=loss,
        grad_norm=norm,
        learning_rate=2e-4,
        updated=updated,
        nonfinite=nonfinite,
        num_sequences=8,
        sequences=tuple(sequences),
        tokens=tokens,
        seconds=seconds,
    )


def metrics(groups=None, updates=None, *, step=2, extra=None):
    return step_metrics(
        step,
        groups or [make_group()],
        [make_update([make_sequence()])] if updates is None else updates,
        extra=extra or {},
        eps_low=3e-4,
        eps_high=4e-4,
    )


def test_every_emitted_name_is_in_the_glossary_and_every_value_a_finite_float():
    extra = {"time/rollout_s": 2.0, "sync/version": 1.0}
    for step in (
        metrics(extra=extra),
        metrics(updates=[make_update(updated=False, tokens=0)], extra=extra),
        metrics(updates=[make_update([make_sequence()], updated=False, nonfinite=("x",), norm=math.nan)]),
    ):
        assert step.values.keys() <= METRICS.keys()
        assert all(math.isfinite(value) for value in step.values.values())


def test_a_full_step_emits_every_name_of_the_glossary_but_those_of_the_controller():
    emitted = metrics(extra={"time/rollout_s": 2.0}).values.keys()
    elsewhere = {name for name in METRICS if name.split("/")[0] in ("sync", "data", "time", "memory")}
    assert emitted | elsewhere == METRICS.keys()


def test_clip_fractions_by_side():
    # A22: s = 1.001, 0.999, 1.001, 0.999 with A = 1, 1, -1, -1; cut are the first (high) and the last (low)
    sequences = [
        make_sequence(0, ratio=1.001, advantage=1, clipped=True),
        make_sequence(1, ratio=0.999, advantage=1),
        make_sequence(2, ratio=1.001, advantage=-1),
        make_sequence(3, ratio=0.999, advantage=-1, clipped=True),
    ]
    values = metrics(updates=[make_update(sequences)]).values
    assert (values["gspo/clip_frac"], values["gspo/clip_frac_low"], values["gspo/clip_frac_high"]) == (0.5, 0.25, 0.25)
    assert values["gspo/ratio_mean"] == pytest.approx(1.0)
    assert values["gspo/ratio_std"] == pytest.approx(0.001)
    assert values["gspo/ratio_min"] == pytest.approx(0.999)
    assert values["gspo/ratio_max"] == pytest.approx(1.001)
    assert values["learner/trained_sequences"] == 4.0


def test_several_updates_are_pooled_over_sequences_and_averaged_over_updates():
    first = make_update(
        [make_sequence(0, clipped=True), make_sequence(1), make_sequence(2)], loss=0.3, norm=2.0, tokens=100, seconds=1
    )
    second = make_update([make_sequence(0, clipped=True)], loss=-0.1, norm=4.0, tokens=50, seconds=2)
    values = metrics(updates=[first, second]).values
    assert values["gspo/clip_frac"] == 0.5  # 2 of 4 sequences, not the mean of 1/3 and 1
    assert values["gspo/loss"] == pytest.approx(0.1)
    assert values["learner/grad_norm"] == 3.0
    assert values["learner/updates"] == 2.0
    assert values["learner/learning_rate"] == 2e-4
    assert values["learner/tokens"] == 150.0
    assert values["learner/tokens_per_s"] == 50.0  # 150 tokens in 3 s


def test_lengths_come_from_the_tokens_and_truncation_from_the_finish():
    # A15: lengths 10, 20, 64 (the limit): mean 31.33, max 64, a third truncated
    group = make_group((1.0, 0.0, 0.0), [range(1, 11), range(1, 21), range(1, 65)])
    cut = replace(group.completions[2], finish=Finish.LENGTH)
    values = metrics([replace(group, completions=(*group.completions[:2], cut))], extra={"time/rollout_s": 4.0}).values
    assert values["completion/tokens"] == 94.0
    assert values["completion/len_mean"] == pytest.approx(31.3333, abs=1e-4)
    assert values["completion/len_max"] == 64.0
    assert values["completion/truncated_frac"] == pytest.approx(1 / 3)
    assert values["sampler/tokens_per_s"] == 23.5  # 94 / 4


def test_rewards_and_outcomes_by_hand():
    mixed = make_group((1.0, 0.0), problem_id="a")
    right = make_group((1.0, 1.0), problem_id="b")
    lost = replace(
        make_group((0.0, 0.0), problem_id="c"),
        verdicts=(make_verdict(0.0, outcome=Outcome.TIMEOUT, seconds=5.0), make_verdict(0.0, outcome=Outcome.ERROR)),
    )
    silent = replace(
        make_group((0.0, 0.0), problem_id="d"), verdicts=(make_verdict(0.0, outcome=Outcome.NO_ANSWER),) * 2
    )
    values = metrics([mixed, right, lost, silent]).values
    assert values["reward/mean"] == 3 / 8
    assert values["reward/seconds_max"] == 5.0
    fractions = {o: values[f"outcome/{o}_frac"] for o in Outcome}
    assert fractions == {
        Outcome.CORRECT: 3 / 8,
        Outcome.WRONG: 1 / 8,
        Outcome.NO_ANSWER: 2 / 8,
        Outcome.TIMEOUT: 1 / 8,
        Outcome.ERROR: 1 / 8,
    }
    assert values["groups/degenerate_frac"] == 3 / 4
    assert values["groups/all_right_frac"] == 1 / 4
    assert values["groups/all_wrong_frac"] == 2 / 4


def test_the_mismatch_by_hand():
    # Gaps +5e-4 (above 4e-4), -5e-4 (below -3e-4), +3.5e-4 (inside above, though more than eps_low), -3.5e-4 (outside).
    sequences = [
        make_sequence(0, gap=5e-4, tokens=10, diff=0.01),
        make_sequence(1, gap=-5e-4, tokens=30, diff=0.03),
        make_sequence(2, gap=3.5e-4, tokens=10, diff=0.0),
        make_sequence(3, gap=-3.5e-4, tokens=10, diff=0.0),
    ]
    values = metrics(updates=[make_update(sequences)]).values
    assert values["mismatch/clip_frac"] == 3 / 4
    assert values["mismatch/seq_log_ratio_mean"] == pytest.approx(0.0, abs=1e-12)
    # sqrt((2 * 25 + 2 * 12.25) / 4) = 4.3157 (e-4)
    assert values["mismatch/seq_log_ratio_std"] == pytest.approx(4.3157e-4, rel=1e-4)
    assert values["mismatch/seq_log_ratio_max"] == pytest.approx(5e-4)
    # (10 * 0.01 + 30 * 0.03) / 60 tokens
    assert values["mismatch/token_abs_diff_mean"] == pytest.approx(1.0 / 60)
    assert values["mismatch/token_abs_diff_max"] == pytest.approx(0.06)


def test_an_unknown_mismatch_is_left_out_and_not_counted_as_zero():
    known, unknown = make_sequence(0, gap=2e-4, diff=0.01), make_sequence(1, gap=None)
    values = metrics(updates=[make_update([known, unknown])]).values
    assert values["mismatch/seq_log_ratio_mean"] == pytest.approx(2e-4)
    assert values["mismatch/token_abs_diff_mean"] == pytest.approx(0.01)
    assert not [name for name in metrics(updates=[make_update([unknown])]).values if name.startswith("mismatch/")]


def test_a_step_without_signal_has_no_ratio_and_a_note():
    flat = metrics([make_group((1.0, 1.0)), make_group((0.0, 0.0))], [make_update(updated=False, tokens=0, norm=0.0)])
    assert not [name for name in flat.values if name.startswith(("gspo/", "mismatch/"))]
    assert flat.values["learner/updates"] == 0.0
    assert "learner/grad_norm" not in flat.values
    assert "learner/tokens_per_s" not in flat.values
    assert len(flat.notes) == 1
    assert "within each group all rewards are equal" in flat.notes[0]


def test_a_refused_update_is_counted_named_and_kept_out_of_the_gradient_norm():
    refused = make_update([make_sequence()], updated=False, nonfinite=("q.lora_A", "k.lora_A"), norm=math.nan)
    step = metrics(updates=[make_update([make_sequence()], norm=2.0), refused])
    assert step.values["learner/grad_norm"] == 2.0
    assert (step.values["learner/updates"], step.values["learner/nonfinite_updates"]) == (1.0, 1.0)
    assert len(step.notes) == 1
    assert "2 tensors" in step.notes[0]
    assert "q.lora_A" in step.notes[0]


@pytest.mark.parametrize(("step", "noted"), [(1, True), (2, False), (21, True)])
def test_a_band_below_the_noise_is_said_now_and_then(step, noted):
    noisy = [make_sequence(0, gap=0.01), make_sequence(1, gap=-0.01)]  # std 0.01, a bfloat16 engine
    notes = metrics(updates=[make_update(noisy)], step=step).notes
    assert len(notes) == noted
    if noted:
        assert "1.0e-02" in notes[0]
        assert "100%" in notes[0]
        assert "model.dtype=float32" in notes[0]


def test_a_band_above_the_noise_is_not_worth_a_note():
    quiet = [make_sequence(0, gap=7e-6), make_sequence(1, gap=-7e-6)]
    assert metrics(updates=[make_update(quiet)], step=1).notes == ()


def test_what_the_controller_measured_goes_through_unchanged():
    extra = {"time/step_s": 1.5, "sync/version": 4.0, "data/problems_seen": 8.0}
    values = metrics(extra=extra).values
    assert {name: values[name] for name in extra} == extra
    assert "sampler/tokens_per_s" not in values
