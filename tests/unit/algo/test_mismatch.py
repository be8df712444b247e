"""Weights for the numeric gap between engine and learner: not the policy ratio, and never a vanishing product."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gspo_ray.algo.losses import Objective, sequence_log_ratio
from gspo_ray.algo.mismatch import MismatchCorrection, MismatchMode, mismatch_weights
from tests.unit.algo import oracle
from tests.unit.algo.cases import random_batch, random_rows, run, tensors

MODES: tuple[MismatchMode, ...] = ("none", "sequence_truncate", "sequence_mask", "token_truncate")
modes = pytest.mark.parametrize("mode", MODES)


def weights_of(gaps, correction):
    """For one row a list of gaps (learner minus sampler)."""
    width = max(map(len, gaps))
    gap_BT = torch.tensor([[*row, *[math.nan] * (width - len(row))] for row in gaps], dtype=torch.float64)
    mask_BT = torch.arange(width) < torch.tensor([len(row) for row in gaps])[:, None]
    return mismatch_weights(gap_BT - 1.0, torch.full_like(gap_BT, -1.0), mask_BT, correction)


def test_a_steady_gap_does_not_switch_long_answers_off():
    # 4,000 tokens, -0.0007 each: the plain product exp(-2.8) = 0.0608 would; the mean is exp(-0.0007) = 0.9993.
    result = weights_of([[-0.0007] * 4000, [-0.0007] * 10], MismatchCorrection(mode="sequence_truncate"))
    assert result.weights.tolist() == pytest.approx([0.9993002] * 2, abs=1e-7)
    assert result.raw_B.tolist() == pytest.approx([0.9993002] * 2, abs=1e-7)


def test_the_policy_ratio_and_the_mismatch_weight_are_two_quantities():
    # The policy moved by 0.01 a token since sampling; the engine disagrees by -0.002: 1.010050 and 0.998002.
    now_BT, at_sampling_BT, engine_BT = (torch.full((1, 100), x, dtype=torch.float64) for x in (-0.99, -1.0, -0.998))
    mask_BT = torch.ones(1, 100, dtype=torch.bool)
    ratio = sequence_log_ratio(now_BT, at_sampling_BT, mask_BT).exp()
    weight = mismatch_weights(at_sampling_BT, engine_BT, mask_BT, MismatchCorrection(mode="sequence_truncate")).weights
    assert float(ratio) == pytest.approx(1.010050, abs=5e-7)
    assert float(weight) == pytest.approx(0.998002, abs=5e-7)


def test_truncation_by_hand_and_the_raw_weight_is_kept():
    # exp(mean): (0.5, 1.5) -> e = 2.718 -> 2; (-1, -3) -> e^-2 = 0.1353
    result = weights_of([[0.5, 1.5], [-1.0, -3.0, -2.0]], MismatchCorrection(mode="sequence_truncate", cap=2.0))
    assert result.weights.tolist() == pytest.approx([2.0, 0.1353353], abs=1e-7)
    assert result.raw_B.tolist() == pytest.approx([2.7182818, 0.1353353], abs=1e-7)
    assert result.touched_tokens_B.tolist() == [2, 0]


def test_the_mask_keeps_what_lies_in_the_band():
    gaps = [[math.log(w)] * 2 for w in (0.98, 0.995, 1.005, 1.02)]
    result = weights_of(gaps, MismatchCorrection(mode="sequence_mask", band_low=0.99, band_high=1.01))
    assert result.weights.tolist() == [0.0, 1.0, 1.0, 0.0]
    assert result.raw_B.tolist() == pytest.approx([0.98, 0.995, 1.005, 1.02], abs=1e-12)
    assert result.touched_tokens_B.tolist() == [2, 0, 0, 2]


def test_a_weight_on_the_edge_is_left_alone():
    # No gap at all: the weight is exactly 1, and cap and band end there.
    for mode in MODES:
        result = weights_of([[0.0, 0.0]], MismatchCorrection(mode=mode, cap=1.0, band_low=1.0, band_high=1.0))
        assert result.weights.flatten().unique().tolist() == [1.0]
        assert result.touched_tokens_B.tolist() == [0]


def test_a_masked_sequence_stays_in_the_divisor():
    batch = random_batch(spread=0.0)
    weights_B = torch.tensor([1.0, 0.0, 1.0, 0.0], dtype=torch.float64)
    result = run(batch, Objective(), batch.divisor(), weights=weights_B)
    assert float(result.loss) == pytest.approx(-float(batch.advantages_B[[0, 2]].sum()) / 4, abs=1e-15)
    assert not result.grad_BT[[1, 3]].any()


def test_tokens_are_truncated_one_by_one():
    # 4 -> 2, 1, 0.5; the mean of the raw weights is 5.5 / 3
    gaps = [[math.log(4), 0.0, math.log(0.5)], [0.0]]
    result = weights_of(gaps, MismatchCorrection(mode="token_truncate", cap=2.0))
    assert result.weights[0].tolist() == pytest.approx([2.0, 1.0, 0.5], abs=1e-12)
    assert float(result.weights[1, 0]) == 1.0
    assert result.raw_B.tolist() == pytest.approx([5.5 / 3, 1.0], abs=1e-12)
    assert result.touched_tokens_B.tolist() == [1, 0]


def test_the_default_changes_nothing():
    assert (MismatchCorrection().cap, MismatchCorrection().band_low, MismatchCorrection().band_high) == (
        2.0,
        0.99,
        1.01,
    )
    batch = random_batch(spread=0.5)
    result = mismatch_weights(batch.logprobs_BT, batch.old_BT, batch.mask_BT, MismatchCorrection())
    assert result.weights.tolist() == [1.0] * 4
    assert result.touched_tokens_B.tolist() == [0] * 4


@modes
def test_weights_carry_no_gradient(mode):
    batch = random_batch(padding=0.0)
    batch.logprobs_BT.requires_grad_(True)
    result = mismatch_weights(batch.logprobs_BT, batch.old_BT, batch.mask_BT, MismatchCorrection(mode=mode))
    assert not result.weights.requires_grad
    assert not result.raw_B.requires_grad


@modes
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("side", ["logprobs_BT", "old_BT"])
def test_a_logprob_that_is_not_finite_is_refused_and_not_masked_in_silence(mode, bad, side):
    batch = random_batch()
    getattr(batch, side)[2, 6] = bad
    with pytest.raises(ValueError, match="token 6 in row 2"):
        mismatch_weights(batch.logprobs_BT, batch.old_BT, batch.mask_BT, MismatchCorrection(mode=mode))


def test_a_weight_that_overflows_is_cut_like_any_other():
    result = weights_of([[800.0, 800.0]], MismatchCorrection(mode="sequence_truncate", cap=2.0))
    assert result.weights.tolist() == [2.0]
    assert result.raw_B.tolist() == [math.inf]  # and the raw number tells it


@modes
@given(seed=st.integers(0, 1000), lens=st.lists(st.integers(1, 8), min_size=1, max_size=5))
@settings(max_examples=20, deadline=None, derandomize=True)
def test_agrees_with_the_oracle(mode, seed, lens):
    rows = random_rows(seed, lens, spread=0.3)
    batch = tensors(rows)
    correction = MismatchCorrection(mode=mode, cap=1.1, band_low=0.9, band_high=1.2)
    result = mismatch_weights(batch.logprobs_BT, batch.old_BT, batch.mask_BT, correction)
    for i, row in enumerate(rows):
        n = len(row.logp)
        wanted = oracle.mismatch(row.logp, row.old, mode, 1.1, (0.9, 1.2))
        ours = result.weights[i, :n].numpy() if result.weights.dim() == 2 else np.full(n, float(result.weights[i]))
        np.testing.assert_allclose(ours, wanted, rtol=1e-12)
