"""Log-probs of given tokens: the temperature, the dtype, and where to read in ragged rows."""

import numpy as np
import pytest
import torch

from gspo_ray.algo.logprobs import completion_positions, token_logprobs


def test_the_temperature_goes_in_before_the_softmax():
    # (2, 1, 0) / 0.6, token 0: -log(1 + e^(-1/0.6) + e^(-2/0.6)) = -0.202573.
    # raw -0.407606 and raw / T = -0.679343 would both be wrong.
    logits = torch.tensor([[[2.0, 1.0, 0.0]]])
    value = token_logprobs(logits, torch.tensor([[0]]), temperature=0.6)
    assert float(value) == pytest.approx(-0.202573, abs=5e-7)
    # temperature 1: -log(1 + e^-1 + e^-2) = -0.407606
    assert float(token_logprobs(logits, torch.tensor([[0]]), temperature=1.0)) == pytest.approx(-0.407606, abs=5e-7)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_the_result_is_float32_whatever_the_logits_are(dtype):
    logits = torch.tensor([[[2.0, 1.0, 0.0], [0.5, 0.25, -1.0]]], dtype=dtype)  # all exact in bfloat16
    value = token_logprobs(logits, torch.tensor([[0, 2]]), temperature=1.0)
    assert value.dtype == torch.float32
    # second row: -1 - log(e^0.5 + e^0.25 + e^-1) = -1 - log(1.648721 + 1.284025 + 0.367879) = -1 - 1.194112
    # bfloat16 arithmetic would be off in the third digit.
    assert value[0].tolist() == pytest.approx([-0.407606, -2.194112], abs=2e-6)


def test_agrees_with_numpy_and_takes_a_list_of_rows():
    generator = torch.Generator().manual_seed(0)
    logits = 5 * torch.randn(3, 4, 11, generator=generator)
    tokens = torch.randint(0, 11, (3, 4), generator=generator)
    value = token_logprobs(list(logits), tokens, temperature=0.7)
    scaled = logits.double().numpy() / 0.7
    for row in range(3):
        for t in range(4):
            z = scaled[row, t]
            wanted = z[int(tokens[row, t])] - (z.max() + np.log(np.exp(z - z.max()).sum()))
            assert float(value[row, t]) == pytest.approx(wanted, abs=1e-5)


def test_a_sure_token_has_a_logprob_of_zero_and_never_more():
    value = token_logprobs(torch.tensor([[[80.0, 0.0, 0.0]]]), torch.tensor([[0]]), temperature=1.0)
    assert float(value) == 0.0


def test_gradients_flow_into_the_logits():
    logits = torch.zeros(1, 1, 4, requires_grad=True)
    token_logprobs(logits, torch.tensor([[1]]), temperature=0.5).sum().backward()
    assert logits.grad is not None
    # d log softmax(z / T)_1 / dz = (onehot - 1/4) / T
    assert logits.grad.flatten().tolist() == pytest.approx([-0.5, 1.5, -0.5, -0.5], abs=1e-6)


def test_completion_positions_with_ragged_prompts():
    # row 0: prompt 10 11 12, completion 20 21;  row 1: prompt 13, completion 30 31 32;  0 is padding
    tokens = torch.tensor([[10, 11, 12, 20, 21], [13, 30, 31, 32, 0]])
    index, chosen = completion_positions(tokens, torch.tensor([3, 1]), torch.tensor([2, 3]), first_position=0)
    # Token at position p is predicted at p - 1. Row 0: positions 3, 4 -> 2, 3, then the last real one again.
    assert index.tolist() == [[2, 3, 3], [0, 1, 2]]
    assert chosen.tolist() == [[20, 21, 21], [30, 31, 32]]


def test_completion_positions_count_from_the_first_kept_logit():
    tokens = torch.tensor([[10, 11, 12, 20, 21], [13, 14, 30, 31, 32]])
    # logits kept from position 1 on (the shortest prompt's last token): every index is one less
    index, chosen = completion_positions(tokens, torch.tensor([3, 2]), torch.tensor([2, 3]), first_position=1)
    assert index.tolist() == [[1, 2, 2], [0, 1, 2]]
    assert chosen.tolist() == [[20, 21, 21], [30, 31, 32]]


def test_the_clip_band_survives_a_bfloat16_model():
    # Two logits of 0 and 0.0004 (rounded to bfloat16: 0.000399): log-softmax -log(1 + e^-x) = -log 2 + x / 2 - x^2 / 8.
    # In bfloat16 both would be -0.6914 and their ratio 1: exp(0.0005), exp(0.001) and 1.0004 all round to 1.0 there.
    assert torch.tensor([0.0005, 0.001]).exp().bfloat16().tolist() == [1.0, 1.0]
    x = torch.tensor(0.0004, dtype=torch.bfloat16)
    old, new = (
        token_logprobs(torch.stack([logit, torch.zeros_like(x)])[None, None], torch.tensor([[0]]), temperature=1.0)
        for logit in (torch.zeros_like(x), x)
    )
    assert float((new - old).exp()) == pytest.approx(1 + float(x) / 2, abs=2e-7)
    assert float((new - old).exp()) > 1.00015
