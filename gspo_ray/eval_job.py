"""The job behind `gspo-ray eval`: engines and verifiers on the cluster, one result file, the verdict in words."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from gspo_ray.actors.cluster import joined_cluster
from gspo_ray.actors.factories import vllm_engine_factories
from gspo_ray.actors.placement import demand
from gspo_ray.actors.reservation import reserve
from gspo_ray.actors.signals import OrderlyExit
from gspo_ray.actors.workers import Workers, create_workers
from gspo_ray.adapters import adapter_rank, read_adapter
from gspo_ray.config import RunConfig
from gspo_ray.errors import ConfigError
from gspo_ray.evaluate import evaluate, make_protocol, sampling_params
from gspo_ray.evaluation.compare import compare
from gspo_ray.evaluation.log import EvalLog
from gspo_ray.evaluation.result import Result
from gspo_ray.evaluation.result_files import read_result
from gspo_ray.evaluation.verdict import result_lines, verdict_sentence
from gspo_ray.inputs import EvalInputs, load_eval_inputs
from gspo_ray.rollout.sampler import GroupSampler
from gspo_ray.types import Adapter

if TYPE_CHECKING:
    from gspo_ray.actors.rollout_actor import EngineFactory


def run_evaluation(
    config: RunConfig,
    *,
    adapter: Path | None,
    out: Path,
    base: Path | None = None,
    retry_failed: bool = False,
    engines: Sequence[EngineFactory] | None = None,
) -> int:
    """The exit code. `adapter` None: the base model; `base`: a finished result file to compare with. `out` is
    continued when it holds a part of the same evaluation. `engines` replaces vLLM in tests.

    Raises UserError for what the person can mend.
    """
    config.eval.check_file("eval")
    if base is not None and base.resolve() == out.resolve():
        raise ConfigError(f"--base and --out are both {out}: name two files.")
    loaded, step = (None, None) if adapter is None else read_adapter(adapter)
    config = _sampling_config(config, loaded)
    job = _EvalJob(config, loaded, None if base is None else read_result(base))
    inputs = load_eval_inputs(config)
    for warning in inputs.warnings:
        job.say(warning, "yellow")
    protocol = make_protocol(
        config.eval,
        model=config.model,
        prompt=config.data.prompt,
        data=inputs.manifest,
        adapter=None if loaded is None else loaded.version,
        adapter_step=step,
    )
    with EvalLog(
        out, protocol, device=config.cluster.device, gpus=config.engine_gpus, retry_failed=retry_failed
    ) as log:
        done = len(log.content.problems) + len(log.content.failed)
        job.say(f"{protocol.data.name}: {protocol.data.problems} problems x {config.eval.samples} answers -> {out}")
        if done:
            job.say(f"Going on: {done} problems are in the file already.")
        try:
            asyncio.run(job.run(inputs, log, engines or vllm_engine_factories(config)))
        except asyncio.CancelledError:
            if job.exit.killed_by is None:
                raise
            job.say(f"Stopped by {job.exit.killed_by.name}. The same command goes on from here.", "yellow")
            return 128 + job.exit.killed_by
    job.report(out)
    return 0


def _sampling_config(config: RunConfig, adapter: Adapter | None) -> RunConfig:
    """The run's config with the lengths of the evaluation and the rank of the adapter: what engines are built from."""
    rollout = config.rollout.model_copy(update={"max_tokens": config.eval.max_tokens})
    update: dict[str, Any] = {"rollout": rollout, "eval": config.eval.model_copy(update={"every": 0})}
    if adapter is not None:
        lora = config.model.lora.model_copy(update={"rank": adapter_rank(adapter)})
        update["model"] = config.model.model_copy(update={"lora": lora})
    return config.model_copy(update=update)


class _EvalJob:
    def __init__(self, config: RunConfig, adapter: Adapter | None, base: Result | None) -> None:
        self._config, self._adapter, self._base = config, adapter, base
        self._console = Console()
        self.exit = OrderlyExit(self.say)

    def say(self, text: str, style: str = "") -> None:
        self._console.print(Text(text, style=style), soft_wrap=True, highlight=False)

    async def run(self, inputs: EvalInputs, log: EvalLog, engines: Sequence[EngineFactory]) -> None:
        config = self._config
        if not log.content.missing and log.content.summary is not None:
            return  # nothing to ask an engine for
        wanted = demand(
            config.cluster,
            config.rollout.engine,
            num_engines=len(engines),
            num_reward_workers=config.reward.num_workers,
            num_learners=0,
        )
        with joined_cluster(config.cluster.address, say=self.say) as can_grow:
            self.exit.install()
            room = await reserve(wanted, can_grow=can_grow, timeout_s=config.cluster.placement_timeout_s, say=self.say)
            workers = create_workers(
                room,
                engine_factories=engines,
                learner_factory=None,
                learner=config.learner,
                reward=config.reward,
            )
            try:
                await self._evaluate(inputs, log, workers)
            finally:
                await asyncio.shield(workers.close())

    async def _evaluate(self, inputs: EvalInputs, log: EvalLog, workers: Workers) -> None:
        config = self._config
        self.say("Starting the engines ...")
        await workers.start(timeout_s=config.rollout.engine.startup_timeout_s)
        sampler = GroupSampler(
            workers.engines,
            group_size=config.eval.samples,
            sampling=sampling_params(config.eval),
            seed=config.eval.seed,
            max_num_seqs=config.rollout.engine.max_num_seqs,
            timeout_s=config.rollout.request_timeout_s,
        )
        if self._adapter is None:
            await sampler.use_base_model()
        else:
            await sampler.load_adapter(self._adapter)
        columns = (
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("problems"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=self._console, refresh_per_second=2) as bar:
            task = bar.add_task("", total=len(inputs.prompts.prompts))
            await evaluate(
                inputs.prompts.prompts,
                sampler=sampler,
                verifier=workers.verifier,
                log=log,
                seed=config.eval.seed,
                base=self._base,
                progress=lambda done: bar.update(task, completed=done),
            )

    def report(self, out: Path) -> None:
        """What came out, in lines; with a base, the verdict."""
        result = read_result(out)
        for line in result_lines(result):
            self.say(f"  {line}")
        if self._base is not None:
            sentence = verdict_sentence(compare(self._base, result)["average"], result)
            self.say(sentence, "bold")
        self.say(f"  all answers: {out}")
