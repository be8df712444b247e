"""Gold answers that cannot be read are said before a run, and end it when there are no others."""

import json

import pytest

from gspo_ray.config import RunConfig
from gspo_ray.errors import DataError
from gspo_ray.inputs import load_inputs


@pytest.fixture
def load(tmp_path):
    def load(golds):
        path = tmp_path / "problems.jsonl"
        rows = [{"question": f"question {i}", "answer": gold} for i, gold in enumerate(golds)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return load_inputs(RunConfig.model_validate({"data": {"source": "jsonl", "path": str(path)}}))

    return load


def test_some_unreadable_gold_answers_are_named(load):
    (warning,) = load(["4", r"\frac{1}{0}", "7", "x^2+1"]).warnings
    assert warning.startswith("1 of 4 gold answers cannot be read: ")
    assert "row 2" in warning


def test_readable_gold_answers_need_no_word(load):
    assert load(["4", r"\frac{1}{2}"]).warnings == ()


def test_nothing_but_unreadable_gold_answers_is_an_error(load):
    with pytest.raises(DataError, match="nothing could ever be right"):
        load([r"\frac{1}{0}", r"\frac{2}{0}"])
