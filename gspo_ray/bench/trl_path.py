"""The same batch through TRL's own loss, configured as the paper. TRL is no dependency; written against TRL 1.16.0.

Nothing is sampled: `compute_loss` gets what `GRPOTrainer._prepare_inputs` would hand over. Without CUDA TRL projects
every position to the vocabulary; `compact` makes it project completions alone, as it does on CUDA: the fairer opponent.
"""

from __future__ import annotations

import importlib
import tempfile
from typing import Any

import torch

from gspo_ray.bench.case import Case
from gspo_ray.bench.flops import Work
from gspo_ray.bench.variants import train_batch
from gspo_ray.errors import LearnerError


class TrlVariant:
    def __init__(self, model: Any, case: Case, *, compact: bool) -> None:
        """Raises LearnerError when the rows cannot be cut evenly, or TRL is one that is not known."""
        utils: Any = importlib.import_module("trl.trainer.utils")
        if compact:
            if not hasattr(utils, "_use_triton"):
                raise LearnerError("variant trl_compact knows TRL 1.16.0, where trl.trainer.utils has _use_triton")
            utils._use_triton = lambda device: True
        batch = train_batch(case.groups)
        rows = len(batch.row_B)
        micro_batches, left = divmod(rows, case.trl_rows)
        if left:
            raise LearnerError(f"--trl-rows {case.trl_rows} does not divide the {rows} sequences of the batch")
        self.note = f"{case.trl_rows} sequences a micro-batch"
        self._model, self._compact, self._device = model, compact, case.device
        self._trainer = _trainer(model, case, micro_batches)
        model.training = True  # the wrapper alone: TRL averages over micro-batches only then, and dropout stays off
        self._trainer.current_gradient_accumulation_steps = micro_batches
        self._pieces = [batch.rows(rows_R) for rows_R in torch.arange(rows).split(case.trl_rows)]
        self._inputs = _inputs(case, rows)

    def step(self) -> tuple[Work, int]:
        work = Work(tokens=0, head_tokens=0, pairs=0)
        for part, inputs in zip(self._pieces, self._inputs, strict=True):
            self._trainer.accelerator.backward(self._trainer.compute_loss(self._model, inputs))
            rows, width = len(part.row_B), inputs["prompt_ids"].shape[1] + inputs["completion_ids"].shape[1]
            head = int(part.completion_lens_B.sum()) if self._compact else rows * width
            work += Work(tokens=rows * width, head_tokens=head, pairs=rows * width * (width + 1) // 2)
        self._trainer._metrics["train"].clear()
        return work, len(self._inputs)


def _inputs(case: Case, rows: int) -> list[dict[str, Any]]:
    """Prompts padded on the left and completions on the right, to the longest of the whole batch, as TRL does."""
    pairs = [(prompt, ids) for prompt, completions in case.groups for ids in completions]
    batch = train_batch(case.groups)
    prompts = _padded([prompt for prompt, _ in pairs], left=True)
    completions = _padded([ids for _, ids in pairs], left=False)
    whole = {
        "prompt_ids": prompts[0],
        "prompt_mask": prompts[1],
        "completion_ids": completions[0],
        "completion_mask": completions[1],
        "advantages": batch.advantages_B,
    }
    split = {name: tensor.to(case.device).split(case.trl_rows) for name, tensor in whole.items()}
    total = completions[1].sum()
    return [
        {name: pieces[number] for name, pieces in split.items()} | {"num_items_in_batch": total}
        for number in range(rows // case.trl_rows)
    ]


def _padded(rows: list[list[int]], *, left: bool) -> tuple[torch.Tensor, torch.Tensor]:
    width = max(len(row) for row in rows)

    def pad(row: list[int], filling: list[int]) -> list[int]:
        return filling + row if left else row + filling

    ids = [pad(row, [0] * (width - len(row))) for row in rows]
    mask = [pad([1] * len(row), [0] * (width - len(row))) for row in rows]
    return torch.tensor(ids), torch.tensor(mask)


def _trainer(model: Any, case: Case, micro_batches: int) -> Any:
    import tokenizers
    import transformers

    datasets, trl = importlib.import_module("datasets"), importlib.import_module("trl")

    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<pad>": 0, "<end>": 1}, unk_token="<pad>"))
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", eos_token="<end>", padding_side="left"
    )
    rows = case.trl_rows * micro_batches
    config = trl.GRPOConfig(
        output_dir=tempfile.mkdtemp(prefix="gspo-bench-trl-"),
        importance_sampling_level="sequence",
        loss_type="grpo",
        epsilon=3e-4,
        epsilon_high=4e-4,
        beta=0.0,
        num_generations=rows // len(case.groups),
        per_device_train_batch_size=case.trl_rows,
        gradient_accumulation_steps=micro_batches,
        max_steps=1,
        temperature=case.temperature,
        max_completion_length=max(len(ids) for _, completions in case.groups for ids in completions),
        gradient_checkpointing=case.gradient_checkpointing,
        use_cpu=case.device == "cpu",
        bf16=case.model.dtype == "bfloat16",
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
    )
    trainer = trl.GRPOTrainer(
        model=model,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=config,
        train_dataset=datasets.Dataset.from_list([{"prompt": "<end>"}] * rows),
        processing_class=tokenizer,
    )
    trainer.remove_callback(transformers.PrinterCallback)
    return trainer
