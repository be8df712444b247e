"""Every variant gives the gradient of the plain one, whose own is the formula's."""

import math

import pytest
import torch
from transformers import AutoModelForCausalLM

from gspo_ray.bench.learner import TRL_VARIANTS, VARIANTS, relative_error, trl_is_installed
from gspo_ray.bench.variants import BUILDERS, move_adapter
from gspo_ray.errors import LearnerError
from gspo_ray.learner.model import build_policy
from tests.unit.bench.conftest import GROUPS, MODEL, make_case

OWN = [name for name in VARIANTS if name not in TRL_VARIANTS]


def gradient(tiny_model, name, **changes):
    model = build_policy(tiny_model, MODEL, device="cpu", seed=0, gradient_checkpointing=False)
    move_adapter(model, 0)
    variant = BUILDERS[name](model, make_case(tiny_model, variant=name, **changes))
    work, micro_batches = variant.step()
    found = {n: p.grad.numpy() for n, p in model.named_parameters() if p.grad is not None}
    return found, work, micro_batches


def test_every_variant_has_a_builder_and_a_text():
    assert VARIANTS.keys() == BUILDERS.keys()


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("name", [name for name in OWN if name != "plain"])
def test_a_variant_has_the_plain_gradient(tiny_model, name, temperature):
    wanted, *_ = gradient(tiny_model, "plain", temperature=temperature)
    found, *_ = gradient(tiny_model, name, temperature=temperature)
    assert all(value.any() for value in found.values())
    assert relative_error(found, wanted) < 1e-5


def test_the_plain_gradient_is_that_of_the_formula(tiny_model):
    """With old log-probs equal to the current ones the loss has the gradient of -mean_i A_i mean_t log p."""
    found, *_ = gradient(tiny_model, "plain")
    model = build_policy(tiny_model, MODEL, device="cpu", seed=0, gradient_checkpointing=False)
    move_adapter(model, 0)
    rows = [(prompt, ids) for prompt, completions in GROUPS for ids in completions]
    for number, (prompt, ids) in enumerate(rows):
        logits = model(input_ids=torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1]
        mean = logits.log_softmax(-1).gather(-1, torch.tensor(ids)[:, None]).mean()
        (-(1 if number % 2 == 0 else -1) * mean / len(rows)).backward()
    assert relative_error(found, {n: p.grad.numpy() for n, p in model.named_parameters() if p.grad is not None}) < 1e-5


def test_what_goes_through_the_model(tiny_model):
    whole = {name: gradient(tiny_model, name, micro_batch_tokens=1000)[1:] for name in OWN}
    assert {name: count for name, (_, count) in whole.items()} == dict.fromkeys(OWN, 1)
    assert whole["ours"][0].tokens == whole["full_logits"][0].tokens == 4 + 9 + 2 + 7
    assert whole["repeated_prompts"][0].tokens == 3 * 4 + 9 + 3 * 2 + 7
    assert whole["padded_rows"][0].tokens == whole["plain"][0].tokens == 6 * 9
    assert whole["ours"][0].head_tokens == whole["padded_rows"][0].head_tokens == 16
    assert whole["plain"][0].head_tokens == 6 * 9


def test_micro_batches_keep_to_the_tokens(tiny_model):
    # Rows of the padded batch have 9 places: one row at a time fits into 16 tokens.
    assert gradient(tiny_model, "plain", micro_batch_tokens=16)[2] == 6
    # Groups of 13 and 9 tokens.
    assert gradient(tiny_model, "ours", micro_batch_tokens=16)[2] == 2


def test_relative_error_is_of_all_parameters_together():
    wanted = {"a": torch.tensor([3.0]).numpy(), "b": torch.tensor([4.0]).numpy()}
    found = {"a": torch.tensor([3.0]).numpy(), "b": torch.tensor([4.5]).numpy()}
    assert math.isclose(relative_error(found, wanted), 0.5 / 5)
    with pytest.raises(LearnerError, match="other parameters"):
        relative_error({"a": wanted["a"]}, wanted)


@pytest.mark.skipif(not trl_is_installed(), reason="needs TRL: tests/conformance/README.md")
@pytest.mark.parametrize("name", TRL_VARIANTS)
def test_trl_has_the_same_gradient(tiny_model, name):
    wanted, *_ = gradient(tiny_model, "plain")
    found, work, micro_batches = gradient(tiny_model, name)
    assert relative_error(found, wanted) < 1e-5
    assert (work.tokens, micro_batches) == (6 * 9, 2)


def test_the_vocabulary_of_the_tiny_model_is_large_enough(tiny_model):
    size = AutoModelForCausalLM.from_pretrained(tiny_model).config.vocab_size
    assert max(token for prompt, completions in GROUPS for row in (prompt, *completions) for token in row) < size
