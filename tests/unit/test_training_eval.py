"""Evaluations in the course of a run: when, of which weights, against what, and under which names."""

import asyncio

import pytest

from gspo_ray.config import EvalConfig, RunConfig
from gspo_ray.data.prompts import PromptSet
from gspo_ray.evaluation.records import DataManifest
from gspo_ray.inputs import EvalInputs
from gspo_ray.rollout.engine_fake import FakeEngine
from gspo_ray.rollout.sampler import GroupSampler
from gspo_ray.tracking.metrics import METRICS
from gspo_ray.training_eval import TrainingEvaluation
from gspo_ray.types import Adapter, RunState, SamplingParams, WeightVersion
from tests.unit.controller_fakes import Run
from tests.unit.factories import make_prompt
from tests.unit.test_evaluate import Verifier


class Counting:
    def __init__(self, every, last):
        self._every, self._last = every, last

    def is_due(self, step):
        return step % self._every == 0 or step == self._last

    async def run(self, state):
        return {"step": state.step, "version": state.version.step}, {"eval/average": 0.5}


def test_an_evaluation_runs_before_the_first_step_when_due_and_at_the_end():
    run = Run(total_steps=5, evaluation=Counting(2, 5)).go()
    assert [(step, summary["version"]) for step, summary, _ in run.tracker.evaluations] == [
        (0, 0),
        (2, 2),
        (4, 4),
        (5, 5),
    ]


def test_a_resumed_run_does_not_evaluate_the_base_again():
    first = Run(total_steps=2, checkpoint_every=2).go()
    state, learner_state = first.saved[-1]
    resumed = Run(total_steps=4, state=state, learner_state=learner_state, evaluation=Counting(2, 4)).go()
    assert [step for step, *_ in resumed.tracker.evaluations] == [4]


@pytest.fixture
def evaluation(tmp_path):
    config = RunConfig(
        steps=4, eval=EvalConfig(every=2, samples=4, max_tokens=8), cluster={"device": "cpu"}, model={"path": "fake"}
    )
    prompts = tuple(make_prompt(f"p{i}", (1, 2, 10 + i)) for i in range(5))
    inputs = EvalInputs(PromptSet(prompts, (), 64), DataManifest(name="made up", sha256="ab" * 32, problems=5), ())
    sampler = GroupSampler(
        [FakeEngine()], group_size=2, sampling=SamplingParams(max_tokens=4), seed=0, max_num_seqs=8, timeout_s=20.0
    )
    return TrainingEvaluation(config, inputs, sampler, Verifier(), tmp_path / "eval")


def evaluate(evaluation, step):
    adapter = Adapter(version=WeightVersion(step=step, sha256=f"{step:02d}" * 32), payload=b"w", peft_config="{}")

    async def go():
        await evaluation.sampler.load_adapter(adapter)
        return await evaluation.run(RunState(step=step, version=adapter.version))

    return asyncio.run(go())


def test_later_steps_are_compared_with_the_base(evaluation):
    base, values = evaluate(evaluation, 0)
    assert base["protocol"]["adapter_sha256"] is None  # before any update the adapter changes nothing
    assert "comparison" not in base
    assert values["eval/average"] == 0.5  # neighbouring seeds, every second one right
    assert values.keys() <= METRICS.keys()
    later, values = evaluate(evaluation, 2)
    assert later["protocol"]["adapter_step"] == 2
    assert later["comparison"]["verdict"] == "undecidable"
    assert values["eval/difference"] == 0.0
    assert values.keys() <= METRICS.keys()
    assert sorted(path.name for path in evaluation.folder.iterdir()) == ["step_000000.jsonl", "step_000002.jsonl"]


def test_due_steps(evaluation):
    assert [step for step in range(5) if evaluation.is_due(step)] == [0, 2, 4]


def test_an_evaluation_that_was_finished_before_a_kill_is_not_done_again(evaluation):
    evaluate(evaluation, 0)
    evaluate(evaluation, 0)
    text = (evaluation.folder / "step_000000.jsonl").read_text()
    assert text.count('"type": "problem"') == 5
