"""The order of training: a permutation a pass, and resumable at any point."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gspo_ray.data.stream import ProblemStream
from gspo_ray.errors import DataError
from gspo_ray.types import Problem, Prompt


def prompts(n: int) -> list[Prompt]:
    problems = [Problem(problem_id=str(i), question="q", answer="a", source="s") for i in range(n)]
    return [Prompt(problem=problem, token_ids=(1,)) for problem in problems]


def ids(taken: list[Prompt]) -> list[int]:
    return [int(prompt.problem.problem_id) for prompt in taken]


sizes = st.integers(1, 20)
takes = st.lists(st.integers(1, 30), min_size=1, max_size=6)


@given(n=sizes, seed=st.integers(0, 1000), shuffle=st.booleans(), before=takes, after=takes)
def test_resume_goes_on_exactly(n: int, seed: int, shuffle: bool, before: list[int], after: list[int]) -> None:
    whole = ProblemStream(prompts(n), seed=seed, shuffle=shuffle)
    for k in before:
        whole.take(k)
    assert whole.problems_seen == sum(before)
    resumed = ProblemStream(prompts(n), seed=seed, shuffle=shuffle, problems_seen=whole.problems_seen)
    random.seed(seed)  # a global state must not matter
    assert [ids(resumed.take(k)) for k in after] == [ids(whole.take(k)) for k in after]
    assert resumed.problems_seen == whole.problems_seen


@given(n=sizes, seed=st.integers(0, 1000), steps=takes)
def test_each_pass_is_a_permutation(n: int, seed: int, steps: list[int]) -> None:
    stream = ProblemStream(prompts(n), seed=seed, shuffle=True)
    order = [i for k in steps for i in ids(stream.take(k))]
    for start in range(0, len(order), n):
        piece = order[start : start + n]
        assert len(set(piece)) == len(piece)
    assert order == ids(ProblemStream(prompts(n), seed=seed, shuffle=True).take(sum(steps)))


def test_order_is_pinned() -> None:
    """A changed order would make every older checkpoint resume on other problems."""
    stream = ProblemStream(prompts(8), seed=0, shuffle=True)
    first, second = ids(stream.take(8)), ids(stream.take(8))
    assert (first, second) == ([7, 0, 4, 6, 5, 3, 2, 1], [5, 7, 1, 4, 0, 3, 6, 2])
    assert ids(ProblemStream(prompts(8), seed=1, shuffle=True).take(8)) != first


def test_without_shuffle() -> None:
    assert ids(ProblemStream(prompts(3), seed=5, shuffle=False).take(7)) == [0, 1, 2, 0, 1, 2, 0]


def test_refusals() -> None:
    with pytest.raises(DataError, match="no prompt"):
        ProblemStream([], seed=0, shuffle=True)
    with pytest.raises(ValueError, match="k must be 1"):
        ProblemStream(prompts(1), seed=0, shuffle=True).take(0)
    with pytest.raises(ValueError, match="problems_seen"):
        ProblemStream(prompts(1), seed=0, shuffle=True, problems_seen=-1)
