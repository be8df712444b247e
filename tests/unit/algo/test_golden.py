"""Numbers of a published GSPO tutorial (float64, band 0.8 .. 1.2): where GRPO and GSPO part, worked out by hand."""

import math

import pytest
import torch

from gspo_ray.algo.advantages import group_advantages
from gspo_ray.algo.losses import Objective, sequence_log_ratio
from tests.unit.algo.cases import VARIANTS, Batch, run


def batch_of(ratios_BT, advantages):
    """Old log-probs 0, so that a token's log-prob is the logarithm of its ratio."""
    logprobs_BT = torch.tensor(ratios_BT, dtype=torch.float64).log()
    advantages_B = torch.tensor(advantages, dtype=torch.float64)
    return Batch(
        logprobs_BT=logprobs_BT,
        old_BT=torch.zeros_like(logprobs_BT),
        mask_BT=torch.ones_like(logprobs_BT, dtype=torch.bool),
        advantages_B=advantages_B,
        advantages_BT=advantages_B[:, None].expand_as(logprobs_BT),
        weights_BT=torch.ones_like(logprobs_BT),
        reference_BT=torch.zeros_like(logprobs_BT),
    )


def maximised(batch, variant):
    """(value of the objective, its gradient), both to be maximised."""
    result = run(batch, Objective(variant=variant, eps_low=0.2, eps_high=0.2), batch.divisor())
    return -float(result.loss), (-result.grad_BT).tolist()


@pytest.mark.parametrize(
    ("variant", "advantage", "value", "gradient"),
    [
        # Token ratios 0.5 and 2 cancel: the sequence ratio is 1, nothing is cut, each token gets s A / n = 0.5.
        ("gspo", +1, 1.0, [0.5, 0.5]),
        ("gspo_token", +1, 1.0, [0.5, 0.5]),
        ("gspo", -1, -1.0, [-0.5, -0.5]),
        ("gspo_token", -1, -1.0, [-0.5, -0.5]),
        # GRPO, rewarded: (min(0.5, 0.8) + min(2, 1.2)) / 2 = 0.85; token 1 keeps 0.5 / 2, token 2 is cut.
        ("grpo", +1, 0.85, [0.25, 0.0]),
        # Punished: (min(-0.5, -0.8) + min(-2, -1.2)) / 2 = -1.4; token 1 is cut, token 2 keeps -2 / 2.
        ("grpo", -1, -1.4, [0.0, -1.0]),
    ],
)
def test_token_ratios_that_cancel(variant, advantage, value, gradient):
    measured_value, measured_gradient = maximised(batch_of([[0.5, 2.0]], [advantage]), variant)
    assert measured_value == pytest.approx(value, abs=1e-12)
    assert measured_gradient[0] == pytest.approx(gradient, abs=1e-12)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    ("ratio", "advantage", "value", "each"),
    [
        (1.3, +1, 1.2, 0.0),
        (0.7, +1, 0.7, 0.35),  # s A / n = 0.7 / 2
        (1.3, -1, -1.3, -0.65),
        (0.7, -1, -0.8, 0.0),
    ],
)
def test_the_four_corners_of_the_clip(variant, ratio, advantage, value, each):
    measured_value, measured_gradient = maximised(batch_of([[ratio, ratio]], [advantage]), variant)
    assert measured_value == pytest.approx(value, abs=1e-12)
    assert measured_gradient[0] == pytest.approx([each, each], abs=1e-12)


@pytest.mark.parametrize(("length", "product"), [(2, 1.0201), (100, 2.7048138), (1000, 20959.1555)])
def test_the_length_is_normalised_away(length, product):
    # 1.01 a token: the raw ratio of the sequence is 1.01^n, GSPO's is 1.01 whatever n.
    batch = batch_of([[1.01] * length], [1.0])
    log_ratio = float(sequence_log_ratio(batch.logprobs_BT, batch.old_BT, batch.mask_BT))
    assert math.exp(log_ratio * length) == pytest.approx(product, rel=1e-7)
    assert math.exp(log_ratio) == pytest.approx(1.01, abs=1e-12)
    assert maximised(batch, "gspo")[0] == pytest.approx(1.01, abs=1e-12)


def test_normalisation_breaks_the_importance_sampling_identity():
    # Two answers of two tokens. pi_old: 0.5 and 0.5; pi: 0.8 and 0.2; f = 1 for the first. E_pi[f] = 0.8.
    old = torch.tensor([0.5, 0.5], dtype=torch.float64)
    logprobs_BT = torch.tensor([[0.8, 1.0], [0.2, 1.0]], dtype=torch.float64).log()
    old_BT = torch.tensor([[0.5, 1.0], [0.5, 1.0]], dtype=torch.float64).log()
    log_s_B = sequence_log_ratio(logprobs_BT, old_BT, torch.ones(2, 2, dtype=torch.bool))
    f = torch.tensor([1.0, 0.0], dtype=torch.float64)
    # E_old[raw ratio * f] = 0.5 * 1.6 = 0.8, the identity; with the root 0.5 * sqrt(1.6) = 0.63246.
    assert float((old * (2 * log_s_B).exp() * f).sum()) == pytest.approx(0.8, abs=1e-12)
    assert float((old * log_s_B.exp() * f).sum()) == pytest.approx(0.63246, abs=5e-6)


@pytest.mark.parametrize(
    ("rewards", "wanted"),
    [
        ([0.0, 0.5, 0.5, 1.0], [-1.41421356, 0, 0, 1.41421356]),  # std (ddof 0) sqrt(0.125)
        ([1.0, 0.0, 0.0, 0.0], [1.7320508, -0.5773503, -0.5773503, -0.5773503]),
        ([1.0, 1.0, 1.0, 1.0], [0, 0, 0, 0]),
    ],
)
def test_advantages_with_the_population_standard_deviation(rewards, wanted):
    assert group_advantages([rewards], kind="population")[0] == pytest.approx(wanted, abs=1e-6)


def test_the_first_step_of_grpo_is_that_of_gspo():
    # On policy all ratios are 1; answers of 2 tokens, so that the token mean is the same division.
    batch = batch_of([[1.0, 1.0]] * 4, [-1.41421356, 0.0, 0.0, 1.41421356])
    (grpo_value, grpo_gradient), (gspo_value, gspo_gradient) = maximised(batch, "grpo"), maximised(batch, "gspo")
    assert grpo_value == pytest.approx(gspo_value, abs=1e-15)
    assert grpo_gradient == gspo_gradient
    assert gspo_gradient[3] == pytest.approx([1.41421356 / 8] * 2, abs=1e-12)
