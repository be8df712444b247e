"""The GSPO objective against tables worked out by hand, finite differences and a numpy copy of eqs. 5 and 7."""

import math

import numpy as np
import pytest
import torch

from gspo_ray.algo.losses import gspo_loss, sequence_log_ratio

EPS = {"eps_low": 3e-4, "eps_high": 4e-4}


def loss_at(ratio, advantage, *, eps_low=3e-4, eps_high=4e-4, tokens=4):
    """Loss, d(objective)/ds and terms for one sequence whose ratio is `ratio`, every token contributing alike."""
    logprobs = torch.full((1, tokens), math.log(ratio), dtype=torch.float64, requires_grad=True)
    loss, terms = gspo_loss(
        logprobs,
        torch.zeros(1, tokens, dtype=torch.float64),
        torch.ones(1, tokens, dtype=torch.bool),
        torch.tensor([advantage], dtype=torch.float64),
        eps_low=eps_low,
        eps_high=eps_high,
        num_sequences=1,
    )
    loss.backward()
    assert logprobs.grad is not None
    # s = exp(mean of log-probs): moving all of them by d moves s by s * d, so d(objective)/ds = -sum(grad) / s.
    return float(loss.detach()), -float(logprobs.grad.sum()) / ratio, terms


@pytest.mark.parametrize(
    ("ratio", "advantage", "objective", "slope"),
    [
        (1.001, +1, 1.0004, 0),  # above the band, rewarded: cut at 1 + eps_high
        (1.001, -1, -1.001, -1),  # above the band, punished: min() keeps the gradient
        (0.999, +1, 0.999, 1),  # below the band, rewarded: keeps
        (0.999, -1, -0.9997, 0),  # below the band, punished: cut at 1 - eps_low
        (1.00035, +1, 1.00035, 1),  # inside 4e-4, outside 3e-4: catches low and high swapped
        (0.99965, -1, -0.9997, 0),  # outside 3e-4, inside 4e-4: the same from below
        (1.0, +1, 1.0, 1),
        (1.0, -1, -1.0, -1),
    ],
)
def test_clip_table_of_the_paper_band(ratio, advantage, objective, slope):
    loss, measured_slope, terms = loss_at(ratio, advantage)
    assert loss == pytest.approx(-objective, abs=1e-12)
    assert measured_slope == pytest.approx(slope, abs=1e-12)
    assert terms.clipped_B.tolist() == [slope == 0]


@pytest.mark.parametrize(
    ("ratio", "advantage", "objective", "slope"),
    [
        (1.5, +2, 2.4, 0),  # min(3, 1.2 * 2)
        (1.5, -2, -3.0, -2),  # min(-3, -2.4)
        (0.5, +2, 1.0, 2),  # min(1, 0.8 * 2)
        (0.5, -2, -1.6, 0),  # min(-1, -1.6)
    ],
)
def test_the_four_corners_with_eps_02(ratio, advantage, objective, slope):
    loss, measured_slope, terms = loss_at(ratio, advantage, eps_low=0.2, eps_high=0.2)
    assert loss == pytest.approx(-objective, abs=1e-12)
    assert measured_slope == pytest.approx(slope, abs=1e-12)
    assert terms.clipped_B.tolist() == [slope == 0]


def test_the_ratio_is_the_exponential_of_the_mean_and_not_of_the_sum():
    # A2: log-ratio 0.01 on each of 100 tokens: exp(0.01) = 1.010050; exp(sum) would be e = 2.718282
    log_ratio = sequence_log_ratio(
        torch.full((1, 100), -0.99, dtype=torch.float64),
        torch.full((1, 100), -1.0, dtype=torch.float64),
        torch.ones(1, 100, dtype=torch.bool),
    )
    assert float(log_ratio.exp()) == pytest.approx(1.010050, abs=5e-7)


def test_the_last_token_counts_in_the_length():
    # A18: a sum of 0.05 over five tokens (EOS among them) is 1.010050, over four it would be 1.012578
    diff = torch.tensor([[0.01, 0.01, 0.01, 0.01, 0.01]], dtype=torch.float64)
    ratio = sequence_log_ratio(diff, torch.zeros_like(diff), torch.ones(1, 5, dtype=torch.bool)).exp()
    assert float(ratio) == pytest.approx(1.010050, abs=5e-7)


def test_clipped_means_that_the_gradient_is_cut_not_that_the_ratio_is_outside():
    # A22: of the four outside the band only #1 (A > 0, above) and #4 (A < 0, below) are cut.
    ratios = torch.tensor([1.001, 0.999, 1.001, 0.999], dtype=torch.float64)
    logprobs = ratios.log()[:, None].expand(-1, 3)
    _, terms = gspo_loss(
        logprobs,
        torch.zeros(4, 3, dtype=torch.float64),
        torch.ones(4, 3, dtype=torch.bool),
        torch.tensor([1.0, 1.0, -1.0, -1.0], dtype=torch.float64),
        num_sequences=4,
        **EPS,
    )
    assert terms.clipped_B.tolist() == [True, False, False, True]
    assert terms.log_ratio_B.exp().tolist() == pytest.approx(ratios.tolist(), abs=1e-12)


def random_case(seed=0, lens=(5, 2, 7, 1), dtype=torch.float64, spread=0.3):
    generator = torch.Generator().manual_seed(seed)
    width = max(lens)
    new = -torch.rand(len(lens), width, generator=generator, dtype=dtype) - 0.1
    old = new + spread * torch.randn(len(lens), width, generator=generator, dtype=dtype)
    mask = torch.arange(width) < torch.tensor(lens)[:, None]
    advantages = torch.tensor([1.5, -0.5, -1.0, 0.7], dtype=dtype)[: len(lens)]
    return new, old, mask, advantages


def loss_and_grad(new, old, mask, advantages, num_sequences, **eps):
    new = new.detach().clone().requires_grad_(True)
    loss, terms = gspo_loss(new, old, mask, advantages, num_sequences=num_sequences, **(eps or EPS))
    loss.backward()
    assert new.grad is not None
    return loss.detach(), new.grad, terms


def test_agrees_with_a_numpy_copy_of_the_equations():
    new, old, mask, advantages = random_case()
    loss, _, _ = loss_and_grad(new, old, mask, advantages, 4, eps_low=0.2, eps_high=0.3)
    total = 0.0
    for row, n in enumerate((5, 2, 7, 1)):
        s = np.exp(np.mean(new[row, :n].numpy() - old[row, :n].numpy()))
        a = float(advantages[row])
        total += min(s * a, np.clip(s, 0.8, 1.3) * a)
    assert float(loss) == pytest.approx(-total / 4, abs=1e-12)


@pytest.mark.parametrize("rubbish", [0.0, -1e9, math.nan, math.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_padding_may_hold_anything_and_changes_not_one_bit(rubbish, dtype):
    new, old, mask, advantages = random_case(dtype=dtype, spread=1e-4)
    new, old = torch.where(mask, new, 0.0), torch.where(mask, old, 0.0)
    loss, grad, terms = loss_and_grad(new, old, mask, advantages, 4)
    bad_new, bad_old = torch.where(mask, new, rubbish), torch.where(mask, old, rubbish)
    bad_loss, bad_grad, bad_terms = loss_and_grad(bad_new, bad_old, mask, advantages, 4)
    assert torch.equal(loss, bad_loss)
    assert torch.equal(grad, bad_grad)
    assert torch.equal(terms.log_ratio_B, bad_terms.log_ratio_B)
    assert bool((bad_grad[~mask] == 0).all())


@pytest.mark.parametrize("rubbish", [0.0, -1e9, math.nan])
def test_appended_padding_columns_change_nothing(rubbish):
    new, old, mask, advantages = random_case(spread=1e-4)
    loss, grad, _ = loss_and_grad(new, old, mask, advantages, 4)
    more = torch.full((4, 5), rubbish, dtype=torch.float64)
    wide_loss, wide_grad, _ = loss_and_grad(
        torch.cat([new, more], 1),
        torch.cat([old, more], 1),
        torch.cat([mask, torch.zeros(4, 5, dtype=torch.bool)], 1),
        advantages,
        4,
    )
    assert float(wide_loss) == pytest.approx(float(loss), abs=1e-12)
    torch.testing.assert_close(wide_grad[:, :7], grad, rtol=0, atol=1e-12)
    assert bool((wide_grad[:, 7:] == 0).all())


def test_the_order_of_the_rows_does_not_matter():
    new, old, mask, advantages = random_case(spread=1e-4)
    loss, grad, _ = loss_and_grad(new, old, mask, advantages, 4)
    order = torch.tensor([2, 0, 3, 1])
    other_loss, other_grad, _ = loss_and_grad(new[order], old[order], mask[order], advantages[order], 4)
    assert float(other_loss) == pytest.approx(float(loss), abs=1e-12)
    assert torch.equal(other_grad, grad[order])


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("side", ["new", "old"])
def test_a_real_token_without_a_finite_logprob_is_refused_by_name(bad, side):
    new, old, mask, advantages = random_case()
    (new if side == "new" else old)[2, 6] = bad  # the last token of the longest row
    with pytest.raises(ValueError, match="token 6 in row 2"):
        gspo_loss(new, old, mask, advantages, num_sequences=4, **EPS)


def test_minus_infinity_on_both_sides_is_refused_too():
    new, old, mask, advantages = random_case()
    new[0, 0] = old[0, 0] = -math.inf  # the difference is NaN
    with pytest.raises(ValueError, match="token 0 in row 0"):
        gspo_loss(new, old, mask, advantages, num_sequences=4, **EPS)


def test_an_empty_completion_is_refused():
    new, old, mask, advantages = random_case()
    mask[1] = False
    with pytest.raises(ValueError, match="without tokens in row 1"):
        gspo_loss(new, old, mask, advantages, num_sequences=4, **EPS)


@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_a_ratio_that_overflows_is_refused(advantage):
    # exp(200) is inf in float32: min() would return the clipped value with a NaN gradient (0 x inf).
    logprobs = torch.full((1, 3), 0.0)
    old = torch.full((1, 3), -200.0)
    with pytest.raises(ValueError, match=r"exp\(200\.0\) in row 0 overflows"):
        gspo_loss(logprobs, old, torch.ones(1, 3, dtype=torch.bool), torch.tensor([advantage]), num_sequences=1, **EPS)


def test_old_logprobs_and_advantages_get_no_gradient():
    new, old, mask, advantages = random_case(spread=1e-4)
    for tensor in (new, old, advantages):
        tensor.requires_grad_(True)
    loss, terms = gspo_loss(new, old, mask, advantages, num_sequences=4, **EPS)
    loss.backward()
    assert new.grad is not None
    assert old.grad is None
    assert advantages.grad is None
    assert not terms.log_ratio_B.requires_grad


def test_on_policy_every_token_gets_minus_the_advantage_over_sequences_times_length():
    new, _, mask, advantages = random_case()
    loss, grad, terms = loss_and_grad(new, new, mask, advantages, 9)
    # s = 1, ds/dlogp_t = 1/n, so dloss/dlogp_t = -A / (N n); loss = -sum(A) / N = -0.7 / 9
    for row, n in enumerate((5, 2, 7, 1)):
        assert grad[row, :n].tolist() == pytest.approx([-float(advantages[row]) / (9 * n)] * n, abs=1e-15)
    assert float(loss) == pytest.approx(-0.7 / 9, abs=1e-15)
    assert terms.log_ratio_B.tolist() == [0.0] * 4
    assert not bool(terms.clipped_B.any())


@pytest.mark.parametrize("parts", [[[0, 1, 2, 3]], [[0], [1, 2, 3]], [[3, 1], [0, 2]], [[0], [1], [2], [3]]])
def test_any_cut_into_micro_batches_sums_to_the_same_gradient(parts):
    new, old, mask, advantages = random_case(spread=3e-4)
    loss, grad, _ = loss_and_grad(new, old, mask, advantages, 6)
    total_loss, total_grad = 0.0, torch.zeros_like(grad)
    for part in parts:
        part_loss, part_grad, _ = loss_and_grad(new[part], old[part], mask[part], advantages[part], 6)
        total_loss += float(part_loss)
        total_grad[part] += part_grad
    assert total_loss == pytest.approx(float(loss), abs=1e-14)
    torch.testing.assert_close(total_grad, grad, rtol=0, atol=1e-15)


def test_sequences_without_advantage_count_in_the_divisor_only():
    new, old, mask, advantages = random_case(spread=3e-4)
    advantages[1] = 0.0
    loss, grad, terms = loss_and_grad(new, old, mask, advantages, 4)
    keep = [0, 2, 3]
    kept_loss, kept_grad, _ = loss_and_grad(new[keep], old[keep], mask[keep], advantages[keep], 4)
    assert float(loss) == pytest.approx(float(kept_loss), abs=1e-15)
    torch.testing.assert_close(grad[keep], kept_grad, rtol=0, atol=0)
    assert bool((grad[1] == 0).all())
    assert not bool(terms.clipped_B[1])


@pytest.mark.parametrize("seed", range(3))
def test_gradient_agrees_with_finite_differences_in_float64(seed):
    new, old, mask, advantages = random_case(seed=seed)
    eps = {"eps_low": 0.05, "eps_high": 0.06}
    _, grad, _ = loss_and_grad(new, old, mask, advantages, 4, **eps)
    step = 1e-6
    for row, column in mask.nonzero().tolist():
        values = []
        for sign in (+1, -1):
            moved = new.clone()
            moved[row, column] += sign * step
            values.append(float(gspo_loss(moved, old, mask, advantages, num_sequences=4, **eps)[0]))
        assert (values[0] - values[1]) / (2 * step) == pytest.approx(float(grad[row, column]), abs=1e-8)
