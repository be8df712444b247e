"""Synthetic evaluations: no model, a skill for every problem."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gspo_ray.evaluation.log import EvalLog
from gspo_ray.evaluation.records import DataManifest, EvalProtocol, ProblemRecord, SampleRecord
from gspo_ray.evaluation.summary import summarise
from gspo_ray.types import Finish, Outcome, SamplingParams


def make_protocol(**changes: Any) -> EvalProtocol:
    values: dict[str, Any] = {
        "model": "smollm2-135m",
        "model_revision": None,
        "dtype": "float32",
        "adapter_sha256": None,
        "adapter_step": None,
        "data": DataManifest(name="toy", sha256="d" * 64, problems=30),
        "prompt": {"template": "{question}", "system": None, "examples": [("1+1?", "2")], "enable_thinking": False},
        "sampling": SamplingParams(max_tokens=8192),
        "samples_per_problem": 12,
        "seed": 42,
        "verifier": "math-verify 0.9.0",
        "engine": "vllm 0.32.0",
        "code_version": "0.1.0",
    }
    return EvalProtocol(**values | changes)


def make_sample(outcome: Outcome = Outcome.CORRECT, **changes: Any) -> SampleRecord:
    values: dict[str, Any] = {
        "answer": {Outcome.CORRECT: "7", Outcome.NO_ANSWER: None}.get(outcome, "8"),
        "outcome": outcome,
        "formatted": outcome is not Outcome.NO_ANSWER,
        "completion_tokens": 100,
        "finish": Finish.STOP,
        "seed": 0,
        "text": "So it is.",
    }
    return SampleRecord(**values | changes)


def make_problem(problem_id: str, pattern: str, **changes: Any) -> ProblemRecord:
    """`pattern`: one letter a sample: c correct, w wrong, n no answer, t verifier timed out."""
    outcomes = {"c": Outcome.CORRECT, "w": Outcome.WRONG, "n": Outcome.NO_ANSWER, "t": Outcome.TIMEOUT}
    samples = tuple(make_sample(outcomes[letter], seed=number) for number, letter in enumerate(pattern))
    return ProblemRecord(**{"problem_id": problem_id, "question": "3+4?", "gold": "7", "samples": samples} | changes)


def simulated_problems(
    seed: int, *, problems: int = 30, n: int = 12, shift: float = 0.0, boxed: float = 0.5, tokens: float = 6000.0
) -> list[ProblemRecord]:
    """Skills are the same for every `seed`; `shift` moves them all, on the scale of the logit."""
    logits = np.random.default_rng(7).normal(-0.5, 2.0, size=problems)
    rng = np.random.default_rng(seed)
    records = []
    for index, logit in enumerate(logits):
        samples = []
        for sample in range(n):
            is_correct = rng.random() < 1 / (1 + np.exp(-(logit + shift)))
            is_boxed = is_correct or rng.random() < boxed
            length = int(min(8192, 1 + rng.gamma(4.0, tokens / 4.0)))
            samples.append(
                SampleRecord(
                    answer="7" if is_correct else str(rng.integers(10, 14)) if is_boxed else None,
                    outcome=Outcome.CORRECT if is_correct else Outcome.WRONG if is_boxed else Outcome.NO_ANSWER,
                    formatted=bool(is_boxed),
                    completion_tokens=length,
                    finish=Finish.LENGTH if length == 8192 else Finish.STOP,
                    seed=seed + index * n + sample,
                    text="...",
                )
            )
        records.append(ProblemRecord(problem_id=f"toy-{index}", question="3+4?", gold="7", samples=tuple(samples)))
    return records


def write_result(path: Path, protocol: EvalProtocol, problems: Sequence[ProblemRecord]) -> Path:
    """A finished result file."""
    with EvalLog(path, protocol, device="cpu", gpus=0) as log:
        for problem in problems:
            log.add(problem)
        log.finish(summarise(protocol, log.content.problems.values(), log.content.failed, where=str(path)))
    return path


def lab_summary(**changes: Any) -> dict[str, Any]:
    """The last record of a result file of agentic-rl-lab."""
    return {
        "type": "summary",
        "dataset": "aime_2025",
        "base_model": "Qwen/Qwen3.5-4B",
        "model_path": None,
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": -1,
        "max_tokens": 8192,
        "val_n": 12,
        "problems": 30,
        "generations": 360,
        "average_at_n": 148 / 360,
        "pass_at_n": 17 / 30,
        "format_rate": 168 / 360,
        "mean_completion_tokens": 6489.8,
        "correct_generations": 148,
        "passed_problems": 17,
    } | changes


def write_lines(path: Path, *records: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


# Published by agentic-rl-lab 07-gspo: correct of 360, passed of 30, format rate, mean tokens.
PUBLISHED = {
    "aime25-base": (148, 17, 0.4667, 6489.8),
    "aime25-base-2": (146, 20, 0.4750, 6442.5),
    "aime25-gspo-step20": (148, 22, 0.6222, 5775.4),
    "aime25-gspo-step40": (136, 18, 0.8722, 4785.8),
    "aime25-gspo-step60": (126, 19, 0.9250, 4438.7),
    "aime25-gspo-step80": (125, 22, 0.9778, 3886.9),
    "aime25-gspo-step100": (122, 20, 0.9944, 3358.1),
}


def write_published(folder: Path) -> list[Path]:
    """Their seven rows as seven files that hold nothing but a summary."""
    return [
        write_lines(
            folder / f"{name}.jsonl",
            lab_summary(
                model_path=None if "base" in name else f"trio://{name}",
                average_at_n=correct / 360,
                correct_generations=correct,
                pass_at_n=passed / 30,
                passed_problems=passed,
                format_rate=boxed,
                mean_completion_tokens=tokens,
            ),
        )
        for name, (correct, passed, boxed, tokens) in PUBLISHED.items()
    ]
