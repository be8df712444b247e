"""The CPU engine's grouped LoRA against the definition: token by token, each with its own adapter."""

import hashlib
from types import SimpleNamespace

import pytest
import torch

from gspo_ray.rollout.vllm_worker import (
    WorkerExtension,
    _add_low_rank,
    _group_by_slot,
    _grouped_lora_linear,
    _grouped_lora_logits,
)

MIXED = [0, 2, -1, 0, 2, 2, -1]


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)), dtype=torch.float64)


def token_by_token(y, x, a, b, scale, slot_of_row):
    """y_t + scale * B_s (A_s x_t) for token t with slot s; slot -1 is the base model."""
    result = y.clone()
    for t, slot in enumerate(slot_of_row):
        if slot >= 0:
            result[t] += scale * (b[slot, 0] @ (a[slot, 0] @ x[t]))
    return result


def close(left, right):
    torch.testing.assert_close(left, right, rtol=0, atol=1e-12)


def test_rows_are_grouped_by_slot_and_those_without_an_adapter_left_out():
    groups = dict(_group_by_slot(torch.tensor(MIXED)))
    assert sorted(groups) == [0, 2]
    assert groups[0] is not None
    assert groups[0].tolist() == [0, 3]
    assert groups[2] is not None
    assert groups[2].tolist() == [1, 4, 5]


def test_one_adapter_for_every_row_needs_no_index():
    assert _group_by_slot(torch.tensor([1, 1, 1])) == [(1, None)]


def test_one_adapter_and_rows_without_any_is_not_every_row():
    ((slot, rows),) = _group_by_slot(torch.tensor([1, -1, 1]))
    assert slot == 1
    assert rows is not None
    assert rows.tolist() == [0, 2]


@pytest.mark.parametrize("rows", [[], [-1], [-1, -1]])
def test_no_adapter_in_use_is_no_group(rows):
    assert _group_by_slot(torch.tensor(rows, dtype=torch.int64)) == []


@pytest.mark.parametrize(
    "slots", [MIXED, [0] * 7, [2] * 7, [-1] * 7, [0, -1, 0, 0, -1, 0, 0], [0, 1, 2, 0, 1, 2, 0]], ids=str
)
def test_add_low_rank_is_the_sum_token_by_token(slots):
    x, y, a, b = draw(7, 6), draw(7, 5), draw(3, 1, 4, 6), draw(3, 1, 5, 4)
    wanted = token_by_token(y, x, a, b, 0.5, slots)
    inputs = x.clone(), a.clone(), b.clone()
    _add_low_rank(y, x, a, b, 0.5, _group_by_slot(torch.tensor(slots)))
    close(y, wanted)
    assert all(torch.equal(now, before) for now, before in zip((x, a, b), inputs, strict=True))


@pytest.mark.parametrize("slots", [MIXED, [1] * 7, [-1] * 7], ids=str)
def test_a_packed_projection_gets_its_own_update_in_every_slice(slots):
    """q, k, v of different widths in one output, as vLLM packs them: B46 is a swap of two of them."""
    widths = (5, 3, 3)
    x, y = draw(7, 6), draw(7, 11)
    a = tuple(draw(3, 1, 4, 6, seed=i) for i in range(3))
    b = tuple(draw(3, 1, width, 4, seed=10 + i) for i, width in enumerate(widths))
    parts = y.split(widths, dim=-1)
    wanted = torch.cat([token_by_token(p, x, a[i], b[i], 2.0, slots) for i, p in enumerate(parts)], dim=-1)
    wrapper = SimpleNamespace(gspo_token_slots=_group_by_slot(torch.tensor(slots)))
    _grouped_lora_linear(wrapper, y, x, a, b, 2.0, widths, buffer=None)
    close(y, wanted)


def test_outputs_with_a_batch_dimension_are_changed_in_place():
    x, y, a, b = draw(2, 3, 6), draw(2, 3, 5), draw(3, 1, 4, 6), draw(3, 1, 5, 4)
    slots = [0, 1, -1, 1, 1, 0]
    wanted = token_by_token(y.view(6, 5), x.view(6, 6), a, b, 1.0, slots).view(2, 3, 5)
    wrapper = SimpleNamespace(gspo_token_slots=_group_by_slot(torch.tensor(slots)))
    _grouped_lora_linear(wrapper, y, x, (a,), (b,), 1.0, (5,))
    close(y, wanted)


def test_logits_use_the_slots_of_the_sampled_rows_and_not_those_of_the_tokens():
    x, y, a, b = draw(2, 6), draw(2, 9), draw(3, 1, 4, 6), draw(3, 1, 9, 4)
    wanted = token_by_token(y, x, a, b, 1.0, [2, -1])
    wrapper = SimpleNamespace(
        gspo_token_slots=_group_by_slot(torch.tensor(MIXED)), gspo_logit_slots=_group_by_slot(torch.tensor([2, -1]))
    )
    _grouped_lora_logits(wrapper, y, x, a, b, 1.0)
    close(y, wanted)


def test_the_worker_hashes_the_file_that_it_sees(tmp_path):
    (tmp_path / "adapter_model.safetensors").write_bytes(b"some bytes")
    assert WorkerExtension().adapter_sha256(str(tmp_path)) == hashlib.sha256(b"some bytes").hexdigest()
