"""The choices of algo.* as they reach one update: reference and KL, corrections, variants, masks."""

import math
from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForCausalLM

from gspo_ray.config import AlgoConfig
from gspo_ray.errors import LearnerError
from tests.unit.factories import make_batch
from tests.unit.learner.helpers import distance, plain_logprobs, random_batch, random_group


def flat_batch():
    """No group has a signal."""
    return make_batch([random_group(1, (1.0,) * 3), random_group(2, (0.0,) * 3)])


def moved(make_learner, **algo):
    """A learner whose adapter has left the reference, and whose updates are small from here on."""
    learner = make_learner(algo=AlgoConfig(**algo))
    plain = make_learner()
    plain.step(random_batch(), step=1)
    learner.load_state(plain.export_state())
    return learner


def test_the_reference_is_the_model_without_its_adapter(make_learner, tiny_llama):
    learner = moved(make_learner, kl={"coef": 0.1})
    batch = random_batch(2)
    reference = learner.fill_reference_logprobs(batch).reference_logprobs_BT
    base = AutoModelForCausalLM.from_pretrained(tiny_llama, dtype=torch.float32).eval()
    policy = learner.fill_old_logprobs(batch).old_logprobs_BT
    for row in range(6):
        m, n = int(batch.prompt_lens_B[row]), int(batch.completion_lens_B[row])
        ids = batch.token_ids_BL[row, : m + n].tolist()
        assert reference[row, :n].tolist() == pytest.approx(plain_logprobs(base, ids, m), abs=2e-5)
    assert float((policy - reference).abs().max()) > 1e-2  # the adapter is on again


def test_the_kl_at_the_start_is_zero(make_learner):
    learner = make_learner(algo=AlgoConfig(kl={"coef": 0.5}))
    stats = learner.step(learner.fill_reference_logprobs(random_batch()), step=1)
    assert stats.kl_loss == 0.0
    assert all(s.kl_k1_sum == s.kl_k3_sum == 0.0 for s in stats.sequences)


@pytest.mark.parametrize("estimator", ["k2", "k3"])
def test_groups_without_signal_still_carry_the_kl_term(make_learner, estimator):
    learner = moved(make_learner, kl={"coef": 0.5, "estimator": estimator})
    batch = flat_batch()
    before = learner.step(learner.fill_reference_logprobs(batch), step=2)
    assert before.updated
    assert len(before.sequences) == 6
    assert before.kl_loss > 0
    assert before.loss == pytest.approx(before.kl_loss)
    after = learner.step(learner.fill_reference_logprobs(batch), step=3)
    assert after.kl_loss < before.kl_loss  # it pulls back to the reference


def test_without_a_kl_term_they_move_nothing(make_learner):
    learner = moved(make_learner)
    before = learner.export_state()
    assert not learner.step(flat_batch(), step=2).updated
    assert learner.export_state() == before


def test_the_kl_loss_by_hand(make_learner):
    learner = moved(make_learner, kl={"coef": 0.5, "estimator": "k3"})
    batch = learner.fill_reference_logprobs(random_batch(1))
    policy, reference = learner.fill_old_logprobs(batch).old_logprobs_BT, batch.reference_logprobs_BT
    wanted = 0.0
    for row in range(3):
        n = int(batch.completion_lens_B[row])
        x = (reference[row, :n] - policy[row, :n]).double()
        wanted += 0.5 / 3 * float((x.exp() - x - 1).mean())
    assert learner.step(batch, step=2).kl_loss == pytest.approx(wanted, rel=1e-4)


def test_old_logprobs_of_the_reference_are_what_the_ratio_is_taken_against(make_learner):
    learner = moved(make_learner, old_logprobs="reference")
    with pytest.raises(LearnerError, match="no reference log-probs"):
        learner.step(random_batch(), step=2)
    batch = learner.fill_reference_logprobs(random_batch())
    policy, reference = learner.fill_old_logprobs(batch).old_logprobs_BT, batch.reference_logprobs_BT
    for sequence in learner.step(batch, step=2).sequences:
        n = sequence.num_tokens
        gap = (policy[sequence.row, :n] - reference[sequence.row, :n]).double().mean()
        assert sequence.log_ratio == pytest.approx(float(gap), abs=1e-6)


def with_sampler_off_by(learner, batch, gaps_B):
    """The engine's numbers differ from the learner's by `gaps_B` on every token of a row (learner - sampler)."""
    exact = learner.fill_old_logprobs(replace(batch, advantages_B=torch.ones_like(batch.advantages_B))).old_logprobs_BT
    return replace(batch, sampler_logprobs_BT=exact - torch.tensor(gaps_B)[:, None])


def test_a_masked_sequence_gives_no_gradient_and_stays_in_the_divisor(make_learner):
    masking = {"mode": "sequence_mask", "band_low": 0.9, "band_high": 1.1}
    learner, other = moved(make_learner, mismatch=masking), moved(make_learner)
    stats = learner.step(with_sampler_off_by(learner, random_batch(1), [0.0, 0.2, -0.05]), step=2)
    assert [s.mismatch.touched_tokens for s in sorted(stats.sequences, key=lambda s: s.row)] == [0, 9, 0]
    assert {s.row: s.mismatch.raw_weight for s in stats.sequences} == pytest.approx(
        {0: 1.0, 1: math.exp(0.2), 2: math.exp(-0.05)}, rel=1e-5
    )
    without = random_batch(1)
    without.advantages_B[1] = 0.0
    other.step(without, step=2)
    assert distance(learner.export_adapter(), other.export_adapter()) < 1e-6


@pytest.mark.parametrize("mode", ["sequence_truncate", "token_truncate"])
def test_a_truncated_weight_scales_the_gradient_of_its_sequence(make_learner, mode):
    algo = {"variant": "gspo_token", "mismatch": {"mode": mode, "cap": 1.5}}
    learner, other = moved(make_learner, **algo), moved(make_learner, variant="gspo_token")
    learner.step(with_sampler_off_by(learner, random_batch(1), [1.0, -0.1, 0.0]), step=2)
    batch = random_batch(1)
    weights = torch.tensor([1.5, math.exp(-0.1), 1.0])  # min(e, 1.5), as it is, 1
    other.step(replace(batch, advantages_B=batch.advantages_B * weights), step=2)
    assert distance(learner.export_adapter(), other.export_adapter()) < 1e-6


def test_the_token_form_is_the_same_update_and_grpo_is_another(make_learner):
    learners = {variant: moved(make_learner, variant=variant) for variant in ("gspo", "gspo_token", "grpo")}
    for learner in learners.values():
        batch = learner.fill_old_logprobs(random_batch())
        noise = 1e-4 * torch.randn(batch.old_logprobs_BT.shape, generator=torch.Generator().manual_seed(1))
        learner.step(replace(batch, old_logprobs_BT=batch.old_logprobs_BT + noise), step=2)
    adapters = {variant: learner.export_adapter() for variant, learner in learners.items()}
    assert distance(adapters["gspo"], adapters["gspo_token"]) < 1e-6
    assert distance(adapters["gspo"], adapters["grpo"]) > 1e-6


@pytest.mark.parametrize(
    ("aggregation", "factor"),
    # One group of 4, 9 and 2 tokens; one row has an advantage, so its weight is all there is: 1/3 for the mean over
    # sequences, 9/15 over tokens, 9 / (3 * 100) over the sampling limit.
    [("sequence_mean", 1 / 3), ("token_mean", 9 / 15), ("constant_length", 9 / 300)],
)
def test_the_aggregation_weighs_a_sequence(make_learner, aggregation, factor):
    batch = random_batch(1)
    batch.advantages_B[:] = torch.tensor([0.0, 1.0, 0.0])
    norm = moved(make_learner, aggregation=aggregation).step(batch, step=2).grad_norm
    one = moved(make_learner).step(replace(batch, num_sequences=3), step=2).grad_norm * 3
    assert norm == pytest.approx(one * factor, rel=1e-5)


def test_a_row_that_does_not_count_is_not_computed(make_learner):
    learner, other = moved(make_learner), moved(make_learner)
    batch = random_batch(1)
    masked = replace(batch, counted_B=torch.tensor([True, False, True]), num_sequences=2, num_tokens=6)
    stats = learner.step(masked, step=2)
    assert sorted(s.row for s in stats.sequences) == [0, 2]
    # As a batch that holds only the other two (with their advantages) would do
    alone = replace(batch.rows(torch.tensor([0, 2])), num_sequences=2, num_tokens=6)
    other.step(alone, step=2)
    assert learner.export_adapter().payload == other.export_adapter().payload


def break_gradient(learner):
    parameter = next(p for n, p in learner._trainable.items() if "lora_B" in n)
    return parameter.register_hook(lambda grad: torch.full_like(grad, math.nan))


def test_three_refused_updates_in_a_row_stop_the_run(make_learner):
    learner = make_learner()
    learner.step(random_batch(), step=1)
    before = learner.export_state()
    hook = break_gradient(learner)
    for step in (2, 3):
        assert not learner.step(random_batch(), step=step).updated
    with pytest.raises(LearnerError, match=r"3 updates in a row had a gradient that is not finite.*lora_B"):
        learner.step(random_batch(), step=4)
    hook.remove()
    assert learner.export_state() == before


def test_a_good_update_between_them_starts_the_count_again(make_learner):
    learner = make_learner()
    for step in range(1, 7):
        hook = break_gradient(learner)
        assert not learner.step(random_batch(), step=step).updated
        if step % 2 == 0:
            hook.remove()
            assert learner.step(random_batch(), step=step).updated
        else:
            hook.remove()
