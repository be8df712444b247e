"""The gap between learner and sampler: measured where it can be, refused where it is not a number."""

import math
from dataclasses import replace

import pytest
import torch

from gspo_ray.config import AlgoConfig
from gspo_ray.errors import LearnerError
from tests.unit.learner.helpers import (
    merged_model,
    plain_logprobs,
    random_batch,
)


def with_sampler_logprobs(batch, model, temperature):
    rows = torch.zeros_like(batch.sampler_logprobs_BT)
    for row in range(batch.num_sequences):
        m, n = int(batch.prompt_lens_B[row]), int(batch.completion_lens_B[row])
        ids = batch.token_ids_BL[row, : m + n].tolist()
        rows[row, :n] = torch.tensor(plain_logprobs(model, ids, m, temperature))
    return replace(batch, sampler_logprobs_BT=rows)


@pytest.mark.parametrize(("sampler_temperature", "agrees"), [(0.6, True), (1.0, False)])
def test_the_mismatch_is_zero_only_at_the_temperature_sampled_with(
    make_learner, tiny_llama, sampler_temperature, agrees
):
    # B33: raw log-probs at T = 0.6 are off by 0.05 to 0.3 a token
    learner = make_learner(temperature=0.6)
    batch = with_sampler_logprobs(
        random_batch(), merged_model(tiny_llama, learner.export_adapter(), scale=2), sampler_temperature
    )
    gaps = [s.mismatch.log_ratio for s in learner.step(batch, step=1).sequences]
    assert all((abs(gap) < 1e-5) == agrees for gap in gaps)


def test_mismatch_and_ratio_against_the_sampler_by_hand(make_learner, tiny_llama):
    """Sampler log-probs off by +0.3 on the first token and -0.1 on the second of every completion."""
    learner = make_learner(algo=AlgoConfig(old_logprobs="sampler"))
    exact = with_sampler_logprobs(
        random_batch(1), merged_model(tiny_llama, learner.export_adapter(), scale=2), temperature=1.0
    )
    moved = exact.sampler_logprobs_BT.clone()
    moved[:, 0] += 0.3
    moved[:, 1] -= 0.1
    stats = learner.step(replace(exact, sampler_logprobs_BT=moved), step=1)
    for sequence in stats.sequences:
        # learner - sampler: (-0.3 + 0.1) / n
        assert sequence.mismatch.log_ratio == pytest.approx(-0.2 / sequence.num_tokens, abs=1e-5)
        assert sequence.log_ratio == pytest.approx(-0.2 / sequence.num_tokens, abs=1e-5)
        assert sequence.mismatch.abs_diff_sum == pytest.approx(0.4, abs=1e-4)
        assert sequence.mismatch.abs_diff_max == pytest.approx(0.3, abs=1e-5)
    # Lengths 4, 9, 2 with advantages from (1, 0, 0); all ratios are below the band, so the punished ones are cut.
    assert {s.row: s.num_tokens for s in stats.sequences} == {0: 4, 1: 9, 2: 2}
    assert {s.row: s.clipped_tokens for s in stats.sequences} == {0: 0, 1: 9, 2: 2}


def test_the_mismatch_is_unknown_once_the_weights_have_moved(make_learner):
    learner = make_learner(algo=AlgoConfig(old_logprobs="sampler", num_minibatches=2))
    first, second = [learner.step(part, step=1) for part in random_batch(2).split(2)]
    assert all(s.mismatch is not None for s in first.sequences)
    assert all(s.mismatch is None for s in second.sequences)
    stale = learner.step(replace(random_batch(1), policy_age_B=torch.tensor([1, 1, 1])), step=2)
    assert all(s.mismatch is None for s in stale.sequences)


@pytest.mark.parametrize("old_logprobs", ["learner", "sampler"])
@pytest.mark.parametrize("bad", [math.nan, -math.inf])
def test_a_sampler_logprob_that_is_not_finite_is_refused_before_any_update(make_learner, old_logprobs, bad):
    # A21
    learner = make_learner(algo=AlgoConfig(old_logprobs=old_logprobs), micro_batch_tokens=20)
    before = learner.export_state()
    batch = random_batch()
    batch.sampler_logprobs_BT[4, 8] = bad  # the last of nine tokens
    with pytest.raises(LearnerError, match="not finite"):
        learner.step(batch, step=1)
    assert learner.export_state() == before
    clean = make_learner(algo=AlgoConfig(old_logprobs=old_logprobs), micro_batch_tokens=20)
    clean.step(random_batch(), step=1)
    learner.step(random_batch(), step=1)  # nothing of the refused batch is left in the gradients
    assert learner.export_adapter().payload == clean.export_adapter().payload
