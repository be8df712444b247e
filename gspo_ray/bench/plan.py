"""The memory that the plan states for the learner beside what a process takes, for full micro-batches."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from gspo_ray.algo.batch import unjudged_batch
from gspo_ray.bench.case import Case, Measurement
from gspo_ray.bench.learner import in_own_process
from gspo_ray.errors import LearnerError
from gspo_ray.planning.lengths import Lengths, full_micro_batch
from gspo_ray.planning.memory import DTYPE_BYTES
from gspo_ray.planning.policy import policy_without_weights
from gspo_ray.planning.rehearsal import rehearse, scorer_of
from gspo_ray.planning.shape import model_shape

MIB = 2**20
# glibc then gives every freed tensor back to the system at once. Else most of what is freed stays with the process, in
# holes that the next tensor of the same size does not fit because it has to be aligned.
GIVES_BACK = {"MALLOC_MMAP_THRESHOLD_": "65536"}
NO_OPTIMIZER = 8  # bytes of a trainable weight here: float32 and its gradient


def check_plan(case: Case, lengths: Lengths, *, group_size: int, tokens: Sequence[int]) -> list[dict[str, Any]]:
    """Two rows a size of micro-batch: as it is, and with layers recomputed. `groups` of `case` are of no meaning."""
    ways = [case.model_copy(update={"gradient_checkpointing": recompute}) for recompute in (False, True)]
    return [_row(way, lengths, group_size, number) for number in tokens for way in ways]


def _row(case: Case, lengths: Lengths, group_size: int, tokens: int) -> dict[str, Any]:
    policy = policy_without_weights(case.model_path, case.model, gradient_checkpointing=case.gradient_checkpointing)
    way, shape = scorer_of(policy), model_shape(policy)
    groups = full_micro_batch(
        lengths, group_size=group_size, max_tokens=tokens, longest=1, shares_prompts=way.shares_prompts
    )
    stated = rehearse(policy, way, unjudged_batch(groups), device=case.device)
    case = case.model_copy(update={"variant": "ours", "groups": groups, "micro_batch_tokens": tokens})
    with tempfile.TemporaryDirectory(prefix="gspo-bench-") as folder:
        done = Measurement.model_validate(in_own_process(case, "ours", Path(folder), **GIVES_BACK))
    if done.failure or done.micro_batches != 1:
        raise LearnerError(f"{tokens} tokens: {done.failure or 'more than one micro-batch'}")
    model = shape.total * DTYPE_BYTES[case.model.dtype]
    adapter = shape.lora * NO_OPTIMIZER
    return {
        "tokens": tokens,
        "gradient_checkpointing": case.gradient_checkpointing,
        "stated": {"above_model": stated.peak_bytes + adapter // 2, "all": model + adapter + stated.peak_bytes},
        "measured": {
            "above_model": done.peak_bytes - done.loaded_bytes,
            "all": done.peak_bytes - done.empty_bytes,
        },
        "note": done.note,
    }


def render(rows: Sequence[dict[str, Any]], console: Console) -> None:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    of_both = ("stated\nMiB", "measured\nMiB", "error")
    for title in (
        "tokens",
        "layers\nagain",
        *(f"above\n{name}" for name in of_both),
        *(f"all\n{name}" for name in of_both),
    ):
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        cells = [str(row["tokens"]), "yes" if row["gradient_checkpointing"] else "no"]
        for key in ("above_model", "all"):
            stated, measured = row["stated"][key], row["measured"][key]
            cells += [f"{stated / MIB:.0f}", f"{measured / MIB:.0f}", f"{stated / measured - 1:+.1%}"]
        table.add_row(*cells)
    console.print(table)
