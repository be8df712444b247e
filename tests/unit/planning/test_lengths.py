import pytest

from gspo_ray.planning.lengths import Lengths, assumed_lengths, full_micro_batch
from tests.unit.planning.conftest import run_config

MEAN = Lengths(prompt=10, completion=20, longest=60, assumed=False)


def filled(max_tokens: int, *, longest: int = 30, shares_prompts: bool = True) -> list[tuple[int, list[int]]]:
    groups = full_micro_batch(MEAN, group_size=2, max_tokens=max_tokens, longest=longest, shares_prompts=shares_prompts)
    return [(len(prompt), [len(ids) for ids in completions]) for prompt, completions in groups]


def test_groups_fill_a_micro_batch_to_the_last_token() -> None:
    # 10 + 20 + 20, again 10 + 20 + 20, and 10 + 5
    assert filled(115) == [(10, [20, 20]), (10, [20, 20]), (10, [5])]
    assert filled(100) == [(10, [20, 20]), (10, [20, 20])]
    assert filled(109) == filled(100)  # no room for a prompt and a token more


def test_padded_rows_repeat_the_prompt() -> None:
    assert filled(100, shares_prompts=False) == [(10, [20, 20]), (10, [20])]


def test_the_longest_row_goes_through_whole() -> None:
    assert filled(40, longest=70) == [(10, [60])]


def test_what_is_not_given_is_assumed() -> None:
    config = run_config("x", rollout={"max_tokens": 4001})
    assert assumed_lengths(config) == Lengths(prompt=200, completion=2001, longest=4001, assumed=True)
    given = assumed_lengths(config, prompt=50, completion=9999)
    assert given == Lengths(prompt=50, completion=4001, longest=4001, assumed=False)


@pytest.mark.parametrize("prompt", [None, 7])
def test_half_given_is_assumed(prompt: int | None) -> None:
    assert assumed_lengths(run_config("x"), prompt=prompt).assumed
