"""Which error a call of several ranks ends with, and when. Awaitables stand in for what actors answer."""

import asyncio
import time

import pytest

from gspo_ray.actors import ray_learner
from gspo_ray.actors.ray_learner import RayLearner
from gspo_ray.errors import LearnerError
from gspo_ray.learner.distributed import PeerError

LOST = PeerError("rank 0 lost the other ranks")


async def answers(value, after_s=0.0):
    await asyncio.sleep(after_s)
    return value


async def raises(error, after_s=0.0):
    await asyncio.sleep(after_s)
    raise error


def hangs():
    return asyncio.sleep(3600)


def together(*references):
    async def call():
        return await RayLearner([None] * len(references))._together(references)

    return asyncio.run(call())


def seconds_of(*references, error):
    started = time.monotonic()
    with pytest.raises(type(error), match=str(error)) as caught:
        together(*references)
    assert caught.value is error
    return time.monotonic() - started


def test_the_first_rank_answers_when_all_are_done():
    assert together(answers("zero"), answers("one", 0.1)) == "zero"


def test_a_cause_ends_the_call_while_others_hang():
    assert seconds_of(hangs(), raises(error := LearnerError("numbers")), hangs(), error=error) < 2


def test_a_rank_that_suffers_is_not_believed_before_the_cause_has_spoken():
    assert seconds_of(raises(LOST), raises(LOST), raises(error := LearnerError("died"), 0.2), error=error) < 2


def test_without_a_cause_patience_ends(monkeypatch):
    monkeypatch.setattr(ray_learner, "PATIENCE_S", 0.2)
    assert 0.2 <= seconds_of(raises(LOST), hangs(), error=LOST) < 2


@pytest.mark.parametrize("first", [True, False])
def test_an_unexpected_error_explains_more_than_its_echo(first):
    error = RuntimeError("out of memory")
    pair = [raises(error, 0 if first else 0.1), raises(LOST, 0.1 if first else 0)]
    assert seconds_of(*pair, error=error) < 2


def test_a_death_explains_more_than_the_broken_connection_of_another_rank():
    assert seconds_of(raises(RuntimeError("closed")), raises(error := LearnerError("died"), 0.2), error=error) < 2


def test_a_call_that_is_cancelled_leaves_no_task_behind():
    async def call():
        learner = RayLearner([None, None])
        task = asyncio.create_task(learner._together([hangs(), hangs()]))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0)
        return asyncio.all_tasks() - {asyncio.current_task()}

    assert asyncio.run(call()) == set()
