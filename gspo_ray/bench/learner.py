"""Speed, memory and gradients of the learner's step beside other ways to the same gradient, on one machine in one run.

Every pass over the batch has a process of its own. Rounds go through all variants in turn, so that what else happens on
the machine hits them alike; numbers are medians over the rounds.
"""

from __future__ import annotations

import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

import gspo_ray
from gspo_ray.bench.batches import useful_tokens
from gspo_ray.bench.case import Case, Limit, Measurement
from gspo_ray.errors import LearnerError
from gspo_ray.openmp import openmp_environment

VARIANTS: dict[str, str] = {
    "ours": "packed rows, one copy of a prompt, no logits",
    "repeated_prompts": "ours without shared prompts",
    "padded_rows": "ours without packing (nor shared prompts)",
    "full_logits": "ours with the logits of a micro-batch",
    "plain": "transformers, padded rows, all logits",
    "trl": "TRL's loss as it is",
    "trl_compact": "TRL's loss, completions alone through the head",
}
TRL_VARIANTS = ("trl", "trl_compact")
LIMIT = "limit"
REFERENCE = "plain"
"""Whose gradient the others are compared with."""


@dataclass(slots=True)
class Row:
    """A variant over all rounds."""

    variant: str
    passes: list[Measurement] = field(default_factory=list)
    gradient_error: float | None = None  # relative, against REFERENCE

    @property
    def failure(self) -> str:
        return next((one.failure for one in self.passes if one.failure), "")

    @property
    def seconds(self) -> float:
        return statistics.median(one.seconds for one in self.passes)

    @property
    def flops_per_second(self) -> float:
        return self.passes[0].flops / self.seconds


@dataclass(slots=True, kw_only=True)
class Result:
    case: Case  # `variant` is of no meaning here
    batch: str
    useful_tokens: int
    limit: Limit
    rows: list[Row]
    profile: str = ""


def run_bench(
    case: Case,
    *,
    batch: str,
    variants: Sequence[str],
    rounds: int,
    profile: bool,
    free_bytes: Callable[[], int] | None = None,
    on_done: Callable[[str], None] = lambda text: None,
) -> Result:
    """`free_bytes`: what a process may take, asked before each; None: no limit. Raises LearnerError with the end of
    what a process wrote when it failed for another reason than memory."""
    rows, limits = {name: Row(name) for name in variants}, []
    gradients: dict[str, dict[str, np.ndarray]] = {}
    text = ""
    with tempfile.TemporaryDirectory(prefix="gspo-bench-") as temporary:
        folder = Path(temporary)
        for number in range(rounds):
            limits.append(Limit.model_validate(in_own_process(case, LIMIT, folder)))
            on_done(LIMIT)
            for name, row in rows.items():
                if not row.failure:
                    memory = free_bytes() if free_bytes else None
                    one = case.model_copy(update={"memory_limit": memory})
                    row.passes.append(Measurement.model_validate(in_own_process(one, name, folder)))
                    if number == 0 and not row.failure:
                        gradients[name] = load_file(folder / "gradient.safetensors")
                on_done(name)
        if profile:
            in_own_process(case.model_copy(update={"profile": True}), variants[0], folder)
            text = (folder / "profile.txt").read_text(encoding="utf-8")
    for name, found in gradients.items():
        if REFERENCE in gradients and name != REFERENCE:
            rows[name].gradient_error = relative_error(found, gradients[REFERENCE])
    best = max(limits, key=lambda limit: limit.flops_per_second)
    return Result(
        case=case,
        batch=batch,
        useful_tokens=useful_tokens(case.groups),
        limit=best,
        rows=list(rows.values()),
        profile=text,
    )


def trl_is_installed() -> bool:
    return all(importlib.util.find_spec(name) is not None for name in ("trl", "datasets"))


def relative_error(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> float:
    """|found - wanted| / |wanted| over all parameters. Raises LearnerError when they are not the same parameters."""
    if found.keys() != wanted.keys():
        raise LearnerError(f"gradients of other parameters: {sorted(found.keys() ^ wanted.keys())[:3]}")
    difference = sum(float(np.square(found[n].astype(np.float64) - wanted[n]).sum()) for n in wanted)
    norm = sum(float(np.square(wanted[n].astype(np.float64)).sum()) for n in wanted)
    return float((difference / norm) ** 0.5)


def in_own_process(case: Case, variant: str, folder: Path, **variables: str) -> dict[str, object]:
    """Its result.json; none with a profile. `variables` of its environment. Raises LearnerError."""
    question, answer = folder / "case.json", folder / "result.json"
    question.write_text(case.model_copy(update={"variant": variant}).model_dump_json(), encoding="utf-8")
    answer.unlink(missing_ok=True)
    root = str(Path(gspo_ray.__file__).parents[1])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(paths),
        **openmp_environment(case.threads),  # as the learner runs
        "MKL_NUM_THREADS": str(case.threads),
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "TRANSFORMERS_VERBOSITY": "error",
        **variables,
    }
    command = [sys.executable, "-m", "gspo_ray.bench.worker", str(question), str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return json.loads(answer.read_text(encoding="utf-8")) if answer.exists() else {}
    if done.returncode == -9:
        return Measurement(variant=variant, failure="killed, as for lack of memory").model_dump()
    lines = (done.stderr or done.stdout).strip().splitlines()
    raise LearnerError(f"{variant}: {' | '.join(lines[-3:])}")
