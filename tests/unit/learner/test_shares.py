"""The split over ranks: no row lost, nobody with much more than the others, groups whole where it costs nothing."""

import time

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gspo_ray.algo.batch import unjudged_batch
from gspo_ray.learner.packing import packed_tokens
from gspo_ray.learner.shares import EVEN_ENOUGH, share


def make(groups):
    """(prompt length, lengths of the completions) for every group."""
    return unjudged_batch([([1] * prompt, [[2] * length for length in lens]) for prompt, lens in groups])


def loads(batch, shares):
    return [packed_tokens(batch.rows(rows)) if len(rows) else 0 for rows in shares]


def every_row(batch):
    return torch.arange(len(batch.row_B))


GROUPS = st.lists(
    st.tuples(st.integers(1, 60), st.lists(st.integers(1, 50), min_size=1, max_size=8)), min_size=1, max_size=12
)


@settings(max_examples=200, deadline=None)
@given(groups=GROUPS, num_ranks=st.integers(1, 6), skipped=st.sets(st.integers(0, 95)), shared=st.booleans())
def test_every_row_goes_to_one_rank_in_its_order(groups, num_ranks, skipped, shared):
    batch = make(groups)
    wanted = [row for row in range(len(batch.row_B)) if row not in skipped]
    shares = share(batch, torch.tensor(wanted, dtype=torch.int64), num_ranks, shared_prompts=shared)
    assert len(shares) == num_ranks
    assert sorted(row for rows in shares for row in rows.tolist()) == wanted
    assert all(rows.tolist() == sorted(rows.tolist()) for rows in shares)


@settings(max_examples=200, deadline=None)
@given(groups=GROUPS, num_ranks=st.integers(2, 6))
def test_the_heaviest_rank_has_at_most_one_sequence_more_than_the_lightest(groups, num_ranks):
    batch = make(groups)
    shares = share(batch, every_row(batch), num_ranks, shared_prompts=True)
    tokens = loads(batch, shares)
    heavy = tokens.index(max(tokens))
    smallest = min(int(batch.prompt_lens_B[row] + batch.completion_lens_B[row]) for row in shares[heavy])
    mean = sum(tokens) / num_ranks
    assert max(tokens) <= EVEN_ENOUGH * mean + 1e-9 or max(tokens) <= min(tokens) + smallest


def test_one_rank_gets_the_rows_as_they_are():
    batch = make([(3, [2, 1]), (5, [4, 4])])
    (rows,) = share(batch, torch.tensor([3, 0, 2]), 1, shared_prompts=True)
    assert rows.tolist() == [3, 0, 2]  # a shuffled mini-batch keeps its order


def test_tokens_are_split_and_not_rows():
    # 1 x (10 + 90) against 5 x (10 + 10): as many tokens, one row against five
    batch = make([(10, [90]), *[(10, [10])] * 5])
    assert [rows.tolist() for rows in share(batch, every_row(batch), 2, shared_prompts=True)] == [[0], [1, 2, 3, 4, 5]]


def test_groups_stay_whole_where_that_is_even():
    batch = make([(20, [10] * 4)] * 6)
    shares = share(batch, every_row(batch), 3, shared_prompts=True)
    assert loads(batch, shares) == [120] * 3
    assert sorted(len(batch.group_B[rows].unique()) for rows in shares) == [2, 2, 2]


def test_a_single_group_is_taken_apart_and_pays_its_prompt_twice():
    batch = make([(20, [10] * 8)])
    shares = share(batch, every_row(batch), 2, shared_prompts=True)
    assert loads(batch, shares) == [60, 60]  # 20 + 4 x 10 each


def test_padded_rows_pay_their_prompt_each():
    # 3 x (50 + 1) against 153: even only when every row has a prompt of its own
    batch = make([(50, [1, 1, 1]), (1, [152])])
    shares = share(batch, every_row(batch), 2, shared_prompts=False)
    assert [rows.tolist() for rows in shares] == [[3], [0, 1, 2]]


def test_a_rank_may_be_left_without_rows():
    batch = make([(3, [2])])
    assert [len(rows) for rows in share(batch, every_row(batch), 3, shared_prompts=True)] == [1, 0, 0]
    assert [len(rows) for rows in share(batch, torch.tensor([], dtype=torch.int64), 2, shared_prompts=True)] == [0, 0]


def test_a_large_batch_is_split_within_two_percent_and_at_once():
    generator = torch.Generator().manual_seed(0)
    lens = torch.randint(50, 4000, (64, 16), generator=generator).tolist()
    batch = make([(300, group) for group in lens])
    started = time.perf_counter()
    tokens = loads(batch, share(batch, every_row(batch), 8, shared_prompts=True))
    assert max(tokens) <= 1.02 * sum(tokens) / 8
    assert time.perf_counter() - started < 10  # 0.2 s here
