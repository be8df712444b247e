"""The loop. It reads like the paper, knows Protocols only, and holds no state that a checkpoint does not."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from gspo_ray.algo.advantages import group_advantages
from gspo_ray.algo.batch import collate
from gspo_ray.config import AlgoConfig
from gspo_ray.data.stream import ProblemStream
from gspo_ray.interfaces import Learner, Sampler, Tracker, Verifier
from gspo_ray.probe import AdapterProbe
from gspo_ray.tracking.step_metrics import step_metrics
from gspo_ray.types import RunState


class Controller:
    """`save(state)` writes a checkpoint; `measure()` adds numbers of the machine, such as memory."""

    def __init__(
        self,
        *,
        problems: ProblemStream,
        sampler: Sampler,
        verifier: Verifier,
        learner: Learner,
        tracker: Tracker,
        probe: AdapterProbe,
        algo: AlgoConfig,
        problems_per_step: int,
        total_steps: int,
        checkpoint_every: int,
        save: Callable[[RunState], Awaitable[None]],
        measure: Callable[[], Awaitable[dict[str, float]]],
        state: RunState,
    ) -> None:
        self.state = state
        self._problems, self._sampler, self._verifier, self._learner = problems, sampler, verifier, learner
        self._tracker, self._probe, self._algo = tracker, probe, algo
        self._problems_per_step, self._total_steps = problems_per_step, total_steps
        self._checkpoint_every, self._save, self._measure = checkpoint_every, save, measure

    async def run(self) -> RunState:
        await self._push()  # pi_old <- pi_theta
        for step in range(self.state.step + 1, self._total_steps + 1):
            await self._one_step(step)
            if step == self._total_steps or (self._checkpoint_every and step % self._checkpoint_every == 0):
                await self._save(self.state)
        return self.state

    async def _one_step(self, step: int) -> None:
        times: dict[str, float] = {}
        with _timed(times, "time/step_s"):
            prompts_P = self._problems.take(self._problems_per_step)  # x ~ D
            with _timed(times, "time/rollout_s"):
                groups_P = await self._sampler.sample(prompts_P, step=step)  # y_1..y_G ~ pi_old(. | x)
            with _timed(times, "time/reward_s"):
                groups_P = await self._verifier.score(groups_P)  # r(x, y_i)
            advantages_PG = group_advantages([group.rewards_G for group in groups_P])  # A_i, eq. 6
            batch = collate(groups_P, advantages_PG, newest_step=self.state.version.step)
            with _timed(times, "time/train_s"):
                if self._algo.old_logprobs == "learner" and self._algo.num_minibatches > 1:
                    batch = await self._learner.fill_old_logprobs(batch)
                updates = [  # s_i, one clip a sequence, gradient step: eqs. 5 and 7
                    await self._learner.step(minibatch, step=step)
                    for minibatch in batch.split(self._algo.num_minibatches)
                ]
            with _timed(times, "time/sync_s"):
                pushed = any(update.updated for update in updates)
                sync = await self._push() if pushed else {"sync/version": float(self.state.version.step)}
        self.state = replace(self.state, step=step, problems_seen=self._problems.problems_seen)
        extra = {**times, **sync, **await self._measure(), "data/problems_seen": float(self.state.problems_seen)}
        self._tracker.log_rollouts(step, groups_P)
        self._tracker.log_step(
            step_metrics(step, groups_P, updates, extra=extra, eps_low=self._algo.eps_low, eps_high=self._algo.eps_high)
        )

    async def _push(self) -> dict[str, float]:
        adapter = await self._learner.export_adapter()
        echoes = await self._sampler.load_adapter(adapter)
        metrics = await self._probe.check(adapter, echoes, self._sampler, self._learner)
        self.state = replace(self.state, version=adapter.version)
        return metrics


@contextmanager
def _timed(times: dict[str, float], name: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    times[name] = time.perf_counter() - started
