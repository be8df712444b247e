"""`Learner` over the learner actors, one a rank: every call goes to all of them, and rank 0 answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any

import ray

from gspo_ray.actors.pools import answer
from gspo_ray.algo.batch import TrainBatch
from gspo_ray.algo.stats import UpdateStats
from gspo_ray.errors import GspoRayError, LearnerError
from gspo_ray.learner.distributed import PeerError
from gspo_ray.types import Adapter, LearnerState

# When a rank fails because of another one, how long to wait for that one's own error, or for the news of its death.
PATIENCE_S = 10.0


class RayLearner:
    """A call ends with the first error whose cause is known, and waits for no rank that hangs because of it."""

    def __init__(self, handles: Sequence[Any]) -> None:
        self._handles = list(handles)

    async def start(self) -> None:
        """Until every rank has met the others and loaded the model."""
        first, size = self._handles[0], len(self._handles)
        if size == 1:
            return await self._together([first.start.remote()])
        place = await self._of_rank(0, first.meeting_point.remote(size=size))
        await self._together(
            [
                handle.start_rank.remote(rank, size=size, meeting_point=place)
                for rank, handle in enumerate(self._handles)
            ]
        )

    async def describe(self) -> str:
        """How rows are computed, in words."""
        return await self._of_rank(0, self._handles[0].describe.remote())

    async def fill_old_logprobs(self, minibatch: TrainBatch) -> TrainBatch:
        return await self._call("fill_old_logprobs", ray.put(minibatch))

    async def fill_reference_logprobs(self, minibatch: TrainBatch) -> TrainBatch:
        return await self._call("fill_reference_logprobs", ray.put(minibatch))

    async def step(self, minibatch: TrainBatch, *, step: int) -> UpdateStats:
        return await self._call("step", ray.put(minibatch), step=step)

    async def score(self, token_ids: Sequence[int], *, num_prompt: int) -> list[float]:
        return await self._call("score", token_ids, num_prompt=num_prompt)

    async def export_adapter(self) -> Adapter:
        return await self._of_rank(0, self._handles[0].export_adapter.remote())

    async def export_state(self) -> LearnerState:
        return await self._of_rank(0, self._handles[0].export_state.remote())

    async def load_state(self, state: LearnerState) -> None:
        await self._call("load_state", ray.put(state))

    async def _call(self, call: str, *arguments: Any, **named: Any) -> Any:
        first, *others = self._handles
        references = [getattr(first, call).remote(*arguments, **named)]
        references += [handle.follow.remote(call, *arguments, **named) for handle in others]
        return await self._together(references)

    async def _together(self, references: Sequence[Awaitable[Any]]) -> Any:
        """The first rank's answer, when all have theirs."""
        tasks = [asyncio.ensure_future(self._of_rank(rank, one)) for rank, one in enumerate(references)]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            async with asyncio.timeout(PATIENCE_S):
                while (pending := [task for task in tasks if not task.done()]) and not any(map(_is_cause, tasks)):
                    await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            pass  # what is known by now must do
        finally:
            for task in tasks:
                task.cancel()
        errors = [error for task in tasks if task.done() and not task.cancelled() and (error := task.exception())]
        if errors:
            raise min(errors, key=_distance_to_cause)
        return tasks[0].result()

    async def _of_rank(self, rank: int, reference: Awaitable[Any]) -> Any:
        who = "the learner actor" if len(self._handles) == 1 else f"learner rank {rank}"
        return await answer(reference, died=LearnerError, who=who)


def _is_cause(task: asyncio.Task[Any]) -> bool:
    return task.done() and (error := task.exception()) is not None and _distance_to_cause(error) == 0


def _distance_to_cause(error: BaseException) -> int:
    """A death and an error raised on purpose are causes. Any other may have come from a lost connection."""
    if isinstance(error, PeerError):
        return 2
    return 0 if isinstance(error, GspoRayError) else 1
