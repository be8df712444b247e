"""The numbers of a step, each worked out by hand from a step small enough to see through."""

import math
from dataclasses import replace

import pytest

from gspo_ray.tracking.metrics import METRICS, length_buckets
from gspo_ray.tracking.step_metrics import step_metrics
from gspo_ray.types import Finish, Outcome
from tests.unit.factories import make_group, make_mismatch, make_record, make_sequence, make_update, make_verdict


def metrics(groups=None, updates=None, *, extra=None, **record):
    updates = [make_update([make_sequence()])] if updates is None else updates
    return step_metrics(make_record(groups, updates, **record), extra=extra or {}, eps_low=3e-4, eps_high=4e-4)


def everything():
    """A step in which every number exists: both signs, all lengths, a reference, a correction."""
    weighed = replace(make_mismatch(1e-4), raw_weight=1.1, touched_tokens=3)
    sequences = [
        replace(make_sequence(i, advantage=sign, tokens=low + 1), kl_k1_sum=0.1, kl_k3_sum=0.1, mismatch=weighed)
        for i, (sign, (_, low, _)) in enumerate(zip([1.0, -1.0] * 3, length_buckets(), strict=True))
    ]
    return metrics(updates=[make_update(sequences)], extra={"time/rollout_s": 2.0})


def test_every_emitted_name_is_in_the_glossary_and_every_value_a_finite_float():
    extra = {"time/rollout_s": 2.0, "sync/version": 1.0}
    for values in (
        everything(),
        metrics(extra=extra),
        metrics(updates=[make_update(updated=False, tokens=0)], extra=extra),
        metrics(updates=[make_update([make_sequence()], updated=False, nonfinite=("x",), norm=math.nan)]),
    ):
        assert values.keys() <= METRICS.keys()
        assert all(math.isfinite(value) for value in values.values())


def test_a_full_step_emits_every_name_of_the_glossary_but_those_of_the_controller():
    elsewhere = {name for name in METRICS if name.split("/")[0] in ("sync", "data", "time", "memory", "eval")}
    assert everything().keys() | elsewhere == METRICS.keys()


def test_several_updates_are_pooled_over_sequences_and_averaged_over_updates():
    first = make_update(
        [make_sequence(0, clipped=True), make_sequence(1), make_sequence(2)], loss=0.3, norm=2.0, tokens=100, seconds=1
    )
    second = make_update([make_sequence(0, clipped=True)], loss=-0.1, norm=4.0, tokens=50, seconds=2)
    values = metrics(updates=[first, second])
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
    values = metrics([replace(group, completions=(*group.completions[:2], cut))], extra={"time/rollout_s": 4.0})
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
    values = metrics([mixed, right, lost, silent])
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


def test_a_step_without_signal_has_no_ratio():
    flat = metrics([make_group((1.0, 1.0)), make_group((0.0, 0.0))], [make_update(updated=False, tokens=0, norm=0.0)])
    assert not [name for name in flat if name.startswith(("gspo/", "mismatch/", "staleness/"))]
    assert flat["learner/updates"] == 0.0
    assert flat["groups/effective_frac"] == 0.0
    assert "learner/grad_norm" not in flat
    assert "learner/tokens_per_s" not in flat


def test_a_refused_update_is_counted_and_kept_out_of_the_gradient_norm():
    refused = make_update([make_sequence()], updated=False, nonfinite=("q.lora_A", "k.lora_A"), norm=math.nan)
    values = metrics(updates=[make_update([make_sequence()], norm=2.0), refused])
    assert values["learner/grad_norm"] == 2.0
    assert (values["learner/updates"], values["learner/nonfinite_updates"]) == (1.0, 1.0)


def test_discarded_groups_were_sampled_and_paid_but_not_compared():
    mixed, right, wrong = make_group((1.0, 0.0)), make_group((1.0, 1.0)), make_group((0.0, 0.0))
    values = metrics([mixed], discarded=[right, wrong], refills=2)
    assert values["reward/mean"] == 3 / 6
    assert values["reward/shaped_mean"] == 1 / 2  # of the batch alone
    assert values["groups/degenerate_frac"] == values["groups/all_right_frac"] * 2 == pytest.approx(2 / 3)
    assert values["groups/effective_frac"] == pytest.approx(1 / 3)
    assert (values["groups/discarded"], values["groups/refills"]) == (2.0, 2.0)
    assert values["completion/tokens"] == 18.0  # 6 completions of 3


def test_advantages_and_what_is_left_out_by_hand():
    # 1, 0, 0, 0: mean 0.25, std 0.5 with N - 1: 1.5, -0.5, -0.5, -0.5
    values = metrics([make_group((1.0, 0.0, 0.0, 0.0))], counted_PG=[[True, True, True, False]])
    assert values["advantage/mean"] == pytest.approx(0.0, abs=1e-9)
    assert (values["advantage/min"], values["advantage/max"]) == pytest.approx((-0.5, 1.5))
    assert values["advantage/std"] == pytest.approx(math.sqrt(3) / 2)  # sqrt((2.25 + 3 * 0.25) / 4)
    assert values["completion/masked_frac"] == 0.25


def test_lengths_by_correct_and_wrong():
    group = make_group((1.0, 0.0, 0.0), [range(1, 5), range(1, 11), range(1, 21)])
    cut = replace(group.completions[2], finish=Finish.LENGTH)
    values = metrics([replace(group, completions=(*group.completions[:2], cut))])
    assert (values["completion/len_correct_mean"], values["completion/len_wrong_mean"]) == (4.0, 15.0)
    assert (values["completion/truncated_correct_frac"], values["completion/truncated_wrong_frac"]) == (0.0, 0.5)
    assert values["completion/len_p50"] == 10.0
    assert values["completion/len_p95"] == pytest.approx(19.0)  # 10 + 0.9 * (20 - 10)


def test_what_the_controller_measured_goes_through_unchanged():
    extra = {"time/step_s": 1.5, "sync/version": 4.0, "data/problems_seen": 8.0}
    values = metrics(extra=extra)
    assert {name: values[name] for name in extra} == extra
    assert "sampler/tokens_per_s" not in values
