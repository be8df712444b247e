"""The job: what `gspo-ray train` runs, alone on a machine or under `ray job submit`."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import ray
from rich.console import Console

from gspo_ray.actors.factories import learner_factory, vllm_engine_factories
from gspo_ray.actors.placement import demand, reserve
from gspo_ray.actors.workers import Workers, create_workers
from gspo_ray.checkpoint import complete_checkpoints, load_checkpoint, save_checkpoint
from gspo_ray.config import RunConfig
from gspo_ray.config_io import flatten
from gspo_ray.controller import Controller
from gspo_ray.data.stream import ProblemStream
from gspo_ray.errors import ResourceError
from gspo_ray.inputs import RunInputs, load_inputs
from gspo_ray.rollout.sampler import GroupSampler
from gspo_ray.run_dir import RunDir, create_run_dir, find_run_dir
from gspo_ray.tracking.composite import CompositeTracker
from gspo_ray.tracking.console import ConsoleTracker
from gspo_ray.tracking.local import LocalTracker
from gspo_ray.types import LearnerState, RunState, SamplingParams

if TYPE_CHECKING:
    from gspo_ray.actors.rollout_actor import EngineFactory
    from gspo_ray.tracking.mlflow_tracker import MlflowTracker

# Set in the driver these do not reach the actors by themselves.
_FORWARDED = ("HF_", "MLFLOW_", "VLLM_", "NCCL_", "GSPO_RAY_", "TOKENIZERS_PARALLELISM")


def train(config: RunConfig, *, resume: str | None = None, engines: Sequence[EngineFactory] | None = None) -> int:
    """Run to the end. `resume`: a run folder or "latest". `engines` replaces vLLM in tests. Returns the exit code.

    Raises UserError for what the person can mend. SIGINT and SIGTERM end the run in order: marked as killed, last
    checkpoint intact, no process left.
    """
    console = Console()
    job = _Job(config, console, resume)
    console.print(f"Reading model {config.model.path} and data {config.data.source} ...", highlight=False)
    inputs = load_inputs(config)
    if inputs.prompts.dropped:
        console.print(inputs.prompts.describe(), style="yellow", highlight=False)
    try:
        asyncio.run(job.run(inputs, engines or vllm_engine_factories(config)))
    except asyncio.CancelledError:
        if job.killed_by is None:
            raise
        console.print(f"Stopped by {job.killed_by.name}. {job.how_to_resume()}", style="yellow", highlight=False)
        return 128 + job.killed_by
    return 0


class _Job:
    def __init__(self, config: RunConfig, console: Console, resume: str | None) -> None:
        self._config, self._console = config, console
        self._run_dir: RunDir | None = find_run_dir(config, resume) if resume else None
        self._resumed = resume is not None
        self.killed_by: signal.Signals | None = None

    async def run(self, inputs: RunInputs, engines: Sequence[EngineFactory]) -> None:
        config = self._config
        wanted = demand(
            config.cluster,
            config.rollout.engine,
            num_engines=len(engines),
            num_reward_workers=config.reward.num_workers,
        )
        async with self._cluster() as can_grow:
            group = await reserve(
                wanted,
                can_grow=can_grow,
                timeout_s=config.cluster.placement_timeout_s,
                say=lambda text: self._console.print(text, highlight=False),
            )
            workers = create_workers(
                group,
                wanted,
                engine_factories=engines,
                learner_factory=learner_factory(config),
                learner=config.learner,
                reward=config.reward,
            )
            try:
                await self._train(inputs, workers, wanted.total("CPU"), wanted.total("GPU"))
            finally:
                await asyncio.shield(workers.close())

    async def _train(self, inputs: RunInputs, workers: Workers, cpus: float, gpus: float) -> None:
        config = self._config
        state, saved = self._starting_point()
        screen = ConsoleTracker(self._console, total_steps=config.steps, sample_every=config.tracking.sample_every)
        run_dir = self._run_dir = self._run_dir or create_run_dir(config)
        mlflow = self._mlflow(run_dir, screen)
        tracker = CompositeTracker(
            [LocalTracker(run_dir.path, resume_step=state.step), mlflow, screen], warn=screen.warn
        )
        status = "FAILED"
        try:
            tracker.log_config(flatten(config))
            mlflow.log_artifact(run_dir.path / "config.yaml")
            self._print_header(screen, inputs, mlflow.how_to_open, cpus, gpus, state)
            await workers.start(timeout_s=config.rollout.engine.startup_timeout_s)
            if saved is not None:
                await workers.learner.load_state(saved)
            controller = self._controller(inputs, workers, tracker, state, run_dir, mlflow)
            await controller.run()
            status = "FINISHED"
            self._finish(screen, run_dir, mlflow, controller.state)
        except asyncio.CancelledError:
            status = "KILLED"
            raise
        finally:
            tracker.close(status)

    def _controller(
        self,
        inputs: RunInputs,
        workers: Workers,
        tracker: CompositeTracker,
        state: RunState,
        run_dir: RunDir,
        mlflow: MlflowTracker,
    ) -> Controller:
        config = self._config
        rollout = config.rollout

        async def save(state: RunState) -> None:
            learner_state = await workers.learner.export_state()
            path = save_checkpoint(run_dir.checkpoints, state, learner_state, keep=config.checkpoint.keep)
            if (run_id := mlflow.run_id) is not None:
                run_dir.remember_mlflow_run(run_id)
            tracker.log_checkpoint(state, str(path))

        return Controller(
            problems=ProblemStream(
                inputs.prompts.prompts,
                seed=config.seed,
                shuffle=config.data.shuffle,
                problems_seen=state.problems_seen,
            ),
            sampler=GroupSampler(
                workers.engines,
                group_size=rollout.group_size,
                sampling=SamplingParams(
                    max_tokens=rollout.max_tokens,
                    temperature=rollout.temperature,
                    top_p=rollout.top_p,
                    top_k=rollout.top_k,
                ),
                seed=config.seed,
                max_num_seqs=rollout.engine.max_num_seqs,
                timeout_s=rollout.request_timeout_s,
            ),
            verifier=workers.verifier,
            learner=workers.learner,
            tracker=tracker,
            probe=inputs.probe,
            algo=config.algo,
            problems_per_step=config.data.problems_per_step,
            total_steps=config.steps,
            checkpoint_every=config.checkpoint.every,
            save=save,
            measure=workers.measure,
            state=state,
        )

    def _starting_point(self) -> tuple[RunState, LearnerState | None]:
        if self._run_dir is None or not self._resumed:
            return RunState(seed=self._config.seed), None
        return load_checkpoint(complete_checkpoints(self._run_dir.checkpoints)[-1])

    def _mlflow(self, run_dir: RunDir, screen: ConsoleTracker) -> MlflowTracker:
        from gspo_ray.tracking.mlflow_tracker import MlflowTracker  # two seconds of imports

        tracking = self._config.tracking
        local = f"sqlite:///{run_dir.path.parent / 'mlflow.db'}"
        return MlflowTracker(
            tracking.mlflow_uri or os.environ.get("MLFLOW_TRACKING_URI") or local,
            tracking.experiment,
            run_dir.path.name,
            run_id=run_dir.mlflow_run_id,
            tags={"gspo_ray.run_dir": str(run_dir.path), "gspo_ray.model": self._config.model.path},
            warn=screen.warn,
        )

    @asynccontextmanager
    async def _cluster(self) -> AsyncIterator[bool]:
        """Join the given cluster or start a local one; yields whether it may still grow."""
        address = self._config.cluster.address or os.environ.get("RAY_ADDRESS")
        forwarded = {k: v for k, v in os.environ.items() if k.startswith(_FORWARDED)}
        where = f"Joining the Ray cluster at {address}" if address else "Starting a local Ray cluster"
        self._console.print(f"{where} ...", highlight=False)
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        try:
            ray.init(
                address=address or "local",
                runtime_env={"env_vars": forwarded},
                log_to_driver=False,
                include_dashboard=None if address else False,
                logging_level=logging.WARNING,
            )
        except ConnectionError as error:
            raise ResourceError(
                f"no Ray cluster answers at {address} (cluster.address or RAY_ADDRESS): {error}"
            ) from None
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        for number in (signal.SIGINT, signal.SIGTERM):  # after ray.init, which sets handlers of its own
            loop.add_signal_handler(number, self._on_signal, number, task)
        try:
            yield address is not None
        finally:
            ray.shutdown()

    def _on_signal(self, number: signal.Signals, task: asyncio.Task[None]) -> None:
        if self.killed_by is not None:
            self._console.print("Second signal: leaving at once.", style="red")
            os._exit(128 + number)
        self.killed_by = number
        self._console.print(f"{number.name}: ending the run in order (again to leave at once) ...", style="yellow")
        task.cancel()

    def _print_header(
        self, screen: ConsoleTracker, inputs: RunInputs, mlflow: str, cpus: float, gpus: float, state: RunState
    ) -> None:
        config, run_dir = self._config, self._run_dir
        assert run_dir is not None
        data, rollout, lora = config.data, config.rollout, config.model.lora
        screen.print_header(
            f"GSPO run {run_dir.path.name}" + (f", resumed after step {state.step}" if self._resumed else ""),
            {
                "model": f"{config.model.path}, {config.model.dtype}, LoRA r={lora.rank} alpha={lora.alpha:g}",
                "data": f"{data.source}{f' {data.path}' if data.path else ''}: {inputs.prompts.describe()}",
                "step": f"{data.problems_per_step} problems x {rollout.group_size} completions of up to "
                f"{rollout.max_tokens} tokens, {config.algo.num_minibatches} update(s), {config.steps} steps",
                "resources": f"{rollout.num_engines} engine(s), 1 learner, {config.reward.num_workers} verifier(s) "
                f"on {config.cluster.device}: {cpus:g} CPU, {gpus:g} GPU",
                "stored in": str(run_dir.path),
                "mlflow": mlflow,
                "logs": str(Path("/tmp/ray/session_latest/logs")),
            },
        )

    def _finish(self, screen: ConsoleTracker, run_dir: RunDir, mlflow: MlflowTracker, state: RunState) -> None:
        from gspo_ray.tracking.plots import plot_rewards

        plot_rewards(run_dir.metrics, run_dir.reward_plot, run_dir.path.name)
        mlflow.log_artifact(run_dir.reward_plot)
        adapter = complete_checkpoints(run_dir.checkpoints)[-1] / "adapter"
        (run_dir.path / "summary.json").write_text(
            json.dumps({"state": state.to_json(), "adapter": str(adapter)}, indent=2), encoding="utf-8"
        )
        screen.print_summary(
            f"Finished {run_dir.path.name}",
            fields={"adapter": str(adapter), "plot": str(run_dir.reward_plot), "mlflow": mlflow.how_to_open},
            next_commands=[
                f"gspo-ray train --config {run_dir.path / 'config.yaml'} --resume {run_dir.path} "
                f"--steps {self._config.steps * 2}"
            ],
        )

    def how_to_resume(self) -> str:
        if self._run_dir is None or not complete_checkpoints(self._run_dir.checkpoints):
            return "No checkpoint was written yet."
        path = self._run_dir.path
        return f"Go on with: gspo-ray train --config {path / 'config.yaml'} --resume {path}"
