"""What goes wrong on one rank ends the call on both, in the same words, and nothing is half done."""

import math
from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForCausalLM

from gspo_ray.config import AlgoConfig
from gspo_ray.errors import LearnerError
from gspo_ray.learner.distributed import PeerError
from tests.unit.learner.conftest import build_learner
from tests.unit.learner.helpers import random_batch, uneven
from tests.unit.learner.pair import Raised

pytestmark = pytest.mark.timeout(300)


def broken_gradient(ranks, path):
    learner = build_learner(path, ranks=ranks)
    learner.step(random_batch(), step=1)
    before = learner.export_state()
    name, parameter = next((n, p) for n, p in learner._trainable.items() if "layers.1.mlp.up_proj.lora_B" in n)
    if ranks.rank == 1:
        parameter.register_hook(lambda grad: torch.full_like(grad, math.nan))
    stats = learner.step(random_batch(), step=2)
    return stats.updated, stats.nonfinite == (name,), learner.export_state() == before


def test_a_gradient_that_is_not_finite_on_one_rank_is_refused_on_both(pair, tiny_llama):
    assert pair(broken_gradient, tiny_llama) == [(False, True, True)] * 2


def error_of(call):
    try:
        call()
    except Exception as error:
        return type(error), str(error)
    return None


def unusable_row(ranks, path):
    """A log-prob that is not a number, in a row of rank 1 alone."""
    learner = build_learner(path, ranks=ranks, algo=AlgoConfig(old_logprobs="sampler"))
    batch = uneven()
    poisoned = replace(batch, sampler_logprobs_BT=batch.sampler_logprobs_BT.clone())
    poisoned.sampler_logprobs_BT[3, 0] = math.nan  # of the small groups: rank 0 has the long sequence
    before = learner.export_state()
    error = error_of(lambda: learner.step(poisoned, step=1))
    unchanged = learner.export_state() == before
    return error, unchanged, learner.step(batch, step=2).updated


def test_unusable_numbers_on_one_rank_end_the_step_on_both_and_the_next_one_works(pair, tiny_llama):
    ((kind, text), *sound), ((cause, reason), *also_sound) = pair(unusable_row, tiny_llama)
    assert (kind, cause) == (PeerError, LearnerError)
    assert "unusable numbers in the loss" in reason
    assert text == f"learner rank 1 failed with LearnerError: {reason}"
    assert sound == also_sound == [True, True]


def failing_model(ranks, path, call):
    learner = build_learner(path, ranks=ranks)
    if ranks.rank == 1:

        def fail(*_):
            raise RuntimeError("out of memory")

        learner._model.get_base_model().model.layers[0].register_forward_pre_hook(fail)
    calls = {
        "step": lambda: learner.step(uneven(), step=1),
        "old": lambda: learner.fill_old_logprobs(uneven()),
        "reference": lambda: learner.fill_reference_logprobs(uneven()),
    }
    return error_of(calls[call])


@pytest.mark.parametrize("call", ["step", "old", "reference"])
def test_an_unexpected_error_on_one_rank_ends_the_call_on_both(pair, tiny_llama, call):
    assert pair(failing_model, tiny_llama, call) == [
        (PeerError, "learner rank 1 failed with RuntimeError: out of memory"),
        (RuntimeError, "out of memory"),
    ]


def drifted(ranks, path):
    learner = build_learner(path, ranks=ranks)
    if ranks.rank == 1:
        next(iter(learner._trainable.values())).data[0, 0] += 1e-7
    learner.step(random_batch(), step=3)


def test_adapters_that_drift_apart_by_one_bit_are_noticed_in_the_same_step(pair, tiny_llama):
    for answer in pair.outcomes(drifted, tiny_llama):
        assert isinstance(answer, Raised)
        assert type(answer.error) is LearnerError
        assert "after step 3 the adapter of learner rank 1 is not that of rank 0" in str(answer.error)


def other_model(ranks, paths):
    build_learner(paths[ranks.rank], ranks=ranks)


def test_ranks_with_different_base_models_do_not_start(pair, tiny_llama, tmp_path):
    model = AutoModelForCausalLM.from_pretrained(tiny_llama)
    model.model.layers[0].mlp.up_proj.weight.data[3, 5] += 1e-3
    model.save_pretrained(tmp_path)
    for answer in pair.outcomes(other_model, (tiny_llama, str(tmp_path))):
        assert isinstance(answer, Raised)
        assert "the model of learner rank 1 is not that of rank 0" in str(answer.error)
