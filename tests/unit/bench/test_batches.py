"""Recorded lengths, drawn ids, and files of rollouts."""

import json

import pytest

from gspo_ray.bench.batches import NAMES, load_batch, useful_tokens
from gspo_ray.errors import ConfigError, DataError


def test_the_demo_batch_is_the_one_that_is_compared_with_trl():
    groups = load_batch("demo", vocabulary=49152, seed=0)
    lens = [len(ids) for _, completions in groups for ids in completions]
    assert [len(prompt) for prompt, _ in groups] == [88] * 8
    assert (len(lens), min(lens), max(lens)) == (64, 5, 48)
    assert useful_tokens(groups) == 64 * 88 + sum(lens)


@pytest.mark.parametrize("name", NAMES)
def test_ids_are_a_function_of_the_seed_and_stay_in_the_vocabulary(name):
    first, again, other = (load_batch(name, vocabulary=50, seed=seed) for seed in (0, 0, 1))
    assert first == again != other
    ids = [token for prompt, completions in first for row in (prompt, *completions) for token in row]
    assert 0 <= min(ids) <= max(ids) < 50
    assert NAMES[name]


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


ROWS = [
    {"group": 0, "prompt_ids": [1, 2], "token_ids": [3]},
    {"group": 1, "prompt_ids": [4], "token_ids": [5, 6]},
    {"group": 0, "prompt_ids": [1, 2], "token_ids": [7, 8, 9]},
]


def test_a_file_of_rollouts_is_read_group_by_group(tmp_path):
    groups = load_batch(write(tmp_path / "step.jsonl", ROWS), vocabulary=10, seed=0)
    assert groups == [([1, 2], [[3], [7, 8, 9]]), ([4], [[5, 6]])]
    assert useful_tokens(groups) == 2 + 1 + 2 + 3 + 1 + 2


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "is empty"),
        ([{"group": 0}], "step.jsonl:1 has not group, prompt_ids and token_ids"),
        ([*ROWS[:1], ["no", "object"]], "step.jsonl:2 has not"),
        ([{**ROWS[0], "token_ids": [10]}], "beyond the model's vocabulary of 10"),
        ([{**ROWS[0], "token_ids": []}], "step.jsonl:1 has an empty prompt or completion"),
    ],
)
def test_a_file_that_does_not_fit_is_named(tmp_path, rows, message):
    with pytest.raises(DataError, match=message):
        load_batch(write(tmp_path / "step.jsonl", rows), vocabulary=10, seed=0)


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ConfigError, match="'dmeo' is neither a file nor one of demo, additions, math"):
        load_batch("dmeo", vocabulary=10, seed=0)
