"""The objective against tables worked out by hand."""

import math

import pytest
import torch

from gspo_ray.algo.aggregation import Divisor
from gspo_ray.algo.losses import Objective, policy_loss, sequence_log_ratio
from tests.unit.algo.cases import AGGREGATIONS, ESTIMATORS, VARIANTS, Batch, random_batch, run

PAPER = Objective()
variants = pytest.mark.parametrize("variant", VARIANTS)


def equal_tokens(ratios, advantages, *, tokens=4):
    """Every token of row i has the ratio ratios[i], so the sequence has it too, and the variants agree."""
    logprobs_BT = torch.tensor(ratios, dtype=torch.float64).log()[:, None].repeat(1, tokens)
    advantages_B = torch.tensor(advantages, dtype=torch.float64)
    return Batch(
        logprobs_BT=logprobs_BT,
        old_BT=torch.zeros_like(logprobs_BT),
        mask_BT=torch.ones_like(logprobs_BT, dtype=torch.bool),
        advantages_B=advantages_B,
        advantages_BT=advantages_B[:, None].repeat(1, tokens),
        weights_BT=torch.ones_like(logprobs_BT),
        reference_BT=torch.zeros_like(logprobs_BT),
    )


def objective_and_slope(ratio, advantage, objective):
    """The value to be maximised, its derivative by the ratio, and the terms, for one sequence."""
    batch = equal_tokens([ratio], [advantage])
    result = run(batch, objective, batch.divisor())
    # Moving all log-probs by d moves every ratio by ratio * d: d(objective) / d(ratio) = -sum(grad) / ratio.
    return -float(result.loss), -float(result.grad_BT.sum()) / ratio, result.terms


def test_the_defaults_are_the_papers():
    # Section 5.1: left and right clipping range 3e-4 and 4e-4; no KL term; eq. 5: mean over the sequences.
    assert (PAPER.variant, PAPER.eps_low, PAPER.eps_high) == ("gspo", 3e-4, 4e-4)
    assert (PAPER.aggregation, PAPER.kl_coef) == ("sequence_mean", 0.0)


@variants
@pytest.mark.parametrize(
    ("ratio", "advantage", "value", "slope"),
    [
        (1.001, +1, 1.0004, 0),  # above the band, rewarded: cut at 1 + eps_high
        (1.001, -1, -1.001, -1),  # above the band, punished: min() keeps the gradient
        (0.999, +1, 0.999, 1),  # below the band, rewarded: keeps
        (0.999, -1, -0.9997, 0),  # below the band, punished: cut at 1 - eps_low
        (1.00035, +1, 1.00035, 1),  # inside 4e-4, outside 3e-4: catches low and high swapped
        (0.99965, -1, -0.9997, 0),  # outside 3e-4, inside 4e-4: the same from below
        (1.0, +1, 1.0, 1),
        (1.0, -1, -1.0, -1),
        (1.001, 0, 0, 0),  # no advantage: nothing, and nothing that counts as cut
    ],
)
def test_the_clip_table_of_the_papers_band(variant, ratio, advantage, value, slope):
    measured_value, measured_slope, terms = objective_and_slope(ratio, advantage, Objective(variant=variant))
    assert measured_value == pytest.approx(value, abs=1e-12)
    assert measured_slope == pytest.approx(slope, abs=1e-12)
    assert terms.clipped_tokens_B.tolist() == [4 if slope == 0 and advantage else 0]


@variants
def test_the_clip_fraction_follows_the_sign_of_the_advantage(variant):
    # All four lie outside the band; only #1 (rewarded, above) and #4 (punished, below) are cut.
    batch = equal_tokens([1.001, 0.999, 1.001, 0.999], [1.0, 1.0, -1.0, -1.0], tokens=3)
    terms = run(batch, Objective(variant=variant), batch.divisor()).terms
    assert terms.clipped_tokens_B.tolist() == [3, 0, 0, 3]
    assert terms.outside_tokens_B.tolist() == [3, 3, 3, 3]
    assert terms.log_ratio_B.exp().tolist() == pytest.approx([1.001, 0.999, 1.001, 0.999], abs=1e-12)


def test_clipped_tokens_are_counted_one_by_one_in_grpo_and_all_or_none_in_gspo():
    # Ratios 2, 1.1, 0.5 with band 0.8..1.2, A = +1: token 1 is cut, tokens 1 and 3 are outside.
    # Sequence ratio (2 * 1.1 * 0.5)^(1/3) = 1.1^(1/3) = 1.0323: inside.
    logprobs_BT = torch.tensor([[2.0, 1.1, 0.5]], dtype=torch.float64).log()
    batch = equal_tokens([1.0], [1.0], tokens=3)._replace(logprobs_BT=logprobs_BT)
    token = run(batch, Objective(variant="grpo", eps_low=0.2, eps_high=0.2), batch.divisor()).terms
    whole = run(batch, Objective(variant="gspo", eps_low=0.2, eps_high=0.2), batch.divisor()).terms
    assert (token.clipped_tokens_B.tolist(), token.outside_tokens_B.tolist()) == ([1], [2])
    assert (whole.clipped_tokens_B.tolist(), whole.outside_tokens_B.tolist()) == ([0], [0])
    assert float(whole.token_log_ratio_max_B) == pytest.approx(math.log(2), abs=1e-15)
    assert float(whole.token_log_ratio_min_B) == pytest.approx(-math.log(2), abs=1e-15)


@variants
def test_a_ratio_on_the_edge_of_the_band_is_neither_outside_nor_cut(variant):
    # A band of no width, and on policy: the ratio is exactly 1, which is both edges.
    batch = random_batch(spread=0.0)
    result = run(batch, Objective(variant=variant, eps_low=0.0, eps_high=0.0), batch.divisor())
    assert not result.terms.outside_tokens_B.any()
    assert not result.terms.clipped_tokens_B.any()
    assert result.grad_BT.sum(-1).tolist() == pytest.approx((-batch.advantages_B / 4).tolist(), abs=1e-15)


def test_the_ratio_is_the_exponential_of_the_mean_and_not_of_the_sum():
    # log-ratio 0.01 on each of 100 tokens: exp(0.01) = 1.010050; exp(sum) would be e = 2.718282
    log_ratio_B = sequence_log_ratio(
        torch.full((1, 100), -0.99, dtype=torch.float64),
        torch.full((1, 100), -1.0, dtype=torch.float64),
        torch.ones(1, 100, dtype=torch.bool),
    )
    assert float(log_ratio_B.exp()) == pytest.approx(1.010050, abs=5e-7)


def test_the_end_token_counts_in_the_length():
    # A sum of 0.05 over five tokens (EOS among them) is 1.010050; over four it would be 1.012578.
    diff_BT = torch.full((1, 5), 0.01, dtype=torch.float64)
    ratio = sequence_log_ratio(diff_BT, torch.zeros_like(diff_BT), torch.ones(1, 5, dtype=torch.bool)).exp()
    assert float(ratio) == pytest.approx(1.010050, abs=5e-7)


@variants
def test_on_policy_every_token_gets_minus_the_advantage_over_sequences_times_length(variant):
    batch = random_batch(spread=0.0)  # 5, 2, 7, 1 tokens
    divisor = batch.divisor(more_sequences=5)  # N = 9
    loss, grad_BT, terms = run(batch, Objective(variant=variant), divisor)
    # ratio 1 and its derivative 1/n (gspo) or a mean over n tokens (token forms): -A / (N n) either way.
    for row, n in enumerate((5, 2, 7, 1)):
        wanted = -float(batch.advantages_B[row]) / (9 * n)
        assert grad_BT[row, :n].tolist() == pytest.approx([wanted] * n, abs=1e-15)
    assert float(loss) == pytest.approx(-float(batch.advantages_B.sum()) / 9, abs=1e-15)
    assert terms.log_ratio_B.tolist() == [0.0] * 4
    assert not terms.clipped_tokens_B.any()


@pytest.mark.parametrize(
    ("aggregation", "values"),
    [
        # Rows of 1 and 3 tokens, advantages 2 and -1, ratio 1. N = 2, 4 tokens, limit 10.
        ("sequence_mean", (2 / 2, -1 / 2 / 3)),  # A / (N n)
        ("token_mean", (2 / 4, -1 / 4)),  # A / tokens
        ("constant_length", (2 / 20, -1 / 20)),  # A / (N * 10)
    ],
)
@variants
def test_what_one_token_weighs(variant, aggregation, values):
    batch = random_batch(lens=(1, 3), spread=0.0)._replace(advantages_B=torch.tensor([2.0, -1.0], dtype=torch.float64))
    divisor = Divisor(num_sequences=2, num_tokens=4, max_tokens=10)
    loss, grad_BT, _ = run(batch, Objective(variant=variant, aggregation=aggregation), divisor)
    assert grad_BT[0].tolist() == pytest.approx([-values[0], 0, 0], abs=1e-15)
    assert grad_BT[1].tolist() == pytest.approx([-values[1]] * 3, abs=1e-15)
    assert float(loss) == pytest.approx(-values[0] - 3 * values[1], abs=1e-15)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("spread", [1e-4, 1e-3, 0.3])
def test_the_token_form_equals_the_sequence_form_with_constant_advantages(aggregation, spread):
    batch = random_batch(lens=(5, 2, 7, 1, 4, 4), spread=spread)
    sequence = run(batch, Objective(variant="gspo", aggregation=aggregation), batch.divisor())
    objective = Objective(variant="gspo_token", aggregation=aggregation)
    for advantages in (batch.advantages_B, batch.advantages_BT):
        token = run(batch, objective, batch.divisor(), advantages=advantages)
        assert float(token.loss) == pytest.approx(float(sequence.loss), abs=1e-14)
        torch.testing.assert_close(token.grad_BT, sequence.grad_BT, rtol=0, atol=1e-14)
        assert torch.equal(token.terms.clipped_tokens_B, sequence.terms.clipped_tokens_B)
        assert torch.equal(token.terms.outside_tokens_B, sequence.terms.outside_tokens_B)


def test_token_ratios_differ_from_the_sequence_ratio_once_off_policy():
    batch = random_batch(spread=0.05)
    grpo = run(batch, Objective(variant="grpo", eps_low=0.9, eps_high=9), batch.divisor())
    gspo = run(batch, Objective(variant="gspo", eps_low=0.9, eps_high=9), batch.divisor())
    assert not torch.allclose(grpo.grad_BT, gspo.grad_BT, atol=1e-4)


@variants
def test_nothing_but_the_current_logprobs_gets_a_gradient(variant):
    batch = random_batch(padding=0.0)
    weights_B = torch.full((4,), 0.7, dtype=torch.float64)
    others = (batch.old_BT, batch.advantages_B, weights_B, batch.reference_BT)
    for tensor in (batch.logprobs_BT, *others):
        tensor.requires_grad_(True)
    loss, terms = policy_loss(
        batch.logprobs_BT,
        batch.old_BT,
        batch.mask_BT,
        batch.advantages_B,
        objective=Objective(variant=variant, kl_coef=0.1),
        divisor=batch.divisor(),
        weights=weights_B,
        reference_logprobs_BT=batch.reference_BT,
    )
    loss.backward()
    assert batch.logprobs_BT.grad is not None
    assert [tensor.grad for tensor in others] == [None] * 4
    assert not any(term.requires_grad for term in terms if term is not None)


@variants
def test_a_weight_multiplies_the_policy_term_of_its_sequence_after_the_clip(variant):
    batch = equal_tokens([1.001, 1.001, 1.0], [1.0, -1.0, 1.0])
    weights_B = torch.tensor([0.5, 2.0, 0.0], dtype=torch.float64)
    result = run(batch, Objective(variant=variant), batch.divisor(), weights=weights_B)
    # (0.5 * 1.0004 - 2 * 1.001 + 0) / 3; the second keeps its slope, twice; the first is cut, the third has no weight.
    assert float(result.loss) == pytest.approx((2 * 1.001 - 0.5 * 1.0004) / 3, abs=1e-12)
    assert result.grad_BT.sum(-1).tolist() == pytest.approx([0, 2 * 1.001 / 3, 0], abs=1e-12)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_the_kl_term_is_added_to_the_loss_and_pulls_towards_the_reference(estimator):
    batch = equal_tokens([1.0], [0.0], tokens=2)._replace(reference_BT=torch.full((1, 2), -0.5, dtype=torch.float64))
    objective = Objective(kl_coef=0.1, kl_estimator=estimator)
    result = run(batch, objective, batch.divisor(more_sequences=4), reference=batch.reference_BT)
    # x = log reference - log policy = -0.5: k1 = 0.5, k2 = 0.125, k3 = e^-0.5 - 1 + 0.5 = 0.1065307; slope by the
    # log-prob: k1 1, k2 -x = 0.5, k3 1 - e^x = 0.3934693. Positive: the policy's log-prob is to fall to the reference.
    value = {"k1": 0.5, "k2": 0.125, "k3": 0.1065307}[estimator]
    slope = {"k1": 1.0, "k2": 0.5, "k3": 0.3934693}[estimator]
    # coefficient 0.1, N = 5, and a mean over 2 tokens
    assert float(result.loss) == pytest.approx(0.1 * value / 5, abs=1e-8)
    assert float(result.terms.kl_loss) == pytest.approx(0.1 * value / 5, abs=1e-8)
    assert result.grad_BT[0].tolist() == pytest.approx([0.1 * slope / 5 / 2] * 2, abs=1e-8)


def test_a_weight_does_not_touch_the_kl_term():
    batch = random_batch()
    objective = Objective(kl_coef=0.3)
    zero = torch.zeros(4, dtype=torch.float64)
    result = run(batch, objective, batch.divisor(), weights=zero, reference=batch.reference_BT)
    assert float(result.loss) == pytest.approx(float(result.terms.kl_loss), abs=1e-15)
    assert float(result.loss) > 0


def test_without_a_coefficient_the_divergence_is_measured_and_does_not_pull():
    batch = random_batch()
    plain = run(batch, PAPER, batch.divisor())
    measured = run(batch, PAPER, batch.divisor(), reference=batch.reference_BT)
    assert torch.equal(measured.loss, plain.loss)
    assert torch.equal(measured.grad_BT, plain.grad_BT)
    assert plain.terms.kl_k1_sum_B is plain.terms.kl_k3_sum_B is None
    assert measured.terms.kl_k3_sum_B is not None
    assert bool((measured.terms.kl_k3_sum_B > 0).all())
