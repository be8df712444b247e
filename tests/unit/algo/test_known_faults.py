"""Faults that others have met in this objective and that no other test here covers by itself."""

import pytest
import torch

from gspo_ray.algo.aggregation import Divisor
from gspo_ray.algo.losses import Objective, policy_loss
from tests.unit.algo.cases import AGGREGATIONS, VARIANTS, random_batch, run
from tests.unit.factories import make_batch, make_group

variants = pytest.mark.parametrize("variant", VARIANTS)


@variants
def test_the_ratio_is_one_in_the_first_update_and_moves_in_the_second(variant):
    """A ratio against the current policy, detached, would be 1 for ever: REINFORCE, and the clip a decoration."""
    generator = torch.Generator().manual_seed(0)
    logits_BTV = torch.randn(4, 3, 5, generator=generator).requires_grad_(True)
    tokens_BT = torch.randint(0, 5, (4, 3), generator=generator)
    advantages_B = torch.tensor([1.0, -1.0, 0.5, -0.5])
    optimizer = torch.optim.SGD([logits_BTV], lr=0.5)
    old_BT, seen = None, []
    for _ in range(2):
        logprobs_BT = logits_BTV.log_softmax(-1).gather(-1, tokens_BT[..., None])[..., 0]
        old_BT = logprobs_BT.detach() if old_BT is None else old_BT
        loss, terms = policy_loss(
            logprobs_BT,
            old_BT,
            torch.ones(4, 3, dtype=torch.bool),
            advantages_B,
            objective=Objective(variant=variant),
            divisor=Divisor(num_sequences=4, num_tokens=12, max_tokens=3),
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen.append(terms)
    assert seen[0].log_ratio_B.tolist() == [0.0] * 4
    assert int(seen[0].clipped_tokens_B.sum()) == 0
    assert seen[1].log_ratio_B.sign().tolist() == [1, -1, 1, -1]  # each went where its advantage pulled
    assert seen[1].clipped_tokens_B.tolist() == [3, 3, 3, 3]


@variants
@pytest.mark.parametrize("estimator", ["k2", "k3"])
def test_at_the_reference_itself_the_kl_term_is_zero_and_pulls_nowhere(variant, estimator):
    """Step 0 of a run: measured against anything but the policy that the run starts from, it would not be."""
    batch = random_batch()
    plain = run(batch, Objective(variant=variant), batch.divisor())
    objective = Objective(variant=variant, kl_coef=0.5, kl_estimator=estimator)
    with_kl = run(batch, objective, batch.divisor(), reference=batch.logprobs_BT)
    assert float(with_kl.terms.kl_loss) == 0.0
    assert torch.equal(with_kl.grad_BT, plain.grad_BT)


@variants
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_groups_with_equal_rewards_move_nothing_without_a_kl_term_and_something_with_one(variant, aggregation):
    batch = random_batch()._replace(advantages_B=torch.zeros(4, dtype=torch.float64))
    without = run(batch, Objective(variant=variant, aggregation=aggregation), batch.divisor())
    assert not without.grad_BT.any()
    assert float(without.loss) == 0.0
    objective = Objective(variant=variant, aggregation=aggregation, kl_coef=1e-3)
    with_kl = run(batch, objective, batch.divisor(), reference=batch.reference_BT)
    assert bool((with_kl.grad_BT != 0).any(-1).all())


def test_groups_with_equal_rewards_are_computed_for_a_kl_term_only():
    batch = make_batch([make_group((1.0, 1.0)), make_group((1.0, 0.0))])
    assert batch.active_rows().tolist() == [2, 3]
    assert batch.active_rows(with_kl=True).tolist() == [0, 1, 2, 3]


@variants
def test_an_end_token_with_a_made_up_logprob_would_be_felt(variant):
    # Four real tokens without a difference, one appended with log-prob 0 where the learner says -3.2:
    # exp(-3.2 / 5) = 0.527 instead of 1. `collate` refuses such a completion; here is why.
    batch = random_batch(lens=(5,), spread=0.0)
    batch.logprobs_BT[0, 4], batch.old_BT[0, 4] = -3.2, 0.0
    terms = run(batch, Objective(variant=variant), batch.divisor()).terms
    assert float(terms.log_ratio_B.exp()) == pytest.approx(0.527292, abs=1e-6)


def test_rounding_logprobs_to_bfloat16_is_what_float32_is_there_for():
    """A true mean difference of 5e-4 is outside the paper's band; after rounding to bfloat16 it is something else."""
    generator = torch.Generator().manual_seed(1)
    logprobs_BT = -2 * torch.rand(1, 200, generator=generator)
    old_BT = logprobs_BT - 5e-4
    mask_BT = torch.ones(1, 200, dtype=torch.bool)
    divisor = Divisor(num_sequences=1, num_tokens=200, max_tokens=200)
    _, terms = policy_loss(logprobs_BT, old_BT, mask_BT, torch.ones(1), objective=Objective(), divisor=divisor)
    assert terms.log_ratio_B.dtype == torch.float32
    assert float(terms.log_ratio_B) == pytest.approx(5e-4, abs=1e-7)
    assert terms.clipped_tokens_B.tolist() == [200]  # 1.0005 > 1.0004
    rounded = (logprobs_BT.bfloat16() - old_BT.bfloat16()).float().mean()
    assert abs(float(rounded) - 5e-4) > 1e-5
