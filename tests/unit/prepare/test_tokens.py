"""Token counts are those of a run with the model."""

import shutil
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from gspo_ray.config import PromptConfig
from gspo_ray.data.prompts import PromptBuilder
from gspo_ray.errors import ModelError
from gspo_ray.models import DEMO_MODEL, resolve_model
from gspo_ray.prepare.records import Record
from gspo_ray.prepare.tokens import prompt_counter
from gspo_ray.types import Problem

QUESTIONS = ("What is 12 + 30?", "已知 $z=\\cos \\frac{2}{7} \\pi$, 求值.", "né " * 200)


@pytest.mark.parametrize("tokenizer_class", [None, "GPT2Tokenizer"])  # as saved; one that needs AutoTokenizer
def test_counts(tmp_path: Path, tokenizer_class: str | None) -> None:
    model = Path(resolve_model(DEMO_MODEL))
    if tokenizer_class:
        model = Path(shutil.copytree(model, tmp_path / "model"))
        config = model / "tokenizer_config.json"
        config.write_text(config.read_text().replace("TokenizersBackend", tokenizer_class))
    count = prompt_counter(str(model))
    builder = PromptBuilder(AutoTokenizer.from_pretrained(model), PromptConfig())
    for question in QUESTIONS:
        problem = Problem(problem_id="1", question=question, answer="1", source="set")
        assert count(Record("1", question, "1", "set")) == len(builder.build(problem).token_ids)


def test_no_such_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is no known model"):
        prompt_counter("smollm")
    model = Path(shutil.copytree(resolve_model(DEMO_MODEL), tmp_path / "model"))
    (model / "tokenizer.json").write_text("{")
    with pytest.raises(ModelError, match=r"tokenizer of --model .* cannot be loaded"):
        prompt_counter(str(model))
