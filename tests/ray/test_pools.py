"""The Protocols over real Ray actors: order, routing, errors, deaths."""

import asyncio
import time
from functools import partial

import psutil
import pytest
import ray

from gspo_ray.actors.pools import AdapterStore, RayEngine, RayVerifier
from gspo_ray.actors.reward_actor import RemoteRewardActor
from gspo_ray.actors.rollout_actor import RemoteRolloutActor
from gspo_ray.errors import EngineError, RewardError
from gspo_ray.rollout.engine_fake import FakeEngine
from gspo_ray.rollout.sampler import GroupSampler
from gspo_ray.types import (
    Adapter,
    Completion,
    Finish,
    Group,
    Outcome,
    Problem,
    Prompt,
    SamplingParams,
    WeightVersion,
)

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("cluster")]

VERSION = WeightVersion(step=3, sha256="0b7d5abc")
ADAPTER = Adapter(version=VERSION, payload=b"weights", peft_config="{}")


def make_engine(name="a", *, delay_s=0.0):
    handle = RemoteRolloutActor.options(num_cpus=0.25).remote(partial(FakeEngine, f"fake-{name}", delay_s=delay_s))
    ray.get(handle.start.remote())
    return handle


def make_sampler(handles, timeout_s=30.0):
    store = AdapterStore()
    return GroupSampler(
        [RayEngine(handle, str(number), store) for number, handle in enumerate(handles)],
        group_size=2,
        sampling=SamplingParams(max_tokens=8),
        seed=0,
        max_num_seqs=64,
        timeout_s=timeout_s,
    )


def make_prompt(number, answer="1"):
    problem = Problem(problem_id=f"p{number}", question="?", answer=answer, source="test")
    return Prompt(problem=problem, token_ids=(1, 2, number))


def make_group(texts, answer):
    completions = tuple(
        Completion(
            token_ids=(1,),
            sampler_logprobs=(-0.1,),
            text=text,
            finish=Finish.STOP,
            version=VERSION,
            engine_id="e",
            seed=index,
        )
        for index, text in enumerate(texts)
    )
    return Group(prompt=make_prompt(0, answer), completions=completions)


def make_verifier(num_workers=2, timeout_s=10.0):
    handles = [
        RemoteRewardActor.options(num_cpus=0.25).remote(timeout_s=timeout_s, memory_limit_mib=1024)
        for _ in range(num_workers)
    ]
    ray.get([handle.start.remote() for handle in handles])
    return handles


def test_groups_come_back_in_order_from_two_engines_although_later_prompts_answer_first():
    handles = [make_engine("a", delay_s=0.5), make_engine("b", delay_s=0.5)]

    async def run():
        sampler = make_sampler(handles)
        await sampler.load_adapter(ADAPTER)
        return await sampler.sample([make_prompt(n) for n in range(6)], step=1)

    groups = asyncio.run(run())
    assert [group.prompt.problem.problem_id for group in groups] == [f"p{n}" for n in range(6)]
    assert all(c.text.startswith(f"prompt {n} ") for n, group in enumerate(groups) for c in group.completions)
    assert all(c.version == VERSION for group in groups for c in group.completions)
    assert {c.engine_id for group in groups for c in group.completions} == {"fake-a", "fake-b"}
    assert all(len({c.engine_id for c in group.completions}) == 1 for group in groups)  # groups stay whole


def test_an_engine_without_an_adapter_refuses_and_its_error_arrives_as_it_was_raised():
    sampler = make_sampler([make_engine()])
    with pytest.raises(EngineError, match="no adapter yet") as caught:
        asyncio.run(sampler.sample([make_prompt(1)], step=1))
    assert type(caught.value) is EngineError


def test_the_echo_carries_the_sha256_of_the_bytes_that_arrived():
    import hashlib

    echoes = asyncio.run(make_sampler([make_engine(), make_engine("b")]).load_adapter(ADAPTER))
    assert echoes == [WeightVersion(step=3, sha256=hashlib.sha256(b"weights").hexdigest())] * 2


def test_an_adapter_is_put_into_the_object_store_once():
    store = AdapterStore()
    first = store.reference(ADAPTER)
    assert store.reference(ADAPTER) is first
    other = Adapter(version=WeightVersion(step=4, sha256="x"), payload=b"w", peft_config="{}")
    assert store.reference(other) is not first


def test_the_death_of_a_rollout_actor_surfaces_in_the_step():
    handle = make_engine(delay_s=60.0)

    async def run():
        sampler = make_sampler([handle])
        await sampler.load_adapter(ADAPTER)
        sampling = asyncio.create_task(sampler.sample([make_prompt(1)], step=1))
        await asyncio.sleep(0.5)
        ray.kill(handle)
        await sampling

    with pytest.raises(EngineError, match="rollout actor 0 died"):
        asyncio.run(run())


def test_an_engine_that_hangs_ends_the_step_with_the_key_that_sets_the_limit():
    async def run():
        sampler = make_sampler([make_engine(delay_s=60.0)], timeout_s=1.0)
        await sampler.load_adapter(ADAPTER)
        await sampler.sample([make_prompt(1)], step=7)

    with pytest.raises(EngineError, match=r"step 7 .*rollout\.request_timeout_s=1"):
        asyncio.run(run())


def test_math_verify_works_in_the_actor_type_that_is_used_and_order_is_kept():
    """In a threaded or async actor every one of these would be 0: math-verify's timeout needs the main thread."""
    groups = [
        make_group([r"\boxed{0.5}", r"\boxed{\frac{1}{3}}", "no box", r"so \boxed{\dfrac12}"], r"\frac{1}{2}"),
        *[make_group([rf"\boxed{{{n}}}", rf"\boxed{{{n + 1}}}"], str(n)) for n in range(12)],
    ]
    scored = asyncio.run(RayVerifier(make_verifier()).score(groups))
    expected = [Outcome.CORRECT, Outcome.WRONG, Outcome.NO_ANSWER, Outcome.CORRECT]
    assert [verdict.outcome for verdict in scored[0].verdicts] == expected
    assert scored[0].rewards_G == (1.0, 0.0, 0.0, 1.0)
    assert all(group.rewards_G == (1.0, 0.0) for group in scored[1:])
    assert [group.prompt for group in scored] == [group.prompt for group in groups]


def test_a_hostile_answer_times_out_alone():
    group = make_group([r"\boxed{7}", r"\boxed{9^{9^{9^{9}}}}", r"\boxed{7}", r"\boxed{8}"], "7")
    (scored,) = asyncio.run(RayVerifier(make_verifier(1, timeout_s=4.0)).score([group]))
    outcomes = [verdict.outcome for verdict in scored.verdicts]
    assert outcomes == [Outcome.CORRECT, Outcome.TIMEOUT, Outcome.CORRECT, Outcome.WRONG]


def verifier_pids():
    return {p.pid for p in psutil.process_iter(["cmdline"]) if "gspo_ray.reward.worker" in (p.info["cmdline"] or [])}


def test_the_death_of_a_reward_actor_surfaces_and_takes_its_verifier_along():
    before = verifier_pids()
    (handle,) = make_verifier(1)
    (child,) = verifier_pids() - before
    ray.kill(handle)
    with pytest.raises(RewardError, match="reward actor 0 died"):
        asyncio.run(RayVerifier([handle]).score([make_group([r"\boxed{1}"], "1")]))
    deadline = time.monotonic() + 10
    while psutil.pid_exists(child) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not psutil.pid_exists(child)
