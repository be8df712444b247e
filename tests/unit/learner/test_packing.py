"""Packed rows: the same log-probs and gradients as plain rows, with fewer tokens, whatever the attention."""

import random

import pytest
import torch
from transformers import AutoModelForCausalLM

from gspo_ray.algo.logprobs import hidden_logprobs
from gspo_ray.config import LoraConfig, ModelConfig
from gspo_ray.learner import attention
from gspo_ray.learner.model import build_policy
from gspo_ray.learner.packing import pack, packed_micro_batches, packed_tokens, shared_prompts
from gspo_ray.learner.scorer import PackedScorer, PaddedScorer, choose_scorer
from tests.unit.factories import make_batch
from tests.unit.learner.helpers import plain_logprobs, random_group


def groups(*sizes, prompt_len=5, seed=0):
    """A group for each tuple of completion lengths."""
    return [
        random_group(seed + i, (1.0,) + (0.0,) * (len(lens) - 1), prompt_len=prompt_len + i, lens=lens)
        for i, lens in enumerate(sizes)
    ]


@pytest.fixture
def policy(tiny_llama):
    """A policy whose adapter is far from zero."""
    model = build_policy(
        tiny_llama,
        ModelConfig(dtype="float32", lora=LoraConfig(rank=4)),
        device="cpu",
        seed=0,
        gradient_checkpointing=False,
    )
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.copy_(0.2 * torch.randn(parameter.shape, generator=generator))
    return model


def test_a_packed_row_has_each_prompt_once_and_positions_go_on_from_it():
    batch = make_batch(groups((3, 1), (2, 2)))
    rows = pack(batch, "cpu")
    # Prompts of 5 and 6 tokens, completions of 3, 1 and 2, 2
    assert rows.token_ids_T.tolist() == [
        *batch.token_ids_BL[0, :8].tolist(),
        *batch.token_ids_BL[1, 5:6].tolist(),
        *batch.token_ids_BL[2, :8].tolist(),
        *batch.token_ids_BL[3, 6:8].tolist(),
    ]
    assert rows.position_ids_T.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 5, 0, 1, 2, 3, 4, 5, 6, 7, 6, 7]
    # The last prompt token predicts the first token of every completion.
    assert rows.source_N.tolist() == [4, 5, 6, 4, 14, 15, 14, 17]
    assert rows.row_N.tolist() == [0, 0, 0, 1, 2, 2, 3, 3]
    assert rows.column_N.tolist() == [0, 1, 2, 0, 0, 1, 0, 1]
    targets = [
        batch.token_ids_BL[0, 5:8],
        batch.token_ids_BL[1, 5:6],
        batch.token_ids_BL[2, 6:8],
        batch.token_ids_BL[3, 6:8],
    ]
    assert rows.target_N.tolist() == torch.cat(targets).tolist()
    assert packed_tokens(batch) == 19


def test_who_sees_whom():
    layout = pack(make_batch(groups((2, 1), prompt_len=2)), "cpu").layout
    # prompt p q, completion a b, completion c
    wanted = [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0],
        [1, 1, 1, 1, 0],
        [1, 1, 0, 0, 1],
    ]
    assert layout.mask(0, None, torch.float32).exp().int().tolist() == wanted
    # A window of 2 positions: b at position 3 sees a at 2 and itself; c at 2 sees q at 1 and itself.
    windowed = [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [0, 1, 1, 0, 0], [0, 0, 1, 1, 0], [0, 1, 0, 0, 1]]
    assert layout.mask(0, 2, torch.float32).exp().int().tolist() == windowed


@pytest.mark.parametrize("limit", [0, 10**6])
def test_logprobs_are_those_of_each_sequence_alone(policy, tiny_llama, monkeypatch, limit):
    monkeypatch.setattr(attention, "MASK_LIMIT", limit)  # one call a completion, and one call a group
    batch = make_batch(groups((4, 9, 2), (1, 1), (7, 3, 3, 5)))
    policy.get_base_model().set_attn_implementation(attention.NAME)
    with torch.no_grad(), policy.disable_adapter():
        got = PackedScorer(policy, "cpu").logprobs(batch, 0.7)
    base = AutoModelForCausalLM.from_pretrained(tiny_llama, dtype=torch.float32).eval()
    for row in range(len(batch.group_B)):
        m, n = int(batch.prompt_lens_B[row]), int(batch.completion_lens_B[row])
        ids = batch.token_ids_BL[row, : m + n].tolist()
        assert got[row, :n].tolist() == pytest.approx(plain_logprobs(base, ids, m, 0.7), abs=2e-5)


@pytest.mark.parametrize("limit", [0, 10**6])
def test_gradients_are_those_of_padded_rows(policy, monkeypatch, limit):
    monkeypatch.setattr(attention, "MASK_LIMIT", limit)
    batch = make_batch(groups((4, 9, 2), (1, 1), (7, 3, 3, 5)))
    weights = torch.randn(batch.sampler_logprobs_BT.shape, generator=torch.Generator().manual_seed(1))
    weights *= torch.arange(weights.shape[1]) < batch.completion_lens_B[:, None]
    trainable = [p for p in policy.parameters() if p.requires_grad]

    def gradient(scorer, implementation):
        policy.get_base_model().set_attn_implementation(implementation)
        loss = (scorer.logprobs(batch, 0.7) * weights).sum()
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss, trainable)])

    wanted = gradient(PaddedScorer(policy, "cpu"), "sdpa")
    got = gradient(PackedScorer(policy, "cpu"), attention.NAME)
    assert float((got - wanted).norm() / wanted.norm()) < 1e-5


def test_pieces_fit_the_budget_keep_groups_together_and_lose_no_row():
    batch = make_batch(groups((4, 9, 2), (1, 1), (7, 3, 3, 5)))
    rng = random.Random(0)
    for budget in (1, 10, 20, 30, 1000):
        order = list(range(9))
        rng.shuffle(order)
        pieces = packed_micro_batches(batch, torch.tensor(order), budget)
        assert sorted(row for piece in pieces for row in piece.tolist()) == list(range(9))
        for piece in pieces:
            part = batch.rows(piece)
            assert packed_tokens(part) <= budget or len(piece) == 1
            assert len(shared_prompts(part)) == len(part.group_B.unique())  # no prompt twice in one piece
    assert len(packed_micro_batches(batch, torch.arange(9), 1000)) == 1


def test_equal_prompts_of_different_groups_are_not_merged():
    twice = [random_group(1, (1.0, 0.0), lens=(2, 3)), random_group(1, (1.0, 0.0), lens=(2, 3))]
    assert shared_prompts(make_batch(twice)) == [[0, 1], [2, 3]]


def test_the_packed_way_is_chosen_after_it_has_agreed(policy):
    scorer, why = choose_scorer(policy, "cpu")
    assert isinstance(scorer, PackedScorer)
    assert "one copy of each prompt" in why


def test_a_model_that_computes_something_else_gets_padded_rows(policy, monkeypatch):
    def blind(*args, packed, **kwargs):
        """Attends across completions, as a layer would that cannot take the layout."""
        one = packed.groups[0]
        whole = type(one)(0, packed.groups[-1].end, ())
        return attention.packed_attention(*args, packed=type(packed)((whole,), packed.device), **kwargs)

    from transformers import AttentionInterface

    monkeypatch.setitem(AttentionInterface._global_mapping, attention.NAME, blind)
    scorer, why = choose_scorer(policy, "cpu")
    assert isinstance(scorer, PaddedScorer)
    assert "would change log-probs by up to" in why
    scorer.logprobs(make_batch(groups((4, 9, 2), (3, 3))), 1.0)  # and the model works as before


@pytest.mark.parametrize("chunk", [1, 3, 100])
def test_logprobs_from_hidden_states_against_float64(chunk):
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(7, 6, generator=generator, requires_grad=True)
    weight = torch.randn(11, 6, generator=generator)
    ids = torch.tensor([0, 10, 3, 3, 5, 1, 9])
    got = hidden_logprobs(hidden, weight, ids, temperature=0.6, chunk_tokens=chunk)
    exact = hidden.detach().double().requires_grad_()
    wanted = torch.log_softmax(exact @ weight.double().T / 0.6, -1).gather(-1, ids[:, None])[:, 0]
    torch.testing.assert_close(got.double(), wanted, atol=1e-6, rtol=1e-6)
    scale = torch.randn(7, generator=generator)
    got.backward(scale)
    wanted.backward(scale.double())
    assert hidden.grad is not None
    torch.testing.assert_close(hidden.grad.double(), exact.grad, atol=1e-5, rtol=1e-5)


def test_a_head_that_is_trained_is_refused():
    with pytest.raises(ValueError, match="must be frozen"):
        hidden_logprobs(torch.zeros(2, 3), torch.zeros(5, 3, requires_grad=True), torch.tensor([0, 1]), temperature=1.0)
