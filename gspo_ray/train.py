"""The job: what `gspo-ray train` runs, alone on a machine or under `ray job submit`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from gspo_ray.actors.cluster import joined_cluster, refuse_uploaded_folder
from gspo_ray.actors.factories import learner_factory, vllm_engine_factories
from gspo_ray.actors.placement import demand
from gspo_ray.actors.reservation import reserve
from gspo_ray.actors.signals import OrderlyExit
from gspo_ray.actors.workers import Workers, create_workers
from gspo_ray.advice import advise
from gspo_ray.checkpoint import complete_checkpoints, load_checkpoint, save_checkpoint
from gspo_ray.config import RunConfig
from gspo_ray.controller import Controller
from gspo_ray.data.stream import ProblemStream
from gspo_ray.errors import ConfigError
from gspo_ray.inputs import RunInputs, load_inputs
from gspo_ray.planning.start import plan_in_short
from gspo_ray.report import finish, print_header, resume_command
from gspo_ray.rollout.sampler import GroupSampler
from gspo_ray.run_dir import RunDir, create_run_dir, find_run_dir
from gspo_ray.tracking.composite import CompositeTracker
from gspo_ray.tracking.console import ConsoleTracker
from gspo_ray.tracking.local import LocalTracker
from gspo_ray.training_eval import TrainingEvaluation
from gspo_ray.types import LearnerState, RunState, SamplingParams

if TYPE_CHECKING:
    from gspo_ray.actors.rollout_actor import EngineFactory
    from gspo_ray.tracking.mlflow_tracker import MlflowTracker


def train(config: RunConfig, *, resume: str | None = None, engines: Sequence[EngineFactory] | None = None) -> int:
    """Run to the end; the exit code. `resume`: a run folder or "latest". `engines` replaces vLLM in tests.

    Raises UserError for what the person can mend. SIGINT and SIGTERM end the run in order: marked as killed, last
    checkpoint intact, no process left.
    """
    refuse_uploaded_folder(config.storage_path)
    job = _Job(config, resume)
    for sentence in advise(config):
        job.say(f"! {sentence}", style="yellow")
    job.say(f"Reading model {config.model.path} and data {config.data.source} ...")
    inputs = load_inputs(config)
    for warning in inputs.warnings:
        job.say(warning, style="yellow")
    for line in plan_in_short(config):
        job.say(line, style="dim")
    try:
        asyncio.run(job.run(inputs, engines or vllm_engine_factories(config)))
    except asyncio.CancelledError:
        if job.exit.killed_by is None:
            raise
        job.say(f"Stopped by {job.exit.killed_by.name}. {job.how_to_go_on()}", style="yellow")
        return 128 + job.exit.killed_by
    return 0


class _Job:
    """One run from its config to its end: cluster, actors, trackers, controller, and the way out of all of them."""

    def __init__(self, config: RunConfig, resume: str | None) -> None:
        self._config = config
        self._console = Console()
        self._run_dir: RunDir | None = None
        self._state = RunState(seed=config.seed)
        self._saved: LearnerState | None = None
        self.exit = OrderlyExit(self.say)
        if resume is not None:
            self._run_dir = find_run_dir(config, resume)
            self._state, self._saved = _starting_point(self._run_dir, config.steps)

    def say(self, text: str, style: str = "") -> None:
        """One line, whatever the width: a command in it must survive copy and paste. Never read as markup."""
        self._console.print(Text(text, style=style), soft_wrap=True, highlight=False)

    def how_to_go_on(self) -> str:
        if self._run_dir is None or not complete_checkpoints(self._run_dir.checkpoints):
            return "No checkpoint was written yet."
        return f"Go on with: {resume_command(self._run_dir)}"

    async def run(self, inputs: RunInputs, engines: Sequence[EngineFactory]) -> None:
        config = self._config
        wanted = demand(
            config.cluster,
            config.rollout.engine,
            num_engines=len(engines),
            num_reward_workers=config.reward.num_workers,
            num_learners=config.learner.num_ranks,
        )
        with joined_cluster(config.cluster.address, say=self.say) as can_grow:
            self.exit.install()
            room = await reserve(wanted, can_grow=can_grow, timeout_s=config.cluster.placement_timeout_s, say=self.say)
            workers = create_workers(
                room,
                engine_factories=engines,
                learner_factory=learner_factory(config),
                learner=config.learner,
                reward=config.reward,
            )
            try:
                await self._train(inputs, workers)
            finally:
                await asyncio.shield(workers.close())

    async def _train(self, inputs: RunInputs, workers: Workers) -> None:
        config = self._config
        screen = ConsoleTracker(self._console, total_steps=config.steps, sample_every=config.tracking.sample_every)
        run_dir = self._run_dir = self._run_dir or create_run_dir(config)
        run_dir.write_config(config)
        local = LocalTracker(run_dir.path, resume_step=self._state.step)
        mlflow = _mlflow(config, run_dir, screen)
        tracker = CompositeTracker([local, mlflow, screen], warn=screen.warn)
        status = "FAILED"
        try:
            tracker.log_config(config.model_dump(mode="json"))
            print_header(
                screen,
                config,
                run_dir,
                data=inputs.prompts.describe(),
                mlflow=mlflow.how_to_open,
                resumed_after=self._state.step if self._saved else None,
            )
            await workers.start(timeout_s=config.rollout.engine.startup_timeout_s)
            self.say(f"Learner: {await workers.learner.describe()}.", style="dim")
            if self._saved is not None:
                await workers.learner.load_state(self._saved)
            state = await self._controller(inputs, workers, tracker, run_dir, mlflow).run()
            self.exit.nothing_left_to_stop = True
            finish(screen, config, run_dir, state, mlflow=mlflow.how_to_open)
            mlflow.log_artifact(run_dir.reward_plot)
            status = "FINISHED"
        except asyncio.CancelledError:
            status = "KILLED"
            raise
        finally:
            await asyncio.to_thread(tracker.close, status)  # may wait for MLflow; signals must still be heard

    def _controller(
        self,
        inputs: RunInputs,
        workers: Workers,
        tracker: CompositeTracker,
        run_dir: RunDir,
        mlflow: MlflowTracker,
    ) -> Controller:
        config, rollout = self._config, self._config.rollout

        async def save(state: RunState) -> None:
            learner_state = await workers.learner.export_state()
            path = save_checkpoint(run_dir.checkpoints, state, learner_state, keep=config.checkpoint.keep)
            if (run_id := await asyncio.to_thread(lambda: mlflow.run_id)) is not None:
                run_dir.remember_mlflow_run(run_id)
            tracker.log_checkpoint(state, str(path))

        sampler = GroupSampler(
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
        )
        evaluation = None
        if inputs.evaluation is not None:
            evaluation = TrainingEvaluation(config, inputs.evaluation, sampler, workers.verifier, run_dir.evaluations)
        return Controller(
            problems=ProblemStream(
                inputs.prompts.prompts,
                seed=config.seed,
                shuffle=config.data.shuffle,
                problems_seen=self._state.problems_seen,
            ),
            sampler=sampler,
            verifier=workers.verifier,
            learner=workers.learner,
            tracker=tracker,
            probe=inputs.probe,
            algo=config.algo,
            problems_per_step=config.data.problems_per_step,
            max_tokens=rollout.max_tokens,
            total_steps=config.steps,
            checkpoint_every=config.checkpoint.every,
            evaluation=evaluation,
            save=save,
            measure=workers.measure,
            state=self._state,
        )


def _starting_point(run_dir: RunDir, steps: int) -> tuple[RunState, LearnerState]:
    state, saved = load_checkpoint(complete_checkpoints(run_dir.checkpoints)[-1])
    if state.step >= steps:
        raise ConfigError(
            f"{run_dir.path} stands at step {state.step} already and steps is {steps}: nothing to do. "
            f"To go on: --steps {state.step + steps}"
        )
    return state, saved


def _mlflow(config: RunConfig, run_dir: RunDir, screen: ConsoleTracker) -> MlflowTracker:
    from gspo_ray.tracking.mlflow_tracker import MlflowTracker  # two seconds of imports

    local = f"sqlite:///{run_dir.path.parent / 'mlflow.db'}"
    return MlflowTracker(
        config.tracking.mlflow_uri or os.environ.get("MLFLOW_TRACKING_URI") or local,
        config.tracking.experiment,
        run_dir.path.name,
        run_id=run_dir.mlflow_run_id,
        tags={"gspo_ray.run_dir": str(run_dir.path), "gspo_ray.model": config.model.path},
        warn=screen.warn,
    )
