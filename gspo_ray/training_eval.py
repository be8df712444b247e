"""Evaluations in the course of a run: the code of `gspo-ray eval`, on the engines that the run holds anyway."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gspo_ray.config import RunConfig
from gspo_ray.evaluate import evaluate, make_protocol, sampling_params
from gspo_ray.evaluation.log import EvalLog
from gspo_ray.evaluation.result_files import read_result
from gspo_ray.inputs import EvalInputs
from gspo_ray.interfaces import Verifier
from gspo_ray.rollout.sampler import GroupSampler
from gspo_ray.types import RunState


@dataclass(frozen=True, slots=True)
class TrainingEvaluation:
    """Result files in `folder`, one a step; every later one is compared with that of step 0, the base model."""

    config: RunConfig
    inputs: EvalInputs
    sampler: GroupSampler
    verifier: Verifier
    folder: Path

    def is_due(self, step: int) -> bool:
        every = self.config.eval.every
        return step % every == 0 or step == self.config.steps

    async def run(self, state: RunState) -> tuple[dict[str, Any], dict[str, float]]:
        """The summary and its numbers under the names of metrics.py. The engines hold the weights of `state`."""
        started = time.perf_counter()
        config = self.config.eval
        is_base = state.version.step == 0  # before any update B is 0: the adapter changes nothing
        protocol = make_protocol(
            config,
            model=self.config.model,
            prompt=self.config.data.prompt,
            data=self.inputs.manifest,
            adapter=None if is_base else state.version,
            adapter_step=None if is_base else state.version.step,
        )
        base = None if is_base or not self._file(0).exists() else read_result(self._file(0))
        with EvalLog(
            self._file(state.step), protocol, device=self.config.cluster.device, gpus=self.config.engine_gpus
        ) as log:
            summary = await evaluate(
                self.inputs.prompts.prompts,
                sampler=self.sampler.with_sampling(sampling_params(config), group_size=config.samples),
                verifier=self.verifier,
                log=log,
                seed=config.seed,
                base=base,
            )
        return summary, evaluation_metrics(summary) | {"time/eval_s": time.perf_counter() - started}

    def _file(self, step: int) -> Path:
        return self.folder / f"step_{step:06d}.jsonl"


def evaluation_metrics(summary: dict[str, Any]) -> dict[str, float]:
    low, high = summary["intervals_95"]["average_at_n"]
    values = {
        "eval/average": summary["average_at_n"],
        "eval/average_low": low,
        "eval/average_high": high,
        "eval/pass_at_n": summary["pass_at_n"],
        "eval/majority": summary["majority_at_n"],
        "eval/format_rate": summary["format_rate"],
        "eval/truncated_frac": summary["truncated_rate"],
        "eval/tokens_mean": summary["mean_completion_tokens"],
        "eval/failed_problems": float(len(summary["failed_problems"])),
    }
    if "comparison" in summary:
        difference = summary["comparison"]["differences"]["average"]
        values |= {"eval/difference": difference["value"], "eval/p_value": difference["p_value"]}
    return {name: float(value) for name, value in values.items() if value is not None}
