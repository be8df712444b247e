"""The counted operations against what torch counts while a step runs."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from gspo_ray.bench.flops import Work, model_size, packed_work, padded_work, step_flops
from gspo_ray.bench.variants import BUILDERS, move_adapter, train_batch
from gspo_ray.learner.model import build_policy
from tests.unit.bench.conftest import GROUPS, MODEL, make_case

LAYERS, HIDDEN, MLP, VOCABULARY, HEADS, HEAD_SIZE, KV_HEADS = 2, 32, 48, 64, 4, 8, 2


@pytest.fixture
def model(tiny_model):
    policy = build_policy(tiny_model, MODEL, device="cpu", seed=0, gradient_checkpointing=False)
    move_adapter(policy, 0)
    return policy


def test_sizes_are_those_of_the_model(model):
    size = model_size(model)
    sides = [
        (HIDDEN, HIDDEN),
        (HIDDEN, 16),
        (HIDDEN, 16),
        (HIDDEN, HIDDEN),
        (HIDDEN, MLP),
        (HIDDEN, MLP),
        (MLP, HIDDEN),
    ]
    assert size.linear == LAYERS * sum(inputs * outputs for inputs, outputs in sides)
    assert size.lora == LAYERS * sum(MODEL.lora.rank * (inputs + outputs) for inputs, outputs in sides)
    assert size.lora == sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert size.head == VOCABULARY * HIDDEN
    assert size.attention == LAYERS * HEADS * HEAD_SIZE
    assert set(size.shapes) == set(sides)


def test_the_plain_step_takes_as_many_operations_as_torch_counts(model):
    """Apart from two things: torch does not count this attention kernel, and the first layer's q, k, v get no gradient
    to their input, which is the embedding's."""
    variant = BUILDERS["plain"](model, make_case("", micro_batch_tokens=1000))
    with FlopCounterMode(display=False) as counter:
        work, _ = variant.step()
    counts = counter.get_flop_counts()["Global"]
    products = sum(count for kernel, count in counts.items() if "attention" not in str(kernel))
    size = model_size(model)
    first_inputs = HIDDEN * (HEADS + 2 * KV_HEADS) * HEAD_SIZE + MODEL.lora.rank * 3 * HIDDEN
    without_pairs = Work(tokens=work.tokens, head_tokens=work.head_tokens, pairs=0)
    assert products == step_flops(size, without_pairs) - 2 * first_inputs * work.tokens


def test_pairs_cost_two_products_forward_and_four_backward(model):
    """Dense attention over one head of D entries: scores and values, 2 D a pair each, twice that backward."""
    size = model_size(model)
    q = torch.randn(3, HEAD_SIZE, requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        (q @ q.T @ q).sum().backward()
    pair = counter.get_total_flops() / 9
    assert step_flops(size, Work(tokens=0, head_tokens=0, pairs=1)) == LAYERS * HEADS * pair


def test_packed_rows_count_a_prompt_once_and_nothing_between_completions():
    # Prompts of 4 and 2 tokens; completions of 3, 1, 5 and 2, 4, 1.
    work = packed_work(train_batch(GROUPS))
    assert work.tokens == (4 + 9) + (2 + 7)
    assert work.head_tokens == 9 + 7
    prompts = 4 * 5 // 2 + 2 * 3 // 2
    assert work.pairs == prompts + (4 * 9 + 6 + 1 + 15) + (2 * 7 + 3 + 10 + 1)


def test_padded_rows_count_all_that_goes_through_the_model():
    batch = train_batch(GROUPS)  # six rows, the longest 4 + 5
    work = padded_work(batch, head_everywhere=True)
    assert work == Work(tokens=6 * 9, head_tokens=6 * 9, pairs=6 * 45)
    assert padded_work(batch, head_everywhere=False).head_tokens == 16
