"""Engines and verifiers over actor handles: what the controller gets in a real run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import ray
from ray.exceptions import RayError, RayTaskError

from gspo_ray.errors import EngineError, GspoRayError, RewardError
from gspo_ray.types import Adapter, Completion, Group, SamplingParams, Verdict, WeightVersion

T = TypeVar("T")
ITEMS_A_CALL = 8  # completions a reward worker takes at a time: small enough that slow answers do not queue up


async def answer(reference: Awaitable[T], *, died: type[GspoRayError], who: str) -> T:
    """Await an actor's answer. Our own errors come back as they were raised; a dead actor becomes `died`."""
    try:
        return await reference
    except RayTaskError as error:
        if isinstance(error.cause, GspoRayError):
            raise error.cause from None
        raise
    except RayError as error:  # the actor died, its environment or its memory failed
        raise died(f"{who} died: {error}") from error


class AdapterStore:
    """Puts an adapter into the object store once, however many engines load it."""

    def __init__(self) -> None:
        self._version: WeightVersion | None = None
        self._reference: Any = None

    def reference(self, adapter: Adapter) -> Any:
        if self._version != adapter.version:
            self._version, self._reference = adapter.version, ray.put(adapter)
        return self._reference


class RayEngine:
    """`InferenceEngine` over a rollout actor."""

    def __init__(self, handle: Any, name: str, store: AdapterStore) -> None:
        self._handle, self._name, self._store = handle, name, store

    async def generate(
        self, prompt_ids: Sequence[int], *, n: int, sampling: SamplingParams, seed: int
    ) -> list[Completion]:
        return await self._answer(self._handle.generate.remote(prompt_ids, n=n, sampling=sampling, seed=seed))

    async def score(self, token_ids: Sequence[int], *, num_prompt: int) -> list[float]:
        return await self._answer(self._handle.score.remote(token_ids, num_prompt=num_prompt))

    async def load_adapter(self, adapter: Adapter) -> WeightVersion:
        return await self._answer(self._handle.load_adapter.remote(self._store.reference(adapter)))

    async def use_base_model(self) -> WeightVersion:
        return await self._answer(self._handle.use_base_model.remote())

    async def close(self) -> None:
        await self._answer(self._handle.close.remote())

    async def _answer(self, reference: Awaitable[T]) -> T:
        return await answer(reference, died=EngineError, who=f"rollout actor {self._name}")


class RayVerifier:
    """`Verifier` over the reward actors: each takes the next few completions as soon as it is free."""

    def __init__(self, handles: Sequence[Any]) -> None:
        self._handles = list(handles)

    async def score(self, groups_P: Sequence[Group]) -> list[Group]:
        items = [(c.text, group.prompt.problem.answer) for group in groups_P for c in group.completions]
        verdicts: list[Verdict | None] = [None] * len(items)
        starts = iter(range(0, len(items), ITEMS_A_CALL))

        async def work(number: int, handle: Any) -> None:
            for start in starts:  # shared by all workers
                piece = slice(start, start + ITEMS_A_CALL)
                reference = handle.score.remote(items[piece])
                verdicts[piece] = await answer(reference, died=RewardError, who=f"reward actor {number}")

        await asyncio.gather(*(work(number, handle) for number, handle in enumerate(self._handles)))
        scored = [verdict for verdict in verdicts if verdict is not None]
        if len(scored) != len(items):
            raise RewardError(f"{len(items) - len(scored)} of {len(items)} completions came back without a verdict")
        queue = iter(scored)
        return [replace(group, verdicts=tuple(next(queue) for _ in group.completions)) for group in groups_P]
