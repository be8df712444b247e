"""Ray shell around one inference engine. Async, so that many requests share one engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import ray

from gspo_ray.actors.memory import peak_memory_mib
from gspo_ray.interfaces import InferenceEngine
from gspo_ray.types import Adapter, Completion, SamplingParams, WeightVersion

EngineFactory = Callable[[], InferenceEngine]


class RolloutActor:
    """The engine is built by `start`, not by `__init__`: its errors then reach the driver as they are."""

    def __init__(self, factory: EngineFactory) -> None:
        self._factory = factory

    async def start(self) -> None:
        self._engine = self._factory()

    async def generate(
        self, prompt_ids: Sequence[int], *, n: int, sampling: SamplingParams, seed: int
    ) -> list[Completion]:
        return await self._engine.generate(prompt_ids, n=n, sampling=sampling, seed=seed)

    async def score(self, token_ids: Sequence[int], *, num_prompt: int) -> list[float]:
        return await self._engine.score(token_ids, num_prompt=num_prompt)

    async def load_adapter(self, adapter: Adapter) -> WeightVersion:
        return await self._engine.load_adapter(adapter)

    async def use_base_model(self) -> WeightVersion:
        return await self._engine.use_base_model()

    async def memory(self) -> float:
        return peak_memory_mib()

    async def close(self) -> None:
        await self._engine.close()


RemoteRolloutActor = ray.remote(RolloutActor)
