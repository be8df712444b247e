"""Two ranks do what one does: the same gradient, the same adapter, the same words about it."""

import io
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.distributed.tensor import DTensor
from transformers import AutoModelForCausalLM

from gspo_ray.algo.batch import TrainBatch
from gspo_ray.config import AlgoConfig, KlConfig, LearnerConfig
from gspo_ray.learner.distributed import ALONE, checksum
from gspo_ray.learner.scorer import PaddedScorer
from tests.unit.factories import make_batch
from tests.unit.learner.conftest import build_learner
from tests.unit.learner.helpers import (
    distance,
    gradients_of_next_update,
    random_batch,
    random_group,
    tensors,
    uneven,
)

pytestmark = pytest.mark.timeout(300)

# AdamW as it is used, away from the regime where its first step is a sign.
REAL = {"learning_rate": 1e-2, "adam_eps": 1e-3, "max_grad_norm": 0.05, "weight_decay": 0.1}


def one_active_row():
    """Of 9 rows one has an advantage: a rank is left without rows."""
    batch = random_batch()
    batch.advantages_B[:] = 0
    batch.advantages_B[4] = 0.7
    return batch


CASES: dict[str, tuple[Callable[[], TrainBatch], dict[str, Any]]] = {
    "plain": (random_batch, {}),
    "uneven": (uneven, {}),
    "a rank without rows": (one_active_row, {}),
    "one group, taken apart": (lambda: random_batch(1), {}),
    "micro-batches": (lambda: random_batch(5), {"micro_batch_tokens": 30}),
    "kl": (random_batch, {"algo": AlgoConfig(kl=KlConfig(coef=0.1))}),
    "kl without advantages": (one_active_row, {"algo": AlgoConfig(kl=KlConfig(coef=0.1))}),
    "minibatches": (lambda: random_batch(4), {"algo": AlgoConfig(num_minibatches=2)}),
    "tokens": (lambda: random_batch(4), {"algo": AlgoConfig(variant="grpo", aggregation="token_mean")}),
    "checkpointing": (random_batch, {"gradient_checkpointing": True}),
    "padded rows": (lambda: random_batch(4), {"padded": True}),
}


def train(ranks, path, batch, *, steps=2, padded=False, state=None, **settings):
    """`steps` steps on the same batch: the gradients and statistics of every update, and the state at the end."""
    learner = build_learner(path, ranks=ranks, **(REAL | settings))
    if padded:
        learner._model.get_base_model().set_attn_implementation("sdpa")
        learner._scorer = PaddedScorer(learner._model, "cpu")
    if state is not None:
        learner.load_state(state)
    grads, gradients, updates, filled = gradients_of_next_update(learner), [], [], []
    algo = settings.get("algo") or AlgoConfig()
    first = learner.export_adapter().version.step + 1
    for step in range(first, first + steps):
        parts = batch.split(algo.num_minibatches)
        if algo.needs_old_logprobs:
            parts = [learner.fill_old_logprobs(part) for part in parts]
        if algo.needs_reference:
            parts = [learner.fill_reference_logprobs(part) for part in parts]
        filled += parts
        for part in parts:
            updates.append(learner.step(part, step=step))
            gradients.append(dict(grads))
    return gradients, updates, filled, learner.export_state()


def relative_error(got, wanted):
    """|got - wanted| / |wanted| of a whole gradient or adapter."""
    difference = sum(float((got[name] - wanted[name]).double().pow(2).sum()) for name in wanted)
    return math.sqrt(difference / sum(float(wanted[name].double().pow(2).sum()) for name in wanted))


@pytest.mark.parametrize("name", CASES)
def test_two_ranks_are_one(pair, tiny_llama, name):
    make, settings = CASES[name]
    alone = train(ALONE, tiny_llama, make(), **settings)
    both = pair(train, tiny_llama, make(), **settings)
    for gradients, updates, filled, state in both:
        for number, (got, wanted) in enumerate(zip(gradients, alone[0], strict=True)):
            assert got.keys() == wanted.keys()
            # After the first update the weights themselves differ by rounding.
            assert relative_error(got, wanted) < (3e-6 if number else 1e-6)
        assert relative_error(tensors(state.adapter), tensors(alone[3].adapter)) < 1e-6
        for got, wanted in zip(updates, alone[1], strict=True):
            assert replace(got, loss=0, kl_loss=0, grad_norm=0, sequences=(), computed_tokens=0, seconds=0) == replace(
                wanted, loss=0, kl_loss=0, grad_norm=0, sequences=(), computed_tokens=0, seconds=0
            )
            assert got.loss == pytest.approx(wanted.loss, abs=1e-6)
            assert got.kl_loss == pytest.approx(wanted.kl_loss, abs=1e-6)
            assert got.grad_norm == pytest.approx(wanted.grad_norm, rel=1e-6)
            assert sorted(s.row for s in got.sequences) == sorted(s.row for s in wanted.sequences)
            ratios = {s.row: s.log_ratio for s in wanted.sequences}
            assert {s.row: s.log_ratio for s in got.sequences} == pytest.approx(ratios, abs=1e-5)
        for got, wanted in zip(filled, alone[2], strict=True):
            for field in ("old_logprobs_BT", "reference_logprobs_BT"):
                left, right = getattr(got, field), getattr(wanted, field)
                assert (left is None) == (right is None)
                if left is not None:
                    torch.testing.assert_close(left, right, rtol=0, atol=2e-5)
    # Between the ranks there is no tolerance.
    assert both[0][3] == both[1][3]
    assert all(torch.equal(g[n], h[n]) for g, h in zip(both[0][0], both[1][0], strict=True) for n in g)


def sharded_share(ranks, path):
    """Weights of this rank, and of the model; whether the adapter is plain."""
    learner = build_learner(path, ranks=ranks, num_ranks=2, shard_base=True)
    learner.step(random_batch(), step=1)
    parameters = list(learner._model.parameters())
    here = sum((p.to_local() if isinstance(p, DTensor) else p).numel() for p in parameters)
    plain = not any(isinstance(p, DTensor) for p in learner._trainable.values())
    return here, sum(p.numel() for p in parameters), plain


def test_each_rank_holds_a_part_of_the_layers(pair, tiny_llama):
    config = AutoModelForCausalLM.from_pretrained(tiny_llama)
    layers = sum(p.numel() for p in config.model.layers.parameters())
    for here, whole, plain in pair(sharded_share, tiny_llama):
        assert here == whole - layers // 2  # every size of the tiny model is even
        assert plain


@pytest.mark.parametrize("name", CASES)
def test_two_ranks_with_sharded_base_weights_are_one(pair, tiny_llama, name):
    """Whatever the shares: a rank with fewer passes than the other goes through the model as often."""
    make, settings = CASES[name]
    alone = train(ALONE, tiny_llama, make(), **settings)
    one, two = pair(train, tiny_llama, make(), num_ranks=2, shard_base=True, **settings)
    assert relative_error(one[0][0], alone[0][0]) < 1e-6
    assert relative_error(tensors(one[3].adapter), tensors(alone[3].adapter)) < 1e-6
    assert one[3] == two[3]
    # The same sums in the same order: that the weights are in pieces changes not a bit.
    assert one[3] == pair(train, tiny_llama, make(), **settings)[0][3]


def test_tokens_are_those_of_all_ranks(pair, tiny_llama):
    # A prompt of 3 with 4 + 9 + 2 tokens behind it, taken apart: both ranks compute the prompt.
    for _, (update,), *_ in pair(train, tiny_llama, random_batch(1), steps=1):
        assert (update.tokens, update.computed_tokens) == (3 * 3 + 15, 2 * 3 + 15)


def test_the_first_ratio_is_one_to_the_last_bit_on_two_ranks_too(pair, tiny_llama):
    algo = AlgoConfig(num_minibatches=2)
    for _, updates, *_ in pair(train, tiny_llama, random_batch(4), algo=algo, micro_batch_tokens=30):
        assert [s.log_ratio for s in updates[0].sequences] == [0.0] * 6
        assert all(abs(s.log_ratio) > 1e-6 for s in updates[1].sequences)


def state_after(ranks, path, batch, steps, state=None):
    return train(ranks, path, batch, steps=steps, state=state)[3]


def test_a_run_goes_on_with_another_number_of_ranks(pair, tiny_llama):
    batch = random_batch()
    whole = state_after(ALONE, tiny_llama, batch, 4)
    by_one, (by_two, _) = state_after(ALONE, tiny_llama, batch, 2), pair(state_after, tiny_llama, batch, 2)
    down = state_after(ALONE, tiny_llama, batch, 2, by_two)
    up = pair(state_after, tiny_llama, batch, 2, by_one)[0]
    for state in (down, up):
        assert state.adapter.version.step == 4
        assert relative_error(tensors(state.adapter), tensors(whole.adapter)) < 1e-6
    one, two = (torch.load(io.BytesIO(state.optimizer), weights_only=True) for state in (by_one, by_two))
    assert one["param_groups"] == two["param_groups"]
    assert one["state"].keys() == two["state"].keys()
    assert all(
        {k: v.shape for k, v in one["state"][n].items()} == {k: v.shape for k, v in s.items()}
        for n, s in two["state"].items()
    )


def without_signal(ranks, path):
    learner = build_learner(path, ranks=ranks)
    stats = learner.step(make_batch([random_group(1, (1.0,) * 3)]), step=1)
    return stats.updated, stats.sequences, learner.export_adapter().version.step


def test_a_batch_without_signal_updates_nothing_anywhere(pair, tiny_llama):
    assert pair(without_signal, tiny_llama) == [(False, (), 0)] * 2


def unused_parameter(ranks, path):
    """One that no row reaches: without a gradient on any rank."""
    learner = build_learner(path, ranks=ranks, weight_decay=0.5, learning_rate=0.1)
    extra = torch.nn.Parameter(torch.ones(3))
    learner._trainable["extra"] = extra
    learner._optimizer.add_param_group({"params": [extra]})
    learner.step(random_batch(), step=1)
    return extra.detach(), extra.grad


def test_a_parameter_without_a_gradient_on_any_rank_is_left_alone(pair, tiny_llama):
    for value, grad in pair(unused_parameter, tiny_llama):
        assert value.tolist() == [1.0] * 3  # zeros for a gradient would have meant weight decay
        assert grad is None


def scores(ranks, path):
    learner = build_learner(path, ranks=ranks)
    learner.step(random_batch(), step=1)
    return learner.score([5, 9, 3, 60, 1, 17, 22, 4], num_prompt=3)


def test_every_rank_scores_alike(pair, tiny_llama):
    one, two = pair(scores, tiny_llama)
    assert one == two
    assert one == pytest.approx(scores(ALONE, tiny_llama), abs=1e-5)


def test_sharding_needs_somebody_to_share_with():
    with pytest.raises(ValueError, match=r"learner\.num_ranks is 1"):
        LearnerConfig(shard_base=True)


def test_a_checksum_feels_one_bit_and_the_place_of_a_tensor():
    a, b = torch.randn(5, 3, generator=torch.Generator().manual_seed(0)), torch.zeros(4, dtype=torch.bfloat16)
    changed = a.clone()
    changed[2, 1] = torch.nextafter(changed[2, 1], torch.tensor(9.0))
    assert checksum([a, b]) == checksum([a.clone(), b.clone()])
    assert checksum([a, b]) != checksum([changed, b])
    assert checksum([a, a.flip(0) * 2]) != checksum([a.flip(0) * 2, a])
    assert checksum([a, torch.zeros(2)]) != checksum([a, -torch.zeros(2)])


def test_one_rank_alone_adds_nothing(tiny_llama):
    # to the bit what it was before there were ranks: no copy, no sum, no exchange
    parameter = torch.nn.Parameter(torch.ones(2))
    grad = parameter.grad = torch.tensor([1.0, 2.0])
    ALONE.sum_gradients([parameter])
    assert parameter.grad is grad
    assert ALONE.run(lambda: 3) == [3]
    assert distance(build_learner(tiny_llama).export_adapter(), build_learner(tiny_llama).export_adapter()) == 0
