"""Ratios, clips, staleness, mismatch and KL, each worked out by hand."""

import math
from dataclasses import replace

import pytest

from gspo_ray.tracking.objective_metrics import objective_metrics
from tests.unit.factories import make_mismatch, make_sequence, make_update


def metrics(updates):
    return objective_metrics(updates, eps_low=3e-4, eps_high=4e-4)


def test_clip_fractions_by_side():
    # A22: s = 1.001, 0.999, 1.001, 0.999 with A = 1, 1, -1, -1; cut are the first (high) and the last (low)
    sequences = [
        make_sequence(0, ratio=1.001, advantage=1, clipped=True),
        make_sequence(1, ratio=0.999, advantage=1),
        make_sequence(2, ratio=1.001, advantage=-1),
        make_sequence(3, ratio=0.999, advantage=-1, clipped=True),
    ]
    values = metrics([make_update(sequences)])
    assert (values["gspo/clip_frac"], values["gspo/clip_frac_low"], values["gspo/clip_frac_high"]) == (0.5, 0.25, 0.25)
    assert values["gspo/ratio_mean"] == pytest.approx(1.0)
    assert values["gspo/ratio_std"] == pytest.approx(0.001)
    assert values["gspo/ratio_min"] == pytest.approx(0.999)
    assert values["gspo/ratio_max"] == pytest.approx(1.001)
    assert (values["gspo/clip_frac_positive"], values["gspo/clip_frac_negative"]) == (0.5, 0.5)


def test_the_mismatch_by_hand():
    # Gaps +5e-4 (above 4e-4), -5e-4 (below -3e-4), +3.5e-4 (inside above, though more than eps_low), -3.5e-4 (outside).
    sequences = [
        make_sequence(0, gap=5e-4, tokens=10, diff=0.01),
        make_sequence(1, gap=-5e-4, tokens=30, diff=0.03),
        make_sequence(2, gap=3.5e-4, tokens=10, diff=0.0),
        make_sequence(3, gap=-3.5e-4, tokens=10, diff=0.0),
    ]
    values = metrics([make_update(sequences)])
    assert values["mismatch/outside_frac"] == 3 / 4
    assert values["mismatch/clip_frac"] == 1 / 4  # all advantages are positive: only the one above is cut
    assert values["mismatch/seq_log_ratio_mean"] == pytest.approx(0.0, abs=1e-12)
    # sqrt((2 * 25 + 2 * 12.25) / 4) = 4.3157 (e-4)
    assert values["mismatch/seq_log_ratio_std"] == pytest.approx(4.3157e-4, rel=1e-4)
    assert values["mismatch/seq_log_ratio_max"] == pytest.approx(5e-4)
    # (10 * 0.01 + 30 * 0.03) / 60 tokens
    assert values["mismatch/token_abs_diff_mean"] == pytest.approx(1.0 / 60)
    assert values["mismatch/token_abs_diff_max"] == pytest.approx(0.06)


def test_an_unknown_mismatch_is_left_out_and_not_counted_as_zero():
    known, unknown = make_sequence(0, gap=2e-4, diff=0.01), make_sequence(1, gap=None)
    values = metrics([make_update([known, unknown])])
    assert values["mismatch/seq_log_ratio_mean"] == pytest.approx(2e-4)
    assert values["mismatch/token_abs_diff_mean"] == pytest.approx(0.01)
    assert not [name for name in metrics([make_update([unknown])]) if name.startswith("mismatch/")]


def test_outside_the_band_is_not_yet_cut():
    # Two lie outside; the clip cuts the one that is pushed further out.
    sequences = [make_sequence(0, ratio=1.01, clipped=True), make_sequence(1, ratio=1.01, advantage=-1, outside=True)]
    values = metrics([make_update([*sequences, make_sequence(2), make_sequence(3)])])
    assert (values["gspo/outside_frac"], values["gspo/clip_frac"]) == (0.5, 0.25)


def test_the_token_share_of_the_clip_counts_tokens():
    sequences = [make_sequence(0, tokens=90, clipped=True), make_sequence(1, tokens=10)]
    values = metrics([make_update(sequences)])
    assert (values["gspo/clip_frac"], values["gspo/clip_token_frac"]) == (0.5, 0.9)


def test_clips_by_length():
    sequences = [make_sequence(0, tokens=31, clipped=True), make_sequence(1, tokens=32), make_sequence(2, tokens=9000)]
    values = metrics([make_update(sequences)])
    by_length = {name: value for name, value in values.items() if "_len_" in name}
    assert by_length == {
        "gspo/clip_frac_len_0_31": 1.0,
        "gspo/clip_frac_len_32_127": 0.0,
        "gspo/clip_frac_len_8192_up": 0.0,
    }


def test_token_clips_count_by_their_share_of_the_sequence():
    half = replace(make_sequence(0, tokens=10), clipped_tokens=5, outside_tokens=7)
    values = metrics([make_update([half, make_sequence(1, tokens=10)])])
    assert values["gspo/clip_frac"] == 0.25  # (5/10 + 0) / 2
    assert values["gspo/outside_frac"] == pytest.approx(0.35)


def test_percentiles_of_the_ratio():
    values = metrics([make_update([make_sequence(i, ratio=1 + i / 100) for i in range(101)])])  # 1.00 ... 2.00
    assert values["gspo/ratio_p01"] == pytest.approx(1.01)
    assert values["gspo/ratio_p99"] == pytest.approx(1.99)


def test_token_ratios_are_the_extremes_of_all_sequences():
    low = replace(make_sequence(0), token_log_ratio_min=math.log(0.5), token_log_ratio_max=math.log(1.5))
    high = replace(make_sequence(1), token_log_ratio_min=math.log(0.9), token_log_ratio_max=math.log(3.0))
    values = metrics([make_update([low, high])])
    assert values["gspo/token_ratio_min"] == pytest.approx(0.5)
    assert values["gspo/token_ratio_max"] == pytest.approx(3.0)


def test_staleness_and_mismatch_are_told_apart():
    # The updates have moved the policy by 0.01 and 0.03; the engine was off by 1e-4 in both.
    sequences = [make_sequence(0, ratio=math.exp(0.01), gap=1e-4), make_sequence(1, ratio=math.exp(0.03), gap=1e-4)]
    values = metrics([make_update(sequences)])
    assert values["staleness/seq_log_ratio_mean"] == pytest.approx(0.02)
    assert values["staleness/seq_log_ratio_std"] == pytest.approx(0.01)
    assert values["staleness/seq_log_ratio_max"] == pytest.approx(0.03)
    assert values["mismatch/seq_log_ratio_mean"] == pytest.approx(1e-4)
    assert values["mismatch/seq_log_ratio_std"] == pytest.approx(0.0, abs=1e-12)


def test_correction_weights_before_they_are_cut():
    cut = replace(make_mismatch(), raw_weight=3.0, touched_tokens=10)
    kept = replace(make_mismatch(), raw_weight=0.9, touched_tokens=0)
    sequences = [replace(make_sequence(i, tokens=n), mismatch=m) for i, (n, m) in enumerate([(10, cut), (30, kept)])]
    values = metrics([make_update(sequences)])
    assert values["mismatch/raw_weight_mean"] == pytest.approx(1.95)
    assert (values["mismatch/raw_weight_min"], values["mismatch/raw_weight_max"]) == (0.9, 3.0)
    assert values["mismatch/touched_frac"] == 0.25  # 10 of 40 tokens


def test_the_kl_is_a_mean_over_tokens_and_covers_sequences_without_advantage():
    sequences = [
        replace(make_sequence(0, tokens=10), kl_k1_sum=1.0, kl_k3_sum=0.5),
        replace(make_sequence(1, advantage=0.0, tokens=30), kl_k1_sum=-0.2, kl_k3_sum=1.5),
    ]
    values = metrics([make_update(sequences, kl_loss=0.04)])
    assert values["kl/k1"] == pytest.approx(0.02)  # 0.8 / 40
    assert values["kl/k3"] == pytest.approx(0.05)  # 2 / 40
    assert values["kl/loss"] == 0.04
    assert values["gspo/clip_token_frac"] == 0.0  # of the one sequence with an advantage
    assert "kl/k1" not in metrics([make_update([make_sequence()])])
