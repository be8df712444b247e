"""The files of a run that are always written: one line a step, one file of completions a step."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gspo_ray.algo.record import StepRecord
from gspo_ray.algo.stats import SequenceStats
from gspo_ray.types import Group, RunState, StepMetrics

METRICS_FILE = "metrics.jsonl"
EVALUATIONS_FILE = "evaluations.jsonl"
ROLLOUTS_DIR = "rollouts"


class LocalTracker:
    """Appends to `metrics.jsonl` and writes `rollouts/step_000001.jsonl` under the run directory.

    `resume_step=k` first removes what a previous attempt wrote about later steps, so that no step is there twice.
    """

    def __init__(self, run_dir: Path, *, resume_step: int = 0) -> None:
        self.metrics_path = run_dir / METRICS_FILE
        self.evaluations_path = run_dir / EVALUATIONS_FILE
        self.rollouts_dir = run_dir / ROLLOUTS_DIR
        self.rollouts_dir.mkdir(parents=True, exist_ok=True)
        self._forget_after(resume_step)

    def log_config(self, config: Mapping[str, Any]) -> None:
        """Nothing: the driver writes config.yaml into the run directory before anything else starts."""

    def log_step(self, metrics: StepMetrics) -> None:
        """One line; it is on disk when this returns, whatever becomes of the process."""
        record = {"step": metrics.step, "time": time.time(), "notes": list(metrics.notes)}
        # JSON has no NaN; null keeps the line readable for every parser and says that there was no number
        values = {name: value if math.isfinite(value) else None for name, value in metrics.values.items()}
        with self.metrics_path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record | values, allow_nan=False) + "\n")

    def log_rollouts(self, record: StepRecord) -> None:
        """Every completion of the step, complete enough to compute its loss again, and what the loss made of it."""
        lines = [json.dumps(row) for row in rollout_rows(record)]
        _write_atomically(rollouts_file(self.rollouts_dir, record.step), "".join(line + "\n" for line in lines))

    def log_evaluation(self, step: int, summary: Mapping[str, Any], values: Mapping[str, float]) -> None:
        """One line of numbers; the answers are in the result file of the evaluation, eval/step_000020.jsonl."""
        with self.evaluations_path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step, "time": time.time(), **values}, allow_nan=False) + "\n")

    def log_checkpoint(self, state: RunState, path: str) -> None:
        """Nothing: the checkpoint is itself on disk."""

    def close(self, status: str) -> None:
        """Nothing is held open."""

    def _forget_after(self, last_step: int) -> None:
        for path in (self.metrics_path, self.evaluations_path):
            if path.exists():
                kept = [record for record in read_metrics(path) if record["step"] <= last_step]
                _write_atomically(path, "".join(json.dumps(record) + "\n" for record in kept))
        kept_files = {rollouts_file(self.rollouts_dir, step) for step in range(1, last_step + 1)}
        for file in self.rollouts_dir.glob("step_*.jsonl"):
            if file not in kept_files:
                file.unlink()


def rollouts_file(rollouts_dir: Path, step: int) -> Path:
    """Where the completions of `step` are."""
    return rollouts_dir / f"step_{step:06d}.jsonl"


def read_metrics(metrics_jsonl: Path) -> list[dict[str, Any]]:
    """The records of `metrics.jsonl`. A last line torn by a kill is left out; a bad line elsewhere is an error."""
    lines = metrics_jsonl.read_text(encoding="utf-8").splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines.pop()
    return [json.loads(line) for line in lines]


def rollout_rows(record: StepRecord) -> list[dict[str, Any]]:
    """One flat record a completion, discarded groups last; what has not happened (verdict, advantage) is None.

    `updates` holds the loss's numbers for each update that computed the row (`SequenceStats`).
    """
    by_row = record.sequences_by_row()
    rows: list[dict[str, Any]] = []
    for group_index, group in enumerate(record.sampled):
        discarded = group_index >= len(record.groups_P)
        rewards_G = None if discarded or not record.rewards_PG else record.rewards_PG[group_index]
        advantages_G = None if discarded or not record.advantages_PG else record.advantages_PG[group_index]
        counted_G = None if discarded or not record.counted_PG else record.counted_PG[group_index]
        for sample_index in range(len(group.completions)):
            place = len(rows)  # discarded groups come last, so this is the row in the batch
            rows.append(
                {
                    "step": record.step,
                    "group": group_index,
                    "sample": sample_index,
                    **_completion_fields(group, sample_index),
                    "discarded": discarded,
                    "shaped_reward": None if rewards_G is None else rewards_G[sample_index],
                    "advantage": None if advantages_G is None else advantages_G[sample_index],
                    "counted": None if counted_G is None else counted_G[sample_index],
                    "updates": [_loss_fields(stats) for stats in by_row.get(place, ())],
                }
            )
    return rows


def _completion_fields(group: Group, sample_index: int) -> dict[str, Any]:
    problem, completion = group.prompt.problem, group.completions[sample_index]
    verdict = group.verdicts[sample_index] if group.verdicts else None
    logprobs = completion.sampler_logprobs
    return {
        "problem_id": problem.problem_id,
        "question": problem.question,
        "gold": problem.answer,
        "tokens": len(completion.token_ids),
        "text": completion.text,
        "finish": completion.finish.value,
        "reward": verdict.reward if verdict else None,
        "outcome": verdict.outcome.value if verdict else None,
        "extracted": verdict.extracted if verdict else None,
        "verify_seconds": verdict.seconds if verdict else None,
        "version_step": completion.version.step,
        "version_sha256": completion.version.sha256,
        "engine_id": completion.engine_id,
        "seed": completion.seed,
        "mean_sampler_logprob": math.fsum(logprobs) / len(logprobs) if logprobs else None,
        "prompt_ids": list(group.prompt.token_ids),
        "token_ids": list(completion.token_ids),
        "sampler_logprobs": list(logprobs),
    }


def _loss_fields(stats: SequenceStats) -> dict[str, Any]:
    fields = asdict(stats)
    return {name: fields[name] for name in fields if name not in ("row", "advantage", "num_tokens")}


def _write_atomically(path: Path, text: str) -> None:
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
