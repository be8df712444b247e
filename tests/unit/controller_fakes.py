"""A run of the controller without models: what it asks of its parts, and what they answer."""

import asyncio
import hashlib
from dataclasses import dataclass, field, replace

import torch

from gspo_ray.algo.stats import UpdateStats
from gspo_ray.config import AlgoConfig
from gspo_ray.controller import Controller
from gspo_ray.data.stream import ProblemStream
from gspo_ray.probe import AdapterProbe
from gspo_ray.rollout.engine_fake import FakeEngine
from gspo_ray.rollout.sampler import GroupSampler
from gspo_ray.types import Adapter, LearnerState, RunState, SamplingParams, WeightVersion
from tests.unit.factories import make_prompt, make_sequence, make_verdict

SEED = 3


class FakeLearner:
    """Its "weights" are a hash chained over every mini-batch that moved them: equal only after equal histories."""

    def __init__(self):
        self.weights, self.version_step = b"initial", 0
        self.filled = self.referred = 0
        self.batches = []
        self.score_value = -0.5
        self.refuse = False

    async def fill_old_logprobs(self, minibatch):
        self.filled += 1
        return replace(minibatch, old_logprobs_BT=torch.zeros_like(minibatch.sampler_logprobs_BT))

    async def fill_reference_logprobs(self, minibatch):
        self.referred += 1
        return replace(minibatch, reference_logprobs_BT=torch.zeros_like(minibatch.sampler_logprobs_BT))

    async def step(self, minibatch, *, step):
        self.batches.append((step, minibatch))
        rows = minibatch.active_rows().tolist()
        updated = bool(rows) and not self.refuse
        if updated:
            seen = (self.weights, step, minibatch.token_ids_BL.tolist(), minibatch.advantages_B.tolist())
            self.weights, self.version_step = hashlib.sha256(repr(seen).encode()).digest(), step
        return UpdateStats(
            loss=0.1,
            kl_loss=0.0,
            grad_norm=1.0,
            learning_rate=1e-3,
            updated=updated,
            nonfinite=("layer.lora_B",) if rows and self.refuse else (),
            num_sequences=minibatch.num_sequences,
            sequences=tuple(
                make_sequence(
                    int(minibatch.row_B[row]),
                    advantage=float(minibatch.advantages_B[row]),
                    tokens=int(minibatch.completion_lens_B[row]),
                )
                for row in rows
            ),
            tokens=10 * len(rows),
            computed_tokens=10 * len(rows),
            seconds=0.5,
        )

    async def score(self, token_ids, *, num_prompt):
        return [self.score_value] * (len(token_ids) - num_prompt)

    async def export_adapter(self):
        version = WeightVersion(step=self.version_step, sha256=hashlib.sha256(self.weights).hexdigest())
        return Adapter(version=version, payload=self.weights, peft_config="{}")

    async def export_state(self):
        return LearnerState(adapter=await self.export_adapter(), optimizer=b"moments")

    async def load_state(self, state):
        self.weights, self.version_step = state.adapter.payload, state.adapter.version.step


class ScriptedVerifier:
    """Pays by `script(step, sample)`; the step is counted from `first_step`."""

    def __init__(self, script, first_step=1):
        self._script, self._step = script, first_step

    async def score(self, groups_P):
        step, self._step = self._step, self._step + 1
        return [
            replace(g, verdicts=tuple(make_verdict(self._script(step, i)) for i in range(len(g.completions))))
            for g in groups_P
        ]


def first_is_right(step, sample):
    return float(sample == 0)


@dataclass
class RecordingTracker:
    steps: list = field(default_factory=list)
    rollouts: list = field(default_factory=list)
    records: list = field(default_factory=list)
    evaluations: list = field(default_factory=list)

    def log_config(self, config): ...

    def log_step(self, metrics):
        self.steps.append(metrics)

    def log_rollouts(self, record):
        self.rollouts.append((record.step, list(record.groups_P)))
        self.records.append(record)

    def log_evaluation(self, step, summary, values):
        self.evaluations.append((step, summary, values))

    def log_checkpoint(self, state, path): ...

    def close(self, status): ...


class Run:
    """A controller and everything that it holds."""

    def __init__(
        self,
        *,
        total_steps=4,
        checkpoint_every=0,
        script=first_is_right,
        state=None,
        learner_state=None,
        engines=None,
        algo=None,
        problems_per_step=3,
        evaluation=None,
    ):
        state = state or RunState(seed=SEED)
        self.learner = FakeLearner()
        if learner_state is not None:
            asyncio.run(self.learner.load_state(learner_state))
        self.engines = engines or [FakeEngine("fake-0"), FakeEngine("fake-1")]
        self.tracker = RecordingTracker()
        self.saved: list[tuple[RunState, LearnerState]] = []

        async def save(state):
            self.saved.append((state, await self.learner.export_state()))

        async def measure():
            return {"memory/driver_mib": 1.0}

        prompts = [make_prompt(f"p{i}", (1, 2, 10 + i)) for i in range(7)]  # 3 a step: passes do not end with steps
        self.controller = Controller(
            problems=ProblemStream(prompts, seed=SEED, shuffle=True, problems_seen=state.problems_seen),
            sampler=GroupSampler(
                self.engines,
                group_size=2,
                sampling=SamplingParams(max_tokens=8),
                seed=SEED,
                max_num_seqs=8,
                timeout_s=20.0,
            ),
            verifier=ScriptedVerifier(script, first_step=state.step + 1),
            learner=self.learner,
            tracker=self.tracker,
            probe=AdapterProbe(token_ids=(1, 2, 3, 4), num_prompt=2, tolerance=1e-3),
            algo=algo or AlgoConfig(),
            problems_per_step=problems_per_step,
            max_tokens=8,
            total_steps=total_steps,
            checkpoint_every=checkpoint_every,
            evaluation=evaluation,
            save=save,
            measure=measure,
            state=state,
        )

    def go(self):
        self.final = asyncio.run(self.controller.run())
        return self

    def drawn(self):
        """What was sampled, by step: problem, seed, tokens and the weights that drew them."""
        return {
            step: [(g.prompt.problem.problem_id, c.seed, c.token_ids, c.version) for g in groups for c in g.completions]
            for step, groups in self.tracker.rollouts
        }
