"""Spreads the prompts of a step over the engines and brings back whole groups. Plain asyncio; engines may be remote."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Sequence
from typing import TypeVar

from gspo_ray.errors import EngineError, GspoRayError
from gspo_ray.interfaces import InferenceEngine
from gspo_ray.seeding import derive_seed
from gspo_ray.types import BASE_MODEL, Adapter, Completion, Finish, Group, Prompt, SamplingParams, WeightVersion

T = TypeVar("T")


class GroupSampler:
    """One request with n = G for each prompt, so that its prompt is prefilled once and the group stays together.

    The engine with the fewest tokens in flight gets the next prompt; an engine takes as many groups at a time as it
    can decode together. A completion's seed is a function of (run seed, step, place in the step, sample).
    """

    def __init__(
        self,
        engines: Sequence[InferenceEngine],
        *,
        group_size: int,
        sampling: SamplingParams,
        seed: int,
        max_num_seqs: int,
        timeout_s: float,
    ) -> None:
        self._engines = list(engines)
        self._group_size, self._sampling, self._seed, self._timeout_s = group_size, sampling, seed, timeout_s
        self._max_num_seqs = max_num_seqs
        self._slots = len(self._engines) * math.ceil(max_num_seqs / group_size)
        self._tokens_in_flight = [0] * len(self._engines)
        self._version: WeightVersion | None = None
        self._free = asyncio.Semaphore(self._slots)

    def with_sampling(self, sampling: SamplingParams, *, group_size: int) -> GroupSampler:
        """Another protocol on the same engines and the weights that they hold now."""
        other = GroupSampler(
            self._engines,
            group_size=group_size,
            sampling=sampling,
            seed=self._seed,
            max_num_seqs=self._max_num_seqs,
            timeout_s=self._timeout_s,
        )
        other._version = self._version
        return other

    async def sample(self, prompts_P: Sequence[Prompt], *, step: int, first_place: int = 0) -> list[Group]:
        """Groups in the order of `prompts_P`. Raises EngineError: an engine failed, hung or had other weights.

        `first_place`: how many prompts of this step were sampled before; seeds go on from there.
        """
        try:
            async with asyncio.timeout(self._timeout_s), asyncio.TaskGroup() as tasks:
                groups = [
                    tasks.create_task(self.sample_group(prompt, seed=derive_seed(self._seed, "rollout", step, place)))
                    for place, prompt in enumerate(prompts_P, start=first_place)
                ]
        except TimeoutError:
            raise self._too_slow(f"sampling step {step}") from None
        except BaseExceptionGroup as failures:  # the first failure cancelled the rest
            first = failures.exceptions[0]
            if isinstance(first, GspoRayError) or not isinstance(first, Exception):
                raise first from None
            raise EngineError(f"an engine failed in step {step}: {type(first).__name__}: {first}") from first
        return [task.result() for task in groups]

    async def load_adapter(self, adapter: Adapter) -> list[WeightVersion]:
        echoes = await self._from_all([engine.load_adapter(adapter) for engine in self._engines], "loading an adapter")
        self._version = adapter.version
        return echoes

    async def use_base_model(self) -> None:
        await self._from_all([engine.use_base_model() for engine in self._engines], "switching the adapter off")
        self._version = BASE_MODEL

    async def score(self, token_ids: Sequence[int], *, num_prompt: int) -> list[list[float]]:
        scores = [engine.score(token_ids, num_prompt=num_prompt) for engine in self._engines]
        return await self._from_all(scores, "scoring the probe")

    async def _from_all(self, calls: Sequence[Awaitable[T]], doing: str) -> list[T]:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await asyncio.gather(*calls)
        except TimeoutError:
            raise self._too_slow(doing) from None

    async def sample_group(self, prompt: Prompt, *, seed: int) -> Group:
        """G completions of one prompt with the seeds seed .. seed + G - 1, as soon as an engine has room for them."""
        cost = len(prompt.token_ids) + self._group_size * self._sampling.max_tokens
        async with self._free:
            number = min(range(len(self._engines)), key=self._tokens_in_flight.__getitem__)
            self._tokens_in_flight[number] += cost
            try:
                async with asyncio.timeout(self._timeout_s) as limit:
                    completions = await self._engines[number].generate(
                        prompt.token_ids, n=self._group_size, sampling=self._sampling, seed=seed
                    )
            except TimeoutError:
                if not limit.expired():  # the engine's own
                    raise
                raise self._too_slow(f"sampling {self._group_size} completions") from None
            finally:
                self._tokens_in_flight[number] -= cost
        for completion in completions:
            self._check(completion)
        if len(completions) != self._group_size:
            raise EngineError(f"a group of {len(completions)} completions came back, {self._group_size} were asked for")
        return Group(prompt=prompt, completions=tuple(completions))

    def _too_slow(self, doing: str) -> EngineError:
        return EngineError(f"{doing} took longer than rollout.request_timeout_s={self._timeout_s:g} s")

    def _check(self, completion: Completion) -> None:
        where = f"engine {completion.engine_id}, seed {completion.seed}"
        if completion.finish is Finish.ABORT or not completion.token_ids:
            raise EngineError(f"{where}: empty or aborted completion")
        if len(completion.token_ids) != len(completion.sampler_logprobs):
            raise EngineError(f"{where}: tokens and log-probs differ in number")
        if not all(-math.inf < logprob <= 0 for logprob in completion.sampler_logprobs):
            raise EngineError(f"{where}: a sampled token has a log-prob that is not a finite number <= 0")
        if completion.version != self._version:
            raise EngineError(f"{where}: sampled from {completion.version}, but {self._version} was loaded")
