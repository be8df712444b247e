"""From groups to tensors, and every way of cutting them: nothing lost, nothing twice, the divisor kept."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gspo_ray.algo.batch import collate, completion_mask
from gspo_ray.types import Finish, WeightVersion
from tests.unit.factories import make_batch, make_completion, make_group


def row_tokens(batch, row):
    """(prompt, completion) of a row, read by its lengths alone."""
    m, n = int(batch.prompt_lens_B[row]), int(batch.completion_lens_B[row])
    ids = batch.token_ids_BL[row].tolist()
    return ids[:m], ids[m : m + n]


def ragged_groups():
    return [
        make_group((1.0, 0.0), [(20, 21), (22,)], problem_id="a", prompt_ids=(1, 2, 3, 4)),
        make_group((1.0, 1.0), [(30, 31, 32), (33, 34)], problem_id="b", prompt_ids=(5,)),
        make_group((0.0, 1.0), [(40, 41, 42, 43, 44), (45, 46)], problem_id="c", prompt_ids=(6, 7)),
    ]


def test_collate_keeps_the_order_of_groups_and_completions():
    batch = make_batch(ragged_groups())
    assert [row_tokens(batch, row) for row in range(6)] == [
        ([1, 2, 3, 4], [20, 21]),
        ([1, 2, 3, 4], [22]),
        ([5], [30, 31, 32]),
        ([5], [33, 34]),
        ([6, 7], [40, 41, 42, 43, 44]),
        ([6, 7], [45, 46]),
    ]
    assert batch.group_B.tolist() == [0, 0, 1, 1, 2, 2]
    assert batch.token_ids_BL.shape == (6, 7)  # the longest row: 2 + 5
    assert batch.sampler_logprobs_BT.shape == (6, 5)
    assert batch.num_sequences == 6  # the degenerate group b counts
    assert batch.old_logprobs_BT is None
    assert batch.is_first_update
    # two rewards 1, 0: mean 0.5, std (ddof 1) 0.70711, so +-0.70711
    assert batch.advantages_B.tolist() == pytest.approx([0.707107, -0.707107, 0, 0, -0.707107, 0.707107], abs=1e-5)
    assert batch.active_rows.tolist() == [0, 1, 4, 5]


def test_collate_aligns_logprobs_and_measures_the_age_of_the_policy():
    group = make_group((1.0, 0.0))
    old = replace(group.completions[0], version=WeightVersion(step=3, sha256="x"), sampler_logprobs=(-0.1, -0.2, -0.3))
    new = make_completion((10,), logprobs=(-0.7,), version=WeightVersion(step=5, sha256="y"))
    batch = collate([replace(group, completions=(old, new))], [[1.0, -1.0]], newest_step=5)
    assert batch.policy_age_B.tolist() == [2, 0]
    assert batch.sampler_logprobs_BT[0].tolist() == pytest.approx([-0.1, -0.2, -0.3])
    assert float(batch.sampler_logprobs_BT[1, 0]) == pytest.approx(-0.7)
    assert batch.sampler_logprobs_BT.dtype == batch.advantages_B.dtype == torch.float32
    assert batch.token_ids_BL.dtype == torch.int64


def test_a_pad_token_equal_to_eos_loses_no_token():
    # SmolLM2: pad = eos. Padding is 0 here, so completions that end with (and consist of) 0 must keep every token.
    batch = make_batch([make_group((1.0, 0.0), [(9, 0, 0), (8, 7, 6, 5, 0)], prompt_ids=(0, 1))])
    mask = completion_mask(batch.completion_lens_B, 5)
    assert int(mask.sum()) == 3 + 5  # the engine's lengths, not the count of non-zero ids
    assert [row_tokens(batch, row)[1] for row in range(2)] == [[9, 0, 0], [8, 7, 6, 5, 0]]


def test_the_mask_comes_from_lengths():
    assert completion_mask(torch.tensor([1, 3]), 3).tolist() == [[True, False, False], [True, True, True]]


@pytest.mark.parametrize(
    "broken",
    [
        make_completion((10, 11), finish=Finish.ABORT),
        make_completion(()),
        make_completion((10, 11), logprobs=(-0.5,)),
    ],
    ids=["aborted", "empty", "ragged"],
)
def test_a_completion_that_cannot_be_trained_on_is_refused_by_name(broken):
    group = make_group((1.0, 0.0), problem_id="p7")
    group = replace(group, completions=(group.completions[0], replace(broken, seed=99)))
    with pytest.raises(ValueError, match=r"problem p7.*seed 99"):
        collate([group], [[1.0, -1.0]], newest_step=0)


def test_groups_and_advantages_must_match_in_number():
    group = make_group((1.0, 0.0))
    with pytest.raises(ValueError, match="zip"):
        collate([group], [[1.0, -1.0], [0.0, 0.0]], newest_step=0)
    with pytest.raises(ValueError, match="zip"):
        collate([group], [[1.0]], newest_step=0)


group_sizes = st.lists(st.integers(1, 4), min_size=1, max_size=7)


@given(sizes=group_sizes, data=st.data())
@settings(max_examples=40, deadline=None)
def test_split_keeps_groups_whole_and_takes_every_row_once(sizes, data):
    groups = [
        make_group([float(i % 2) for i in range(size)], [(100 + number, 10 + i) for i in range(size)])
        for number, size in enumerate(sizes)
    ]
    batch = make_batch(groups)
    parts = batch.split(number := data.draw(st.integers(1, len(sizes))))
    assert len(parts) == number
    seen = [row_tokens(part, row) for part in parts for row in range(len(part.advantages_B))]
    assert seen == [row_tokens(batch, row) for row in range(len(batch.advantages_B))]  # once each, in order
    group_sets = [set(part.group_B.tolist()) for part in parts]
    assert sum(map(len, group_sets)) == len(set().union(*group_sets)) == len(sizes)
    assert max(map(len, group_sets)) - min(map(len, group_sets)) <= 1  # as even as they come
    assert [part.num_sequences for part in parts] == [len(part.advantages_B) for part in parts]
    assert [part.is_first_update for part in parts] == [True] + [False] * (number - 1)


def test_unequal_minibatches_are_divided_by_their_own_size():
    parts = make_batch(ragged_groups()).split(2)  # 3 groups: 2 + 1
    assert [part.num_sequences for part in parts] == [4, 2]
    # The second has no row from group a or b, so it is as narrow as its own longest: 2 + 5
    assert parts[1].token_ids_BL.shape == (2, 7)
    assert parts[0].token_ids_BL.shape == (4, 6)


def test_more_minibatches_than_groups_are_refused():
    with pytest.raises(ValueError, match="3 groups into 4"):
        make_batch(ragged_groups()).split(4)


def test_one_minibatch_is_the_batch_itself():
    batch = make_batch(ragged_groups())
    assert batch.split(1) == [batch]


def test_rows_trims_padding_and_keeps_the_divisor():
    batch = replace(make_batch(ragged_groups()), old_logprobs_BT=torch.arange(30.0).view(6, 5))
    part = batch.rows(torch.tensor([3, 1]))
    assert [row_tokens(part, row) for row in range(2)] == [([5], [33, 34]), ([1, 2, 3, 4], [22])]
    assert part.token_ids_BL.shape == (2, 5)  # 4 + 1
    assert part.sampler_logprobs_BT.shape == (2, 2)
    assert part.old_logprobs_BT is not None
    assert part.old_logprobs_BT.tolist() == [[15.0, 16.0], [5.0, 6.0]]
    assert part.group_B.tolist() == [1, 0]
    assert part.num_sequences == 6


@given(lens=st.lists(st.integers(1, 30), min_size=1, max_size=20), budget=st.integers(1, 120), data=st.data())
@settings(max_examples=60, deadline=None)
def test_micro_batches_hold_each_active_row_once_within_the_budget(lens, budget, data):
    active = data.draw(st.lists(st.booleans(), min_size=len(lens), max_size=len(lens)))
    group = make_group([0.0] * len(lens), [tuple(range(10, 10 + n)) for n in lens], prompt_ids=(1, 2))
    batch = collate([group], [[1.0 if flag else 0.0 for flag in active]], newest_step=0)
    pieces = [piece.tolist() for piece in batch.micro_batches(budget)]
    assert sorted(row for piece in pieces for row in piece) == [row for row, flag in enumerate(active) if flag]
    for piece in pieces:
        assert len(piece) == 1 or len(piece) * max(2 + lens[row] for row in piece) <= budget


def test_micro_batches_by_hand():
    # lengths (prompt + completion): a 6, 5; c 7, 4; b has no advantage. Sorted: row 5 (4), 1 (5), 0 (6), 4 (7).
    batch = make_batch(ragged_groups())
    # 12 tokens: [5, 1] is 2 x 5 = 10; a third would be 3 x 6 = 18. [0] and 4: 2 x 7 = 14 > 12.
    assert [piece.tolist() for piece in batch.micro_batches(12)] == [[5, 1], [0], [4]]
    assert [piece.tolist() for piece in batch.micro_batches(1)] == [[5], [1], [0], [4]]
    assert [piece.tolist() for piece in batch.micro_batches(10**6)] == [[5, 1, 0, 4]]


def test_a_batch_without_any_advantage_has_no_micro_batch():
    batch = make_batch([make_group((1.0, 1.0)), make_group((0.0, 0.0))])
    assert batch.micro_batches(100) == []
    assert batch.num_sequences == 4
