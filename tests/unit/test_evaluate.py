"""An evaluation with a fake engine: continued, ordered, failing, and the same whatever happened on the way."""

import asyncio
import json

import pytest

from gspo_ray.config import EvalConfig, ModelConfig, PromptConfig
from gspo_ray.errors import DataError, EngineError, RewardError
from gspo_ray.evaluate import FAILURES_IN_A_ROW, evaluate, make_protocol, sampling_params
from gspo_ray.evaluation.log import EvalLog
from gspo_ray.evaluation.records import DataManifest
from gspo_ray.evaluation.result_files import read_result
from gspo_ray.rollout.engine_fake import FakeEngine
from gspo_ray.rollout.sampler import GroupSampler
from gspo_ray.types import WeightVersion
from tests.unit.controller_fakes import ScriptedVerifier
from tests.unit.factories import make_prompt

PROMPTS = [make_prompt(f"p{i}", (1, 2, 10 + i)) for i in range(9)]
CONFIG = EvalConfig(samples=4, max_tokens=8, seed=5)


def protocol(prompts=PROMPTS, adapter=None, config=CONFIG):
    return make_protocol(
        config,
        model=ModelConfig(path="fake"),
        prompt=PromptConfig(),
        data=DataManifest(name="made up", sha256="ab" * 32, problems=len(prompts)),
        adapter=adapter,
        adapter_step=None if adapter is None else adapter.step,
    )


class Verifier(ScriptedVerifier):
    """Right where the seed of the completion is even."""

    def __init__(self):
        super().__init__(None)

    async def score(self, groups_P):
        from dataclasses import replace

        from tests.unit.factories import make_verdict

        return [
            replace(g, verdicts=tuple(make_verdict(float(c.seed % 2 == 0)) for c in g.completions)) for g in groups_P
        ]


def run(path, *, engine=None, verifier=None, prompts=PROMPTS, base=None, max_num_seqs=8, heard=None, **log_options):
    async def go():
        sampler = GroupSampler(
            [engine or FakeEngine()],
            group_size=CONFIG.samples,
            sampling=sampling_params(CONFIG),
            seed=0,
            max_num_seqs=max_num_seqs,
            timeout_s=20.0,
        )
        await sampler.use_base_model()
        with EvalLog(path, protocol(prompts), device="cpu", gpus=0, **log_options) as log:
            return await evaluate(
                prompts,
                sampler=sampler,
                verifier=verifier or Verifier(),
                log=log,
                seed=CONFIG.seed,
                base=base,
                progress=[].append if heard is None else heard.append,
            )

    return asyncio.run(go())


def without_clock(summary):
    return {name: value for name, value in summary.items() if name != "clock"}


def test_every_problem_gets_its_samples_and_a_summary(tmp_path):
    heard: list[int] = []
    summary = run(tmp_path / "eval.jsonl", heard=heard)
    assert (summary["problems"], summary["generations"]) == (9, 36)
    # Four neighbouring seeds: two are even, whatever the first one is.
    assert summary["average_at_n"] == 0.5
    assert summary["pass_at_n"] == 1.0
    assert heard[0] == 0
    assert heard[-1] == 9
    assert read_result(tmp_path / "eval.jsonl").means["average"] == 0.5


class DiesAfter(FakeEngine):
    def __init__(self, calls):
        super().__init__()
        self._left = calls

    async def generate(self, prompt_ids, *, n, sampling, seed):
        self._left -= 1
        if self._left < 0:
            raise EngineError("the engine is gone")
        return await super().generate(prompt_ids, n=n, sampling=sampling, seed=seed)


@pytest.mark.parametrize("alive", [1, 3])
def test_an_evaluation_that_broke_off_goes_on_and_ends_the_same_bit_for_bit(tmp_path, alive):
    whole = run(tmp_path / "whole.jsonl")
    with pytest.raises(EngineError, match="5 problems in a row failed"):
        run(tmp_path / "cut.jsonl", engine=DiesAfter(alive), max_num_seqs=4)
    lines = (tmp_path / "cut.jsonl").read_text().splitlines()
    assert sum('"type": "problem"' in line for line in lines) == alive
    again = run(tmp_path / "cut.jsonl", retry_failed=True)
    assert json.dumps(without_clock(again), sort_keys=True) == json.dumps(without_clock(whole), sort_keys=True)
    assert again["clock"]["attempts"] == 2


def test_order_and_company_change_no_answer(tmp_path):
    run(tmp_path / "a.jsonl")
    run(tmp_path / "b.jsonl", prompts=PROMPTS[::-1], max_num_seqs=4)

    def answers(path):
        records = [json.loads(line) for line in path.read_text().splitlines()]
        return {r["problem_id"]: [(s["seed"], s["text"]) for s in r["samples"]] for r in records if "samples" in r}

    assert answers(tmp_path / "a.jsonl") == answers(tmp_path / "b.jsonl")


class FailsOn(FakeEngine):
    async def generate(self, prompt_ids, *, n, sampling, seed):
        if prompt_ids[-1] in (12, 15):
            raise EngineError("this one is too much")
        return await super().generate(prompt_ids, n=n, sampling=sampling, seed=seed)


def test_a_problem_that_fails_is_recorded_named_and_can_be_tried_again(tmp_path):
    summary = run(tmp_path / "eval.jsonl", engine=FailsOn())
    assert summary["failed_problems"] == ["p2", "p5"]
    assert summary["problems"] == 7
    assert "this one is too much" in (tmp_path / "eval.jsonl").read_text()
    assert run(tmp_path / "eval.jsonl")["failed_problems"] == ["p2", "p5"]  # not asked again by itself
    assert run(tmp_path / "eval.jsonl", retry_failed=True)["failed_problems"] == []


def test_a_broken_verifier_ends_the_evaluation_under_its_own_name(tmp_path):
    class Broken(Verifier):
        async def score(self, groups_P):
            raise RewardError("no verifier process")

    with pytest.raises(RewardError, match=f"{FAILURES_IN_A_ROW} problems in a row .*no verifier process"):
        run(tmp_path / "eval.jsonl", verifier=Broken())


def test_a_file_of_another_protocol_is_not_continued(tmp_path):
    run(tmp_path / "eval.jsonl")
    before = (tmp_path / "eval.jsonl").read_bytes()
    adapter = WeightVersion(step=3, sha256="cd" * 32)
    with pytest.raises(DataError, match="adapter_sha256"):
        EvalLog(tmp_path / "eval.jsonl", protocol(adapter=adapter), device="cpu", gpus=0)
    assert (tmp_path / "eval.jsonl").read_bytes() == before


def test_a_base_gives_a_verdict(tmp_path):
    run(tmp_path / "base.jsonl")
    summary = run(tmp_path / "new.jsonl", base=read_result(tmp_path / "base.jsonl"))
    assert summary["comparison"]["verdict"] == "undecidable"  # the same answers
    assert summary["comparison"]["differences"]["average"]["value"] == 0.0
