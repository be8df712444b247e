"""Prompt lengths as a run with this model would see them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gspo_ray.config import PromptConfig
from gspo_ray.data.prompts import PromptBuilder
from gspo_ray.errors import ModelError
from gspo_ray.models import resolve_model
from gspo_ray.prepare.records import Record
from gspo_ray.types import Problem

_PLAIN_CLASSES = (
    "TokenizersBackend",
    "PreTrainedTokenizerFast",
)  # new and old name of the class of tokenizer.json alone


def prompt_counter(model: str) -> Callable[[Record], int]:
    """Tokens of a record's prompt under the default data.prompt. Raises ModelError when there is no such model."""
    path = resolve_model(model)
    try:
        tokenizer = _load(path)
    except Exception as error:  # of damaged files the library raises KeyError, and a bare Exception
        raise ModelError(
            f"the tokenizer of --model {model!r} cannot be loaded: {type(error).__name__}: {error}"
        ) from error
    builder = PromptBuilder(tokenizer, PromptConfig())

    def count(record: Record) -> int:
        problem = Problem(
            problem_id=record.id, question=record.question, answer=record.answer, source=record.data_source
        )
        return len(builder.build(problem).token_ids)

    return count


def _load(path: str) -> Any:
    """What AutoTokenizer gives. Its import alone takes 450 MB (it brings torch): left out where its choice is plain."""
    config = Path(path) / "tokenizer_config.json"
    if config.is_file() and json.loads(config.read_bytes()).get("tokenizer_class") in _PLAIN_CLASSES:
        from transformers import PreTrainedTokenizerFast

        return PreTrainedTokenizerFast.from_pretrained(path)
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(path)
