"""Log-probs of given tokens from logits, in float32 whatever the model's dtype.

bfloat16 cannot hold the clip band: exp(0.0005), exp(0.001) and 1.0004 all round to 1.0 there.
"""

from __future__ import annotations

from collections.abc import Sequence

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
