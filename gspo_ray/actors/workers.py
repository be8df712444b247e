"""All actors of a run: started together, watched together, ended together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayError

from gspo_ray.actors.learner_actor import LearnerFactory, RemoteLearnerActor
from gspo_ray.actors.memory import peak_memory_mib
from gspo_ray.actors.placement import Room
from gspo_ray.actors.pools import AdapterStore, RayEngine, RayVerifier, answer
from gspo_ray.actors.ray_learner import RayLearner
from gspo_ray.actors.reward_actor import RemoteRewardActor
from gspo_ray.actors.rollout_actor import EngineFactory, RemoteRolloutActor
from gspo_ray.config import LearnerConfig, RewardConfig
from gspo_ray.errors import EngineError, GspoRayError, LearnerError, RewardError

CLOSE_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Workers:
    engine_handles: list[Any]
    learner_handles: list[Any]  # one a rank; none in an evaluation
    reward_handles: list[Any]
    room: Room

    @property
    def engines(self) -> list[RayEngine]:
        store = AdapterStore()
        return [RayEngine(handle, str(number), store) for number, handle in enumerate(self.engine_handles)]

    @property
    def verifier(self) -> RayVerifier:
        return RayVerifier(self.reward_handles)

    @property
    def learner(self) -> RayLearner:
        return RayLearner(self.learner_handles)

    async def start(self, *, timeout_s: float) -> None:
        """Until every model is loaded. The first failure ends the wait and comes back as it was raised."""
        waits = [
            answer(handle.start.remote(), died=EngineError, who=f"rollout actor {number}")
            for number, handle in enumerate(self.engine_handles)
        ]
        waits += [self.learner.start()] if self.learner_handles else []
        waits += [
            answer(handle.start.remote(), died=RewardError, who=f"reward actor {number}")
            for number, handle in enumerate(self.reward_handles)
        ]
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.gather(*waits)
        except TimeoutError:
            raise EngineError(
                f"the actors were not ready after {timeout_s:g} s (rollout.engine.startup_timeout_s)"
            ) from None

    async def measure(self) -> dict[str, float]:
        engines, learners = await asyncio.gather(
            _memory(self.engine_handles, died=EngineError, who="a rollout actor"),
            _memory(self.learner_handles, died=LearnerError, who="a learner actor"),
        )
        return {
            "memory/driver_mib": peak_memory_mib(children=False),
            "memory/learner_mib": learners,
            "memory/engine_mib": engines,
        }

    async def close(self) -> None:
        """Engines and verifiers end their child processes; then every actor is killed, whatever it is doing."""
        polite = [handle.close.remote() for handle in (*self.engine_handles, *self.reward_handles)]
        await asyncio.wait(
            [asyncio.ensure_future(_quietly(reference)) for reference in polite], timeout=CLOSE_TIMEOUT_S
        )
        for handle in (*self.engine_handles, *self.reward_handles, *self.learner_handles):
            ray.kill(handle)
        self.room.give_back()


def create_workers(
    room: Room,
    *,
    engine_factories: Sequence[EngineFactory],
    learner_factory: LearnerFactory | None,
    learner: LearnerConfig,
    reward: RewardConfig,
) -> Workers:
    """`learner_factory` None: an evaluation, which wants no learner."""
    return Workers(
        engine_handles=[
            RemoteRolloutActor.options(**room.engine_options(number)).remote(factory)
            for number, factory in enumerate(engine_factories)
        ],
        learner_handles=[
            RemoteLearnerActor.options(**room.learner_options(rank, learner)).remote(learner_factory)
            for rank in range(room.wanted.learner.count)
        ],
        reward_handles=[
            RemoteRewardActor.options(**room.reward_options(number)).remote(
                timeout_s=reward.timeout_s, memory_limit_mib=reward.memory_limit_mib, style=reward.answer_style
            )
            for number in range(reward.num_workers)
        ],
        room=room,
    )


async def _memory(handles: Sequence[Any], *, died: type[GspoRayError], who: str) -> float:
    """Of the largest."""
    return max(await asyncio.gather(*(answer(handle.memory.remote(), died=died, who=who) for handle in handles)))


async def _quietly(reference: Any) -> None:
    """On the way out an actor may be dead already; that is why it is being closed."""
    try:
        await reference
    except RayError:
        return
