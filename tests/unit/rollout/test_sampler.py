"""Groups come back whole and in order, seeds are a function of their place, and a bad engine is never believed."""

import asyncio
import hashlib
import math
from dataclasses import replace

import pytest

from gspo_ray.errors import EngineError
from gspo_ray.rollout.engine_fake import FakeEngine
from gspo_ray.rollout.sampler import GroupSampler
from gspo_ray.types import Adapter, Finish, SamplingParams, WeightVersion
from tests.unit.factories import make_prompt


def make_adapter(step=0):
    payload = f"weights of step {step}".encode()
    version = WeightVersion(step=step, sha256=hashlib.sha256(payload).hexdigest())
    return Adapter(version=version, payload=payload, peft_config="{}")


def make_sampler(engines, *, group_size=3, seed=0, max_num_seqs=8, timeout_s=20.0, max_tokens=16):
    return GroupSampler(
        engines,
        group_size=group_size,
        sampling=SamplingParams(max_tokens=max_tokens),
        seed=seed,
        max_num_seqs=max_num_seqs,
        timeout_s=timeout_s,
    )


def make_prompts(count):
    return [make_prompt(f"p{i}", (1, 2, 10 + i)) for i in range(count)]


async def load_and_sample(sampler, prompts, *, step=1, adapter=None):
    await sampler.load_adapter(adapter or make_adapter())
    return await sampler.sample(prompts, step=step)


def sample(sampler, prompts, *, step=1):
    return asyncio.run(load_and_sample(sampler, prompts, step=step))


class CountingEngine(FakeEngine):
    """Counts its requests and the most that were in flight at once."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.requests, self.running, self.most = 0, 0, 0

    async def generate(self, *args, **kwargs):
        self.requests += 1
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            return await super().generate(*args, **kwargs)
        finally:
            self.running -= 1


class ChangingEngine(FakeEngine):
    """Gives every list of completions through `change`."""

    def __init__(self, change):
        super().__init__("engine-7")
        self._change = change

    async def generate(self, *args, **kwargs):
        return self._change(await super().generate(*args, **kwargs))


class FailingEngine(FakeEngine):
    def __init__(self, error):
        super().__init__("broken")
        self._error = error

    async def generate(self, *args, **kwargs):
        raise self._error


def test_groups_come_back_in_the_order_of_the_prompts_though_later_ones_answer_first():
    prompts = make_prompts(6)  # the fake answers the later the earlier the prompt
    finished = []

    class Noting(FakeEngine):
        async def generate(self, prompt_ids, **kwargs):
            answer = await super().generate(prompt_ids, **kwargs)
            finished.append(prompt_ids[-1])
            return answer

    groups = sample(make_sampler([Noting(delay_s=2.0)], max_num_seqs=32), prompts)
    assert finished == [15, 14, 13, 12, 11, 10]
    assert [group.prompt for group in groups] == prompts
    for group in groups:
        assert len(group.completions) == 3
        last = group.prompt.token_ids[-1]
        assert all(completion.text.startswith(f"prompt {last} ") for completion in group.completions)


def test_every_engine_is_used_and_a_group_stays_on_one():
    engines = [CountingEngine(f"fake-{i}", delay_s=0.05) for i in range(2)]
    groups = sample(make_sampler(engines), make_prompts(8))
    assert [engine.requests for engine in engines] == [4, 4]
    assert all(len({c.engine_id for c in group.completions}) == 1 for group in groups)


def test_the_engine_with_the_fewest_tokens_in_flight_gets_the_next_prompt():
    slow, fast = CountingEngine("slow", delay_s=11 * 0.4), CountingEngine("fast")
    sample(make_sampler([slow, fast], group_size=4, max_num_seqs=4), make_prompts(7))
    # One request each at first; the fast one is free again at once and takes all the rest.
    assert (slow.requests, fast.requests) == (1, 6)


def test_an_engine_takes_no_more_groups_than_it_decodes_together():
    engine = CountingEngine(delay_s=0.1)
    sample(make_sampler([engine], group_size=3, max_num_seqs=6), make_prompts(7))
    assert engine.most == 2
    narrow = CountingEngine(delay_s=0.1)  # a group larger than the engine's width still goes through, alone
    sample(make_sampler([narrow], group_size=3, max_num_seqs=2), make_prompts(3))
    assert narrow.most == 1


def seeds(groups):
    return [completion.seed for group in groups for completion in group.completions]


def test_seeds_differ_between_samples_prompts_steps_and_runs_and_repeat_when_repeated():
    prompts = [make_prompt("same", (1, 2, 3))] * 4  # the place in the step decides, not the prompt
    first = seeds(sample(make_sampler([FakeEngine()], seed=5), prompts, step=1))
    assert len(set(first)) == 12
    assert seeds(sample(make_sampler([FakeEngine()], seed=5), prompts, step=1)) == first
    two_engines = make_sampler([FakeEngine("a"), FakeEngine("b")], seed=5)
    assert seeds(sample(two_engines, prompts, step=1)) == first  # whoever draws it
    assert not set(seeds(sample(make_sampler([FakeEngine()], seed=5), prompts, step=2))) & set(first)
    assert not set(seeds(sample(make_sampler([FakeEngine()], seed=6), prompts, step=1))) & set(first)


def test_load_adapter_reaches_every_engine_and_brings_back_each_echo():
    engines = [FakeEngine("a"), FakeEngine("b")]
    adapter = make_adapter(4)
    assert asyncio.run(make_sampler(engines).load_adapter(adapter)) == [adapter.version] * 2
    assert [engine.loaded for engine in engines] == [[adapter.version]] * 2


def test_score_asks_every_engine():
    async def run():
        sampler = make_sampler([FakeEngine("a"), FakeEngine("b")])
        await sampler.load_adapter(make_adapter())
        return await sampler.score((1, 2, 3, 4), num_prompt=1)

    assert asyncio.run(run()) == [[-0.5] * 3] * 2


def test_completions_of_other_weights_are_refused():
    class Deaf(FakeEngine):
        """Echoes every push and goes on with its first adapter: B45."""

        async def load_adapter(self, adapter):
            first = self._version
            echo = await super().load_adapter(adapter)
            self._version = first or self._version
            return echo

    async def run():
        sampler = make_sampler([FakeEngine("good"), Deaf("deaf")])
        await load_and_sample(sampler, make_prompts(4), adapter=make_adapter(0))
        await load_and_sample(sampler, make_prompts(4), adapter=make_adapter(1))

    with pytest.raises(EngineError, match=r"deaf.*step=0.*step=1.* was loaded"):
        asyncio.run(run())


def test_sampling_before_any_adapter_is_refused():
    with pytest.raises(EngineError, match="no adapter"):
        asyncio.run(make_sampler([FakeEngine()]).sample(make_prompts(1), step=1))


@pytest.mark.parametrize("logprob", [math.nan, math.inf, -math.inf, 0.1])
def test_a_logprob_that_no_distribution_gives_is_refused(logprob):
    def spoil(completions):
        bad = replace(completions[1], token_ids=(4, 5, 6), sampler_logprobs=(-0.1, logprob, -0.2))
        return [completions[0], bad, completions[2]]

    with pytest.raises(EngineError, match=r"engine-7.*not a finite number <= 0"):
        sample(make_sampler([ChangingEngine(spoil)]), make_prompts(2))


def test_a_logprob_of_exactly_zero_is_a_sure_token_and_fine():
    def sure(completions):
        return [replace(c, sampler_logprobs=(0.0,) * len(c.token_ids)) for c in completions]

    assert len(sample(make_sampler([ChangingEngine(sure)]), make_prompts(2))) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: [replace(c[0], finish=Finish.ABORT), *c[1:]], "aborted"),
        (lambda c: [replace(c[0], token_ids=(), sampler_logprobs=()), *c[1:]], "empty"),
        (lambda c: [replace(c[0], token_ids=(*c[0].token_ids, 9)), *c[1:]], "differ in number"),
        (lambda c: c[:-1], "a group of 2 completions came back, 3 were asked for"),
        (lambda c: [], "a group of 0"),
    ],
    ids=["aborted", "empty", "ragged", "one missing", "none"],
)
def test_a_broken_group_is_refused(change, message):
    with pytest.raises(EngineError, match=message):
        sample(make_sampler([ChangingEngine(change)]), make_prompts(2))


def test_a_failing_engine_surfaces_as_its_own_error_and_stops_the_rest():
    slow = CountingEngine(delay_s=600.0)
    error = EngineError("engine broken died")
    with pytest.raises(EngineError, match="engine broken died") as caught:
        sample(make_sampler([FailingEngine(error), slow]), make_prompts(4))
    assert caught.value is error
    assert slow.running == 0  # cancelled


@pytest.mark.parametrize("error", [RuntimeError("CUDA error"), TimeoutError("socket"), ConnectionError("gone")])
def test_any_failure_of_an_engine_is_an_engine_error_that_keeps_its_cause(error):
    with pytest.raises(EngineError, match=str(error)) as caught:
        sample(make_sampler([FailingEngine(error)]), make_prompts(2))
    assert caught.value.__cause__ is error


def test_a_hanging_engine_is_given_up_and_the_key_is_named():
    with pytest.raises(EngineError, match=r"step 7 .*rollout\.request_timeout_s=0\.2 s"):
        sample(make_sampler([FakeEngine(delay_s=600.0)], timeout_s=0.2), make_prompts(2), step=7)


def test_cancelling_the_run_stays_a_cancellation():
    async def run():
        sampler = make_sampler([FakeEngine(delay_s=600.0)])
        await sampler.load_adapter(make_adapter())
        task = asyncio.create_task(sampler.sample(make_prompts(2), step=1))
        await asyncio.sleep(0.05)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(run())


def test_after_a_failure_the_accounts_are_clean():
    engine = ChangingEngine(lambda completions: completions)
    sampler = make_sampler([engine])

    async def run():
        await sampler.load_adapter(make_adapter())
        engine._change = lambda completions: completions[:-1]
        with pytest.raises(EngineError):
            await sampler.sample(make_prompts(3), step=1)
        assert sampler._tokens_in_flight == [0]
        engine._change = lambda completions: completions
        return await sampler.sample(make_prompts(3), step=2)

    assert len(asyncio.run(run())) == 3


def test_the_fake_engine_says_when_it_cut_a_completion():
    (group,) = sample(make_sampler([FakeEngine(script=lambda *_: ("long", [5] * 9))], max_tokens=4), make_prompts(1))
    assert {(len(c.token_ids), c.finish) for c in group.completions} == {(4, Finish.LENGTH)}


def test_an_engine_that_hangs_while_loading_an_adapter_ends_the_run_with_the_key_that_sets_the_limit():
    class HangingEngine(FakeEngine):
        async def load_adapter(self, adapter):
            await asyncio.sleep(60)

    sampler = GroupSampler(
        [HangingEngine()], group_size=2, sampling=SamplingParams(max_tokens=4), seed=0, max_num_seqs=8, timeout_s=0.1
    )
    adapter = Adapter(version=WeightVersion(step=1, sha256="x"), payload=b"", peft_config="{}")
    with pytest.raises(EngineError, match=r"loading an adapter took longer than rollout\.request_timeout_s"):
        asyncio.run(sampler.load_adapter(adapter))
