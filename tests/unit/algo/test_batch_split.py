"""Every way of cutting a batch: rows once each, divisors of the whole, and the gradient that follows from them."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gspo_ray.algo.aggregation import Divisor
from gspo_ray.algo.batch import TrainBatch, collate, completion_mask
from gspo_ray.algo.losses import Objective, policy_loss
from tests.unit.algo.cases import AGGREGATIONS, VARIANTS, ragged_groups, row_tokens
from tests.unit.factories import make_batch, make_group

group_sizes = st.lists(st.integers(1, 4), min_size=1, max_size=7)
few = settings(max_examples=40, deadline=None, derandomize=True)


def groups_of(sizes):
    """Row [number, i] has its own tokens, so that it can be found again."""
    return [
        make_group([float(i % 2) for i in range(size)], [(100 + number, 10 + i) for i in range(size)])
        for number, size in enumerate(sizes)
    ]


@given(sizes=group_sizes, data=st.data())
@few
def test_split_keeps_groups_whole_and_takes_every_row_once(sizes, data):
    batch = make_batch(groups_of(sizes))
    parts = batch.split(number := data.draw(st.integers(1, len(sizes))))
    assert len(parts) == number
    seen = [row_tokens(part, row) for part in parts for row in range(len(part.advantages_B))]
    assert seen == [row_tokens(batch, row) for row in range(len(batch.advantages_B))]  # once each, in order
    group_sets = [set(part.group_B.tolist()) for part in parts]
    assert sum(map(len, group_sets)) == len(set().union(*group_sets)) == len(sizes)
    assert max(map(len, group_sets)) - min(map(len, group_sets)) <= 1  # as even as they come
    assert [part.num_sequences for part in parts] == [len(part.advantages_B) for part in parts]
    assert [part.num_tokens for part in parts] == [int(part.completion_lens_B.sum()) for part in parts]
    assert [part.is_first_update for part in parts] == [True] + [False] * (number - 1)


@given(sizes=group_sizes, seed=st.integers(0, 2**31), data=st.data())
@few
def test_a_shuffled_split_takes_every_row_once_as_evenly_as_it_comes(sizes, seed, data):
    batch = make_batch(groups_of(sizes))
    parts = batch.split(data.draw(st.integers(1, len(sizes))), shuffle_seed=seed)
    rows = [row for part in parts for row in part.row_B.tolist()]
    assert sorted(rows) == list(range(sum(sizes)))
    counts = [len(part.row_B) for part in parts]
    assert max(counts) - min(counts) <= 1
    assert [part.num_sequences for part in parts] == counts
    for part in parts:
        assert part.advantages_B.tolist() == batch.advantages_B[part.row_B].tolist()  # made before, group by group
        for i, row in enumerate(part.row_B.tolist()):
            assert row_tokens(part, i) == row_tokens(batch, row)


def test_a_shuffle_is_a_function_of_its_seed():
    batch = make_batch(groups_of([4] * 6))
    one, again, other = ([part.row_B.tolist() for part in batch.split(3, shuffle_seed=s)] for s in (1, 1, 2))
    assert one == again
    assert one != other
    assert one != [part.row_B.tolist() for part in batch.split(3)]


def test_unequal_minibatches_are_divided_by_their_own_counts():
    parts = make_batch(ragged_groups()).split(2)  # 3 groups: 2 + 1
    assert [part.num_sequences for part in parts] == [4, 2]
    assert [part.num_tokens for part in parts] == [2 + 1 + 3 + 2, 5 + 2]
    # The second has no row from group a or b, so it is as narrow as its own longest: 2 + 5
    assert parts[1].token_ids_BL.shape == (2, 7)
    assert parts[0].token_ids_BL.shape == (4, 6)


@pytest.mark.parametrize("seed", [None, 5])
def test_rows_that_are_not_counted_are_in_no_minibatchs_divisor(seed):
    batch = make_batch(groups_of([3, 3, 3]))
    batch = replace(batch, counted_B=batch.row_B % 3 != 1)
    parts = batch.split(3, shuffle_seed=seed)
    assert sum(part.num_sequences for part in parts) == 6
    for part in parts:
        assert part.num_sequences == int((part.row_B % 3 != 1).sum())
        assert part.num_tokens == 2 * part.num_sequences


@pytest.mark.parametrize("seed", [None, 5])
def test_only_the_first_minibatch_of_the_first_pass_meets_the_sampling_weights(seed):
    batch = make_batch(ragged_groups())
    later = replace(batch, is_first_update=False)
    assert [part.is_first_update for part in batch.split(3, shuffle_seed=seed)] == [True, False, False]
    assert [part.is_first_update for part in later.split(3, shuffle_seed=seed)] == [False, False, False]


def test_more_minibatches_than_groups_are_refused():
    with pytest.raises(ValueError, match="3 groups into 4"):
        make_batch(ragged_groups()).split(4)


@pytest.mark.parametrize("seed", [None, 3])
def test_one_minibatch_is_the_batch_itself(seed):
    batch = make_batch(ragged_groups())
    assert batch.split(1, shuffle_seed=seed) == [batch]


def gradient(
    batch: TrainBatch, objective: Objective, *, micro_batch_tokens: int, drop_idle: bool = True
) -> torch.Tensor:
    """float32 gradient of the batch for a table of token log-probs that the rows share; as the learner adds it up."""
    generator = torch.Generator().manual_seed(11)
    table = -2 * torch.rand(200, generator=generator)
    drift = 4e-4 * torch.randn(200, generator=generator)
    table.requires_grad_(True)
    pieces = batch.micro_batches(micro_batch_tokens) if drop_idle else [batch.counted_B.nonzero()[:, 0]]
    divisor = Divisor(num_sequences=batch.num_sequences, num_tokens=batch.num_tokens, max_tokens=8)
    for piece in pieces:
        part = batch.rows(piece)
        mask_BT = completion_mask(part.completion_lens_B, int(part.completion_lens_B.max()))
        places_BT = torch.where(mask_BT, part.prompt_lens_B[:, None] + torch.arange(mask_BT.shape[1]), 0)
        logprobs_BT = table[(ids_BT := part.token_ids_BL.gather(1, places_BT))]
        old_BT = logprobs_BT.detach() - drift[ids_BT]
        loss, _ = policy_loss(logprobs_BT, old_BT, mask_BT, part.advantages_B, objective=objective, divisor=divisor)
        loss.backward()
    assert table.grad is not None
    return table.grad


def random_groups(seed, count=6, size=4):
    generator = torch.Generator().manual_seed(seed)

    def draw(low, high):
        return int(torch.randint(low, high, (), generator=generator))

    return [
        make_group(
            [float(draw(0, 2)) for _ in range(size)] if number % 3 else [1.0] * size,  # every third is degenerate
            [[draw(10, 200) for _ in range(draw(1, 9))] for _ in range(size)],
            prompt_ids=range(1, draw(2, 6)),
        )
        for number in range(count)
    ]


objectives = pytest.mark.parametrize(
    "objective",
    [Objective(variant=v, aggregation=a) for v in VARIANTS for a in AGGREGATIONS],
    ids=lambda o: f"{o.variant}-{o.aggregation}",
)


@objectives
def test_micro_batches_add_up_to_the_gradient_of_the_batch(objective):
    batch = make_batch(random_groups(0))
    whole = gradient(batch, objective, micro_batch_tokens=10**6)
    for budget in (1, 20, 37):
        assert len(batch.micro_batches(budget)) > 1
        torch.testing.assert_close(gradient(batch, objective, micro_batch_tokens=budget), whole, rtol=0, atol=1e-6)
    assert float(whole.norm()) > 1e-2


@objectives
def test_degenerate_groups_may_be_computed_or_left_out(objective):
    batch = make_batch(random_groups(1))
    dropped = gradient(batch, objective, micro_batch_tokens=30)
    computed = gradient(batch, objective, micro_batch_tokens=30, drop_idle=False)
    assert len(batch.active_rows()) < len(batch.row_B)
    torch.testing.assert_close(dropped, computed, rtol=0, atol=1e-6)


@objectives
@pytest.mark.parametrize("seed", [None, 9])
def test_the_minibatches_of_one_pass_weigh_as_much_as_the_whole(objective, seed):
    """Mini-batches of equal counts: the mean of their gradients is the gradient of the batch, in any order."""
    groups = [make_group((1.0, 0.0, 0.0, 1.0), [(10 + 9 * p, 20 + p + i) for i in range(4)]) for p in range(8)]
    batch = make_batch(groups)
    parts = batch.split(4, shuffle_seed=seed)
    parts_sum = sum((gradient(part, objective, micro_batch_tokens=25) for part in parts[::-1]), torch.zeros(200))
    torch.testing.assert_close(parts_sum / 4, gradient(batch, objective, micro_batch_tokens=25), rtol=0, atol=1e-6)


@objectives
def test_an_update_is_divided_by_its_own_sequences_and_not_by_the_rollout(objective):
    # 32 sequences consumed in 4 updates of 8: the first equals a batch that was made of its 8 alone.
    groups = random_groups(2, count=8)
    first = make_batch(groups).split(4)[0]
    assert first.num_sequences == 8
    alone = make_batch(groups[:2])
    torch.testing.assert_close(
        gradient(first, objective, micro_batch_tokens=20), gradient(alone, objective, micro_batch_tokens=20)
    )


@objectives
def test_masked_completions_dilute_nothing(objective):
    # Of each group of four two are masked: the gradient is that of a batch which holds only the others.
    groups = random_groups(3)
    counted_PG = [[True, False, True, False]] * len(groups)
    advantages_PG = [[1.0, 5.0, -0.5, -7.0]] * len(groups)
    masked = collate(groups, advantages_PG, counted_PG, newest_step=0)
    kept = [replace(group, completions=group.completions[::2], verdicts=group.verdicts[::2]) for group in groups]
    alone = collate(kept, [[1.0, -0.5]] * len(groups), [[True, True]] * len(groups), newest_step=0)
    assert masked.num_sequences == alone.num_sequences
    torch.testing.assert_close(
        gradient(masked, objective, micro_batch_tokens=20), gradient(alone, objective, micro_batch_tokens=20)
    )


@given(lens=st.lists(st.integers(1, 30), min_size=1, max_size=20), budget=st.integers(1, 120), data=st.data())
@few
def test_micro_batches_hold_each_active_row_once_within_the_budget(lens, budget, data):
    flags = st.lists(st.booleans(), min_size=len(lens), max_size=len(lens))
    active, counted, with_kl = data.draw(flags), data.draw(flags), data.draw(st.booleans())
    group = make_group([0.0] * len(lens), [tuple(range(10, 10 + n)) for n in lens], prompt_ids=(1, 2))
    batch = collate([group], [[float(flag) for flag in active]], [counted], newest_step=0)
    pieces = [piece.tolist() for piece in batch.micro_batches(budget, with_kl=with_kl)]
    wanted = [row for row in range(len(lens)) if counted[row] and (with_kl or active[row])]
    assert sorted(row for piece in pieces for row in piece) == wanted
    for piece in pieces:
        assert len(piece) == 1 or len(piece) * max(2 + lens[row] for row in piece) <= budget


def test_micro_batches_by_hand():
    # lengths (prompt + completion): a 6, 5; c 7, 4; b has no advantage. Sorted: row 5 (4), 1 (5), 0 (6), 4 (7).
    batch = make_batch(ragged_groups())
    # 12 tokens: [5, 1] is 2 x 5 = 10; a third would be 3 x 6 = 18. [0] and 4: 2 x 7 = 14 > 12.
    assert [piece.tolist() for piece in batch.micro_batches(12)] == [[5, 1], [0], [4]]
    assert [piece.tolist() for piece in batch.micro_batches(10)] == [[5, 1], [0], [4]]  # the budget itself fits
    assert [piece.tolist() for piece in batch.micro_batches(9)] == [[5], [1], [0], [4]]
    assert [piece.tolist() for piece in batch.micro_batches(1)] == [[5], [1], [0], [4]]
    assert [piece.tolist() for piece in batch.micro_batches(10**6)] == [[5, 1, 0, 4]]


def test_a_batch_without_any_advantage_has_no_micro_batch_but_for_a_kl_term():
    batch = make_batch([make_group((1.0, 1.0)), make_group((0.0, 0.0))])
    assert batch.micro_batches(100) == []
    assert batch.num_sequences == 4
    assert [piece.tolist() for piece in batch.micro_batches(100, with_kl=True)] == [[0, 1, 2, 3]]
