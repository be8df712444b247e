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
    """Chunk by chunk, in one buffer: logits of more than one chunk never exist.

    d log p(y) / d hidden = (weight[y] - softmax @ weight) / temperature is the same whatever the loss makes of the
    log-prob, so it is taken while the softmax is there, and nothing is computed twice.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden_NH: Tensor, weight_VH: Tensor, token_ids_N: Tensor, temperature: float, chunk: int
    ) -> Tensor:
        logprobs_N = torch.empty(len(hidden_NH), dtype=torch.float32, device=hidden_NH.device)
        slope_NH = torch.empty_like(hidden_NH, dtype=torch.float32) if ctx.needs_input_grad[0] else None
        buffer_CV = hidden_NH.new_empty(min(chunk, len(hidden_NH)), len(weight_VH))
        for rows in _chunks(len(hidden_NH), chunk):
            hidden_CH = hidden_NH[rows]
            scaled_CV = torch.mm(hidden_CH, weight_VH.T, out=buffer_CV[: len(hidden_CH)]).float().div_(temperature)
            chosen_C = scaled_CV.gather(-1, token_ids_N[rows, None])[:, 0]
            top_C = scaled_CV.amax(-1)
            exp_CV = scaled_CV.sub_(top_C[:, None]).exp_()
            total_C = exp_CV.sum(-1)
            logprobs_N[rows] = chosen_C - top_C - total_C.log()
            if slope_NH is not None:
                mean_CH = exp_CV.div_(total_C[:, None]).to(weight_VH.dtype) @ weight_VH
                slope_NH[rows] = weight_VH[token_ids_N[rows]].float().sub_(mean_CH).div_(temperature)
        if slope_NH is not None:
            ctx.save_for_backward(slope_NH)
            ctx.dtype = hidden_NH.dtype
        return logprobs_N

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None, None]:
        (slope_NH,) = ctx.saved_tensors
        return (grads[0][:, None] * slope_NH).to(ctx.dtype), None, None, None, None


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
