"""Log-probs of given tokens from logits, in float32 whatever the model's dtype.

bfloat16 cannot hold the clip band: exp(0.0005), exp(0.001) and 1.0004 all round to 1.0 there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor


def token_logprobs(logits_BTV: Tensor | Sequence[Tensor], token_ids_BT: Tensor, *, temperature: float) -> Tensor:
    """log softmax(logits / temperature) at `token_ids`, float32 [B, T].

    The temperature goes in before the softmax: it cannot be applied to a finished log-prob.
    Row by row; without gradients only one row's logits live in float32 at a time.
    """
    rows = []
    for logits_TV, token_ids_T in zip(logits_BTV, token_ids_BT, strict=True):
        scaled_TV = logits_TV.float() / temperature
        chosen_T = scaled_TV.gather(-1, token_ids_T[:, None])[:, 0]
        rows.append(chosen_T - scaled_TV.logsumexp(-1))
    return torch.stack(rows)


def completion_positions(
    token_ids_BL: Tensor, prompt_lens_B: Tensor, completion_lens_B: Tensor, *, first_position: int
) -> tuple[Tensor, Tensor]:
    """Where to read completion tokens in logits whose axis 1 starts at row position `first_position`.

    Returns (index into that axis, token ids), both [B, T]: the logits at position p predict token p + 1.
    Padding entries point at the row's last real token and must be masked by the caller.
    """
    width_T = int(completion_lens_B.max())
    offsets_BT = torch.minimum(
        torch.arange(width_T, device=token_ids_BL.device).expand(len(prompt_lens_B), -1), completion_lens_B[:, None] - 1
    )
    positions_BT = prompt_lens_B[:, None] + offsets_BT
    return positions_BT - 1 - first_position, token_ids_BL.gather(1, positions_BT)


class _HiddenLogprobs(torch.autograd.Function):
    """Chunk by chunk, and once more in the backward pass: logits of more than one chunk never exist."""

    @staticmethod
    def forward(
        ctx: Any, hidden_NH: Tensor, weight_VH: Tensor, token_ids_N: Tensor, temperature: float, chunk: int
    ) -> Tensor:
        logprobs_N = torch.empty(len(hidden_NH), dtype=torch.float32, device=hidden_NH.device)
        lse_N = torch.empty_like(logprobs_N)
        for rows in _chunks(len(hidden_NH), chunk):
            scaled_CV = (hidden_NH[rows] @ weight_VH.T).float().div_(temperature)
            lse_N[rows] = scaled_CV.logsumexp(-1)
            logprobs_N[rows] = scaled_CV.gather(-1, token_ids_N[rows, None])[:, 0] - lse_N[rows]
        ctx.save_for_backward(hidden_NH, weight_VH, token_ids_N, lse_N)
        ctx.temperature, ctx.chunk = temperature, chunk
        return logprobs_N

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None, None]:
        (grad_N,) = grads
        hidden_NH, weight_VH, token_ids_N, lse_N = ctx.saved_tensors
        grad_NH = torch.empty_like(hidden_NH)
        for rows in _chunks(len(hidden_NH), ctx.chunk):
            # d log p(y) / d logit = (onehot(y) - softmax) / temperature
            slope_CV = (hidden_NH[rows] @ weight_VH.T).float().div_(ctx.temperature)
            slope_CV.sub_(lse_N[rows, None]).exp_().mul_(-grad_N[rows, None])
            slope_CV.scatter_add_(-1, token_ids_N[rows, None], grad_N[rows, None])
            grad_NH[rows] = slope_CV.div_(ctx.temperature).to(weight_VH.dtype) @ weight_VH
        return grad_NH, None, None, None, None


def hidden_logprobs(
    hidden_NH: Tensor, weight_VH: Tensor, token_ids_N: Tensor, *, temperature: float, chunk_tokens: int = 256
) -> Tensor:
    """log softmax(hidden @ weight.T / temperature) at `token_ids_N`, float32 [N], without the tensor of logits.

    The gradient goes to `hidden_NH` alone: the head is frozen. Raises ValueError when it is not.
    """
    if weight_VH.requires_grad:
        raise ValueError("the output head must be frozen: its gradient is not computed")
    return _HiddenLogprobs.apply(hidden_NH, weight_VH, token_ids_N, temperature, chunk_tokens)


def _chunks(count: int, size: int) -> Iterator[slice]:
    return (slice(start, start + size) for start in range(0, count, size))
