"""A ragged batch of token ids on a tiny random model, and gspo_ray's loss and gradient on it: our half of test_trl."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import tokenizers
import torch
import transformers
from torch import Tensor

from gspo_ray.algo.advantages import group_advantages
from gspo_ray.algo.aggregation import Divisor
from gspo_ray.algo.batch import completion_mask
from gspo_ray.algo.logprobs import completion_positions, token_logprobs
from gspo_ray.algo.losses import Objective, policy_loss

VOCABULARY, PAD, END = 97, 0, 1
GROUP_SIZE, LIMIT = 4, 96
PROMPT_LENGTHS = (3, 9, 5, 12)
COMPLETION_LENGTHS = (1, 2, 7, 30, 60, 3, 11, 4, 25, 90, 6, 48, 17, 9, 33, 5)
REWARDS: list[list[float | None]] = [[1.0, 0.0, 0.0, 1.0], [0.0, 1.0, 0.0, 0.0], [1.0, 1.0, 1.0, 0.0], [0.0] * 4]


class Result(NamedTuple):
    loss: float
    gradient: Tensor  # of all parameters, in one vector


@dataclass
class Recorded:
    """B = 16 completions of 4 prompts; tensors are float32, padded on the right."""

    model_path: Path
    prompts: list[list[int]]
    completions_B: list[list[int]]
    mask_BT: Tensor
    advantages_B: Tensor
    old_logprobs_BT: Tensor
    reference_logprobs_BT: Tensor

    def prompt_of(self, row: int) -> list[int]:
        return self.prompts[row // GROUP_SIZE]


def record(folder: Path) -> Recorded:
    """Sequence ratios lie inside the paper's band, between it and 0.8 / 1.2, and beyond, on either side.

    Far out, because with all ratios near 1 the loss is a rest of rounding: the advantages of a group add up to 0.
    """
    torch.manual_seed(0)
    config = transformers.Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.3,  # log-probs that differ from token to token
        pad_token_id=PAD,
        eos_token_id=END,
        bos_token_id=None,
    )
    transformers.Qwen2ForCausalLM(config).save_pretrained(folder)
    rng = random.Random(1)
    prompts = [[rng.randrange(2, VOCABULARY) for _ in range(n)] for n in PROMPT_LENGTHS]
    completions_B = [[*(rng.randrange(2, VOCABULARY) for _ in range(n - 1)), END] for n in COMPLETION_LENGTHS]
    mask_BT = completion_mask(torch.tensor(COMPLETION_LENGTHS), max(COMPLETION_LENGTHS))
    advantages_B = torch.tensor([a for group in group_advantages(REWARDS) for a in group])
    empty = torch.empty(0)
    batch = Recorded(folder, prompts, completions_B, mask_BT, advantages_B, empty, empty)
    with torch.no_grad():
        now_BT = logprobs(load_model(folder), batch)
    generator = torch.Generator().manual_seed(2)
    drift_B = torch.tensor(
        [(0.05, -0.05, 0.0001, 0.3, -0.05, 0.05, -0.3)[row % 7] for row in range(len(completions_B))]
    )
    noise_BT = 0.05 * torch.randn(now_BT.shape, generator=generator) * mask_BT
    noise_BT -= (noise_BT.sum(-1) / mask_BT.sum(-1))[:, None]  # the mean log-ratio of a sequence is its drift
    batch.old_logprobs_BT = now_BT - drift_B[:, None] - noise_BT
    batch.reference_logprobs_BT = now_BT + 0.3 * torch.randn(now_BT.shape, generator=generator)
    return batch


def load_model(folder: Path) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


def number_tokenizer() -> Any:
    """The text of token 12 is "t12"."""
    words = {"<pad>": PAD, "<end>": END} | {f"t{token}": token for token in range(2, VOCABULARY)}
    plain = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<pad>"))
    plain.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=plain, pad_token="<pad>", eos_token="<end>", padding_side="left"
    )


def logprobs(model: Any, batch: Recorded) -> Tensor:
    """[B, T], of the completion tokens; each row is prompt, completion, padding."""
    prompts = [batch.prompt_of(row) for row in range(len(batch.completions_B))]
    rows = [torch.tensor(prompt + completion) for prompt, completion in zip(prompts, batch.completions_B, strict=True)]
    ids_BL = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)
    prompt_lens_B = torch.tensor([len(prompt) for prompt in prompts])
    index_BT, chosen_BT = completion_positions(ids_BL, prompt_lens_B, batch.mask_BT.sum(-1), first_position=0)
    logits_BLV = model(input_ids=ids_BL).logits
    picked = [logits_LV[index_T] for logits_LV, index_T in zip(logits_BLV, index_BT, strict=True)]
    return token_logprobs(picked, chosen_BT, temperature=1.0)


def through_gspo_ray(batch: Recorded, objective: Objective, *, is_first_update: bool) -> Result:
    """`is_first_update`: the old log-probs are the current ones."""
    model = load_model(batch.model_path)
    logprobs_BT = logprobs(model, batch)
    loss, _ = policy_loss(
        logprobs_BT,
        logprobs_BT.detach() if is_first_update else batch.old_logprobs_BT,
        batch.mask_BT,
        batch.advantages_B,
        objective=objective,
        divisor=Divisor(num_sequences=len(batch.mask_BT), num_tokens=int(batch.mask_BT.sum()), max_tokens=LIMIT),
        reference_logprobs_BT=batch.reference_logprobs_BT if objective.kl_coef else None,
    )
    loss.backward()
    return Result(float(loss.detach()), gradient_of(model))


def gradient_of(model: Any) -> Tensor:
    by_name = {name: p.grad.flatten() for name, p in model.named_parameters() if p.grad is not None}
    return torch.cat([by_name[name] for name in sorted(by_name)])
