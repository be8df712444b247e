"""What a person reads before the first step and after the last one."""

from __future__ import annotations

import json
import shlex

from gspo_ray.checkpoint import complete_checkpoints
from gspo_ray.commands import typed
from gspo_ray.config import RunConfig
from gspo_ray.run_dir import RunDir
from gspo_ray.tracking.console import ConsoleTracker
from gspo_ray.types import RunState

RAY_LOGS = "/tmp/ray/session_latest/logs (on each node)"


def print_header(
    screen: ConsoleTracker, config: RunConfig, run_dir: RunDir, *, data: str, mlflow: str, resumed_after: int | None
) -> None:
    """`data`: a sentence on the prompts; `mlflow`: how to open it."""
    rollout, lora, cluster = config.rollout, config.model.lora, config.cluster
    gpus = f", {rollout.engine.tensor_parallel_size} GPU an engine, 1 a learner" * (cluster.device == "cuda")
    screen.print_header(
        f"GSPO run {run_dir.path.name}" + (f", resumed after step {resumed_after}" if resumed_after else ""),
        {
            "model": f"{config.model.path}, {config.model.dtype}, LoRA r={lora.rank} alpha={lora.alpha:g}",
            "data": f"{config.data.source}{f' {config.data.path}' if config.data.path else ''}: {data}",
            "step": f"{config.data.problems_per_step} problems x {rollout.group_size} completions of up to "
            f"{rollout.max_tokens} tokens, {config.algo.updates_per_step} update(s), {config.steps} steps",
            "objective": f"{config.algo.variant}, band -{config.algo.eps_low:g} / +{config.algo.eps_high:g}, "
            f"{config.algo.aggregation}, advantage {config.algo.advantage}, old log-probs {config.algo.old_logprobs}",
            "resources": f"{cluster.device}: {rollout.num_engines} engine(s), {config.learner.num_ranks} learner(s), "
            f"{config.reward.num_workers} reward worker(s){gpus}",
            "stored in": str(run_dir.path),
            "mlflow": mlflow,
            "logs": RAY_LOGS,
        },
    )


def finish(screen: ConsoleTracker, config: RunConfig, run_dir: RunDir, state: RunState, *, mlflow: str) -> None:
    """Reward curve, summary.json, and the summary on the screen with the next command to try."""
    from gspo_ray.tracking.plots import plot_rewards  # matplotlib, half a second

    plot_rewards(run_dir.metrics, run_dir.reward_plot, run_dir.path.name)
    adapter = complete_checkpoints(run_dir.checkpoints)[-1] / "adapter"
    summary = {"state": state.to_json(), "adapter": str(adapter)}
    (run_dir.path / "summary.json").write_text(json.dumps(summary, indent=2), encoding="utf-8")
    screen.print_summary(
        f"Finished {run_dir.path.name}",
        fields={"adapter": str(adapter), "plot": str(run_dir.reward_plot), "mlflow": mlflow},
        next_commands=[f"{resume_command(run_dir)} --steps {2 * config.steps}{_same_rate(config)}"],
    )


def resume_command(run_dir: RunDir) -> str:
    return typed(f"gspo-ray train --resume {shlex.quote(str(run_dir.path))}")


def _same_rate(config: RunConfig) -> str:
    """A linear schedule over more steps would start again from a higher rate."""
    if config.learner.lr_schedule == "constant":
        return ""
    rate = config.learner.learning_rate / config.steps
    return f" --learner.lr_schedule constant --learner.learning_rate {rate:.2e}"
