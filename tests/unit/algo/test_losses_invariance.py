"""What must not matter: padding, the order of rows, how a batch is cut, whether idle rows are computed."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gspo_ray.algo.losses import Objective, sequence_log_ratio
from tests.unit.algo.cases import AGGREGATIONS, VARIANTS, Batch, random_batch, random_rows, run, tensors

variants = pytest.mark.parametrize("variant", VARIANTS)
aggregations = pytest.mark.parametrize("aggregation", AGGREGATIONS)
rubbish_in_padding = pytest.mark.parametrize("rubbish", [0.0, -1e9, math.nan, math.inf])


def run_all(batch, variant, aggregation="sequence_mean", divisor=None):
    """With weights and a KL term, so that every path is walked."""
    objective = Objective(variant=variant, aggregation=aggregation, kl_coef=0.1)
    weights_B = batch.advantages_B.abs()  # any number that travels with its row
    return run(batch, objective, divisor or batch.divisor(), weights=weights_B, reference=batch.reference_BT)


def wider(batch, columns, rubbish):
    """With more columns of padding."""
    values = {}
    for name, tensor in batch._asdict().items():
        fill = False if name == "mask_BT" else rubbish
        more = torch.full((len(tensor), columns), fill, dtype=tensor.dtype)
        values[name] = tensor if name == "advantages_B" else torch.cat([tensor, more], 1)
    return Batch(**values)


def assert_same_bits(one, other):
    assert torch.equal(one.loss, other.loss)
    assert torch.equal(one.grad_BT, other.grad_BT)
    for ours, theirs in zip(one.terms, other.terms, strict=True):
        assert torch.equal(ours, theirs)


@variants
@rubbish_in_padding
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_padding_may_hold_anything_and_changes_not_one_bit(variant, rubbish, dtype):
    clean = run_all(random_batch(dtype=dtype, padding=0.0), variant)
    dirty = run_all(batch := random_batch(dtype=dtype, padding=rubbish), variant)
    assert_same_bits(clean, dirty)
    assert bool((dirty.grad_BT[~batch.mask_BT] == 0).all())


@pytest.mark.parametrize("variant", ["gspo_token", "grpo"])
@rubbish_in_padding
def test_advantages_and_weights_of_padding_may_hold_anything(variant, rubbish):
    results = []
    for padding in (0.0, rubbish):
        batch = random_batch(padding=padding)
        numbers = {"advantages": batch.advantages_BT, "weights": batch.weights_BT, "reference": batch.reference_BT}
        results.append(run(batch, Objective(variant=variant), batch.divisor(), **numbers))
    assert_same_bits(*results)


@variants
@aggregations
@rubbish_in_padding
def test_appended_columns_of_padding_change_nothing(variant, aggregation, rubbish):
    batch = random_batch()
    result = run_all(batch, variant, aggregation)
    more = run_all(wider(batch, 5, rubbish), variant, aggregation)
    assert float(more.loss) == pytest.approx(float(result.loss), abs=1e-12)
    torch.testing.assert_close(more.grad_BT[:, :7], result.grad_BT, rtol=0, atol=1e-12)
    assert bool((more.grad_BT[:, 7:] == 0).all())


@variants
@aggregations
@given(seed=st.integers(0, 1000), lens=st.lists(st.integers(1, 9), min_size=2, max_size=8), data=st.data())
@settings(max_examples=10, deadline=None, derandomize=True)
def test_any_cut_in_any_order_adds_up_to_the_same_gradient_in_float32(variant, aggregation, seed, lens, data):
    batch = random_batch(seed, lens, dtype=torch.float32)
    divisor = batch.divisor(more_sequences=2, more_tokens=7)
    whole = run_all(batch, variant, aggregation, divisor)
    order = data.draw(st.permutations(range(len(lens))))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(lens) - 1))))
    parts = [order[a:b] for a, b in zip([0, *cuts], [*cuts, len(lens)], strict=True)]
    loss, grad_BT = 0.0, torch.zeros_like(whole.grad_BT)
    for part in parts:
        result = run_all(batch.rows(part), variant, aggregation, divisor)
        loss += float(result.loss)
        grad_BT[part] += result.grad_BT
    assert loss == pytest.approx(float(whole.loss), abs=1e-6)
    torch.testing.assert_close(grad_BT, whole.grad_BT, rtol=0, atol=1e-6)


@variants
def test_the_gradient_norm_is_the_same_however_many_micro_batches_add_up(variant):
    # Divided again by the number of micro-batches it would be a quarter.
    batch = random_batch(lens=(5, 2, 7, 1, 3, 3, 8, 2))
    whole = run_all(batch, variant).grad_BT
    parts = [run_all(batch.rows(range(i, i + 2)), variant, divisor=batch.divisor()).grad_BT for i in range(0, 8, 2)]
    assert float(torch.cat(parts).norm() / whole.norm()) == pytest.approx(1.0, abs=1e-12)


@variants
@aggregations
def test_the_order_of_the_rows_does_not_matter(variant, aggregation):
    batch = random_batch()
    order = [2, 0, 3, 1]
    result, other = run_all(batch, variant, aggregation), run_all(batch.rows(order), variant, aggregation)
    assert float(other.loss) == pytest.approx(float(result.loss), abs=1e-12)
    torch.testing.assert_close(other.grad_BT, result.grad_BT[order], rtol=0, atol=1e-15)


@variants
@aggregations
def test_rows_without_an_advantage_count_in_the_divisor_only(variant, aggregation):
    objective = Objective(variant=variant, aggregation=aggregation)
    rows = random_rows(0, (5, 2, 7, 1), spread=3e-4, advantages=(1.5, 0.0, -1.0, 0.0))
    kept, divisor = tensors(rows), tensors(rows).divisor()
    all_rows = run(kept, objective, divisor)
    dropped = run(kept.rows([0, 2]), objective, divisor)
    assert float(dropped.loss) == pytest.approx(float(all_rows.loss), abs=1e-15)
    assert torch.equal(dropped.grad_BT, all_rows.grad_BT[[0, 2]])
    assert not all_rows.grad_BT[[1, 3]].any()
    assert all_rows.terms.clipped_tokens_B[[1, 3]].tolist() == [0, 0]


@given(lens=st.lists(st.integers(1, 12), min_size=1, max_size=5), chunk=st.integers(1, 12), seed=st.integers(0, 1000))
@settings(max_examples=30, deadline=None, derandomize=True)
def test_a_sequence_cut_into_chunks_has_the_ratio_of_the_whole(lens, chunk, seed):
    batch = random_batch(seed, lens, spread=0.1)
    whole_B = sequence_log_ratio(batch.logprobs_BT, batch.old_BT, batch.mask_BT)
    lens_B = torch.tensor(lens)
    pieces = []
    for start in range(0, max(lens), chunk):  # later chunks hold rows without any token: not an empty completion
        columns = slice(start, start + chunk)
        piece = (batch.logprobs_BT[:, columns], batch.old_BT[:, columns], batch.mask_BT[:, columns])
        pieces.append(sequence_log_ratio(*piece, lens_B=lens_B))
    torch.testing.assert_close(sum(pieces), whole_B, rtol=0, atol=1e-14)


def test_chunks_pass_the_gradient_of_the_whole():
    batch = random_batch(lens=(6, 3), padding=0.0)
    logprobs_BT = batch.logprobs_BT.requires_grad_(True)
    whole = sequence_log_ratio(logprobs_BT, batch.old_BT, batch.mask_BT).exp().sum()
    (wanted_BT,) = torch.autograd.grad(whole, logprobs_BT)
    pieces = [
        sequence_log_ratio(logprobs_BT[:, c], batch.old_BT[:, c], batch.mask_BT[:, c], lens_B=torch.tensor([6, 3]))
        for c in (slice(0, 4), slice(4, 6))
    ]
    (grad_BT,) = torch.autograd.grad((pieces[0] + pieces[1]).exp().sum(), logprobs_BT)
    torch.testing.assert_close(grad_BT, wanted_BT, rtol=0, atol=1e-15)
