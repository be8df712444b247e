"""From groups to tensors: nothing lost, nothing twice, tokens as the engine gave them."""

from dataclasses import replace

import pytest
import torch

from gspo_ray.algo.advantages import group_advantages
from gspo_ray.algo.batch import collate, completion_mask
from gspo_ray.types import Finish, WeightVersion
from tests.unit.algo.cases import ragged_groups, row_tokens
from tests.unit.factories import make_batch, make_completion, make_group


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
    assert batch.row_B.tolist() == [0, 1, 2, 3, 4, 5]
    assert batch.token_ids_BL.shape == (6, 7)  # the longest row: 2 + 5
    assert batch.sampler_logprobs_BT.shape == (6, 5)
    assert batch.num_sequences == 6  # the degenerate group b counts
    assert batch.num_tokens == 2 + 1 + 3 + 2 + 5 + 2
    assert batch.old_logprobs_BT is batch.reference_logprobs_BT is None
    assert batch.is_first_update
    # two rewards 1, 0: mean 0.5, std (ddof 1) 0.70711, so +-0.70711
    assert batch.advantages_B.tolist() == pytest.approx([0.707107, -0.707107, 0, 0, -0.707107, 0.707107], abs=1e-5)
    assert batch.active_rows().tolist() == [0, 1, 4, 5]


def test_a_kl_term_pulls_on_every_counted_row():
    batch = make_batch(ragged_groups())
    assert batch.active_rows(with_kl=True).tolist() == [0, 1, 2, 3, 4, 5]
    masked = replace(batch, counted_B=torch.tensor([True, False, True, True, True, False]))
    assert masked.active_rows(with_kl=True).tolist() == [0, 2, 3, 4]
    assert masked.active_rows().tolist() == [0, 4]


def test_advantages_reach_the_batch_unchanged():
    # ddof 0: [1, 0, 0, 1] -> +-1 and [1, 1, 1, 0] -> 0.5774 / -1.7321, not normalised again over the eight.
    groups = [make_group((1.0, 0.0, 0.0, 1.0)), make_group((1.0, 1.0, 1.0, 0.0))]
    advantages_PG = group_advantages([group.rewards_G for group in groups], kind="population")
    batch = collate(groups, advantages_PG, [[True] * 4] * 2, newest_step=0)
    wanted = [1, -1, -1, 1, 0.5773503, 0.5773503, 0.5773503, -1.7320508]
    assert batch.advantages_B.tolist() == pytest.approx(wanted, abs=1e-6)


def test_collate_aligns_logprobs_and_measures_the_age_of_the_policy():
    group = make_group((1.0, 0.0))
    old = replace(group.completions[0], version=WeightVersion(step=3, sha256="x"), sampler_logprobs=(-0.1, -0.2, -0.3))
    new = make_completion((10,), logprobs=(-0.7,), version=WeightVersion(step=5, sha256="y"))
    batch = collate([replace(group, completions=(old, new))], [[1.0, -1.0]], [[True, True]], newest_step=5)
    assert batch.policy_age_B.tolist() == [2, 0]
    assert batch.sampler_logprobs_BT[0].tolist() == pytest.approx([-0.1, -0.2, -0.3])
    assert float(batch.sampler_logprobs_BT[1, 0]) == pytest.approx(-0.7)
    assert batch.sampler_logprobs_BT.dtype == batch.advantages_B.dtype == torch.float32
    assert batch.token_ids_BL.dtype == torch.int64


def test_a_pad_token_equal_to_eos_loses_no_token():
    # SmolLM2: pad = eos. Padding is 0 here, so completions that end with (and consist of) 0 must keep every token.
    batch = make_batch([make_group((1.0, 0.0), [(9, 0, 0), (8, 7, 6, 5, 0)], prompt_ids=(0, 1))])
    mask_BT = completion_mask(batch.completion_lens_B, 5)
    assert int(mask_BT.sum()) == batch.num_tokens == 3 + 5  # the engine's lengths, not the count of non-zero ids
    assert [row_tokens(batch, row)[1] for row in range(2)] == [[9, 0, 0], [8, 7, 6, 5, 0]]


def test_the_mask_comes_from_lengths():
    assert completion_mask(torch.tensor([1, 3]), 3).tolist() == [[True, False, False], [True, True, True]]


def test_tokens_are_those_of_the_engine_and_not_of_its_text():
    # "hello" is one token to SmolLM2's tokenizer; an engine may have drawn it letter by letter.
    drawn = (88, 85, 92, 92, 95)
    group = make_group((1.0, 0.0))
    completion = make_completion(drawn, text="hello")
    batch = make_batch([replace(group, completions=(completion, group.completions[1]))])
    assert row_tokens(batch, 0)[1] == list(drawn)
    assert int(batch.completion_lens_B[0]) == 5


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        (make_completion((10, 11), finish=Finish.ABORT), "empty or aborted completion"),
        (make_completion(()), "empty or aborted completion"),
        (make_completion((10, 11), logprobs=(-0.5,)), "2 tokens but not as many log-probs"),
        # an end token that somebody appended without having drawn it
        (make_completion((10, 11, 2), logprobs=(-0.5, -0.5)), "3 tokens but not as many log-probs"),
    ],
    ids=["aborted", "empty", "ragged", "appended"],
)
def test_a_completion_that_cannot_be_trained_on_is_refused_by_name(broken, says):
    group = make_group((1.0, 0.0))
    group = replace(group, completions=(group.completions[0], replace(broken, seed=99)))
    with pytest.raises(ValueError, match=rf"{says}.*seed 99"):
        make_batch([group])


@pytest.mark.parametrize(
    ("advantages", "counted"),
    [
        ([[1.0, -1.0], [0.0, 0.0]], [[True, True]]),
        ([[1.0]], [[True, True]]),
        ([[1.0, -1.0]], [[True]]),
        ([[1.0, -1.0]], []),
    ],
)
def test_there_is_one_advantage_and_one_flag_for_each_completion(advantages, counted):
    with pytest.raises(ValueError, match="do not fit the groups"):
        collate([make_group((1.0, 0.0))], advantages, counted, newest_step=0)


def test_rows_trims_padding_and_keeps_the_divisor():
    scores_BT = torch.arange(30.0).view(6, 5)
    batch = replace(make_batch(ragged_groups()), old_logprobs_BT=scores_BT, reference_logprobs_BT=-scores_BT)
    part = batch.rows(torch.tensor([3, 1]))
    assert [row_tokens(part, row) for row in range(2)] == [([5], [33, 34]), ([1, 2, 3, 4], [22])]
    assert part.token_ids_BL.shape == (2, 5)  # 4 + 1
    assert part.sampler_logprobs_BT.shape == (2, 2)
    assert part.old_logprobs_BT is not None
    assert part.reference_logprobs_BT is not None
    assert part.old_logprobs_BT.tolist() == [[15.0, 16.0], [5.0, 6.0]]
    assert part.reference_logprobs_BT.tolist() == [[-15.0, -16.0], [-5.0, -6.0]]
    assert part.group_B.tolist() == [1, 0]
    assert part.row_B.tolist() == [3, 1]
    assert (part.num_sequences, part.num_tokens) == (6, 15)


def test_what_is_not_counted_is_in_neither_loss_nor_divisor():
    # Of four, one cut off and masked, one never judged: N is 2, and so are the tokens of those two.
    group = make_group((1.0, 0.0, 1.0, 0.0), [(10,), (11, 12), (13, 14, 15), (16, 17, 18, 19)])
    batch = collate([group], [[1.0, -1.0, 0.5, -0.5]], [[True, False, True, False]], newest_step=0)
    assert (batch.num_sequences, batch.num_tokens) == (2, 1 + 3)
    assert batch.active_rows().tolist() == [0, 2]
    assert [piece.tolist() for piece in batch.micro_batches(100)] == [[0, 2]]
    assert batch.completion_lens_B.tolist() == [1, 2, 3, 4]  # all of them stay measurable
