"""The loop. It reads like the paper, knows Protocols only, and holds no state that a checkpoint does not."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from gspo_ray.algo.advantages import Reward, group_advantages, is_degenerate
from gspo_ray.algo.batch import TrainBatch, collate
from gspo_ray.algo.record import StepRecord
from gspo_ray.algo.rewards import counted, judged_rewards, penalised
from gspo_ray.algo.stats import UpdateStats
from gspo_ray.config import AlgoConfig
from gspo_ray.data.stream import ProblemStream
from gspo_ray.interfaces import Evaluation, Learner, Sampler, Tracker, Verifier
from gspo_ray.probe import AdapterProbe
from gspo_ray.seeding import derive_seed
from gspo_ray.tracking.notes import StepNotes
from gspo_ray.tracking.step_metrics import step_metrics
from gspo_ray.types import Group, RunState, StepMetrics


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
        max_tokens: int,
        total_steps: int,
        checkpoint_every: int,
        evaluation: Evaluation | None,
        save: Callable[[RunState], Awaitable[None]],
        measure: Callable[[], Awaitable[dict[str, float]]],
        state: RunState,
    ) -> None:
        self.state = state
        self._problems, self._sampler, self._verifier, self._learner = problems, sampler, verifier, learner
        self._tracker, self._probe, self._algo = tracker, probe, algo
        self._problems_per_step, self._max_tokens, self._total_steps = problems_per_step, max_tokens, total_steps
        self._checkpoint_every, self._save, self._measure = checkpoint_every, save, measure
        self._evaluation = evaluation
        self._notes = StepNotes(eps_low=algo.eps_low, eps_high=algo.eps_high, old_logprobs=algo.old_logprobs)

    async def run(self) -> RunState:
        await self._push()  # pi_old <- pi_theta
        if self.state.step == 0:
            await self._evaluate()
        for step in range(self.state.step + 1, self._total_steps + 1):
            await self._one_step(step)
            if step == self._total_steps or (self._checkpoint_every and step % self._checkpoint_every == 0):
                await self._save(self.state)
            await self._evaluate()
        return self.state

    async def _evaluate(self) -> None:
        """After the checkpoint of the step, so that a long evaluation that is killed costs no training."""
        step = self.state.step
        if self._evaluation is not None and self._evaluation.is_due(step):
            summary, values = await self._evaluation.run(self.state)
            self._tracker.log_evaluation(step, summary, values)

    async def _one_step(self, step: int) -> None:
        times: dict[str, float] = defaultdict(float)
        with _timed(times, "time/step_s"):
            record = await self._rollout(step, times)  # x ~ D; y_1..y_G ~ pi_old(. | x); r(x, y_i)
            advantages_PG = group_advantages(record.rewards_PG, kind=self._algo.advantage)  # A_i, eq. 6
            mask_truncated = self._algo.overlong.mode == "mask"
            counted_PG = [counted(group, mask_truncated=mask_truncated) for group in record.groups_P]
            batch = collate(record.groups_P, advantages_PG, counted_PG, newest_step=self.state.version.step)
            with _timed(times, "time/train_s"):
                updates = await self._update(batch, step)  # s_i, one clip a sequence, gradient steps: eqs. 5 and 7
            with _timed(times, "time/sync_s"):
                pushed = any(update.updated for update in updates)
                sync = await self._push() if pushed else {"sync/version": float(self.state.version.step)}
        self.state = replace(self.state, step=step, problems_seen=self._problems.problems_seen)
        extra = {**times, **sync, **await self._measure(), "data/problems_seen": float(self.state.problems_seen)}
        record = replace(record, advantages_PG=advantages_PG, counted_PG=counted_PG, updates=updates)
        values = step_metrics(record, extra=extra, eps_low=self._algo.eps_low, eps_high=self._algo.eps_high)
        self._tracker.log_rollouts(record)
        self._tracker.log_step(StepMetrics(step=step, values=values, notes=tuple(self._notes.about(record, values))))

    async def _rollout(self, step: int, times: dict[str, float]) -> StepRecord:
        """P groups; with dynamic sampling, those that teach nothing are replaced from new problems, a bounded number
        of times, and what is still flat then is kept."""
        kept: list[Group] = []
        discarded: list[Group] = []
        wanted, refills = self._problems_per_step, 0
        while True:
            prompts_P = self._problems.take(wanted)
            with _timed(times, "time/rollout_s"):
                groups_P = await self._sampler.sample(prompts_P, step=step, first_place=len(kept) + len(discarded))
            with _timed(times, "time/reward_s"):
                groups_P = await self._verifier.score(groups_P)
            flat_P = [is_degenerate(self._rewards(group)) for group in groups_P]
            if not any(flat_P) or refills == self._algo.dynamic_sampling.max_tries:
                kept += groups_P
                break
            kept += [group for group, flat in zip(groups_P, flat_P, strict=True) if not flat]
            discarded += [group for group, flat in zip(groups_P, flat_P, strict=True) if flat]
            wanted, refills = sum(flat_P), refills + 1
        rewards_PG = [self._rewards(group) for group in kept]
        return StepRecord(step=step, groups_P=kept, rewards_PG=rewards_PG, discarded=discarded, refills=refills)

    def _rewards(self, group: Group) -> list[Reward]:
        rewards_G, overlong = judged_rewards(group), self._algo.overlong
        if overlong.mode == "soft_penalty":
            return penalised(rewards_G, group, max_tokens=self._max_tokens, buffer=overlong.buffer_tokens)
        return rewards_G

    async def _update(self, batch: TrainBatch, step: int) -> list[UpdateStats]:
        """One optimizer update a mini-batch and epoch. Old and reference log-probs are those before the first."""
        shuffled = self._algo.minibatch_rows == "shuffled"
        seed = derive_seed(self.state.seed, "minibatches", step) if shuffled else None
        minibatches = batch.split(self._algo.num_minibatches, shuffle_seed=seed)
        if self._algo.needs_old_logprobs:
            minibatches = [await self._learner.fill_old_logprobs(minibatch) for minibatch in minibatches]
        if self._algo.needs_reference:
            minibatches = [await self._learner.fill_reference_logprobs(minibatch) for minibatch in minibatches]
        later = [replace(minibatch, is_first_update=False) for minibatch in minibatches]
        passes = [minibatches] + [later] * (self._algo.num_epochs - 1)
        return [await self._learner.step(minibatch, step=step) for one_pass in passes for minibatch in one_pass]

    async def _push(self) -> dict[str, float]:
        adapter = await self._learner.export_adapter()
        echoes = await self._sampler.load_adapter(adapter)
        metrics = await self._probe.check(adapter, echoes, self._sampler, self._learner)
        self.state = replace(self.state, version=adapter.version)
        return metrics


@contextmanager
def _timed(times: dict[str, float], name: str) -> Iterator[None]:
    """Adds the seconds that its block took to `times[name]`."""
    started = time.perf_counter()
    yield
    times[name] += time.perf_counter() - started
