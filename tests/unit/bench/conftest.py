"""A Llama small enough for milliseconds, and a case on it."""

from typing import Any

import pytest
import torch

from gspo_ray.bench.batches import Group
from gspo_ray.bench.case import Case
from gspo_ray.config import LoraConfig, ModelConfig
from tests.unit.learner.conftest import save_tiny_llama

GROUPS: list[Group] = [
    ([5, 6, 7, 8], [[9, 10, 11], [12], [13, 14, 15, 16, 17]]),
    ([20, 21], [[22, 23], [24, 25, 26, 27], [28]]),
]
MODEL = ModelConfig(path="tiny", dtype="float32", lora=LoraConfig(rank=4, alpha=8.0))


@pytest.fixture(scope="session", autouse=True)
def _few_threads():
    """Kernels this small gain nothing from threads, and the machine may be busy."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny-llama")
    (folder / "tokenizer.json").write_text("{}")  # a run would need one, the learner does not
    return save_tiny_llama(folder)


def make_case(model_path: str, **changes: Any) -> Case:
    fields = {
        "variant": "ours",
        "model_path": model_path,
        "model": MODEL,
        "device": "cpu",
        "threads": 1,
        "micro_batch_tokens": 16,
        "temperature": 1.0,
        "gradient_checkpointing": False,
        "seed": 0,
        "groups": GROUPS,
        "trl_rows": 3,
        "memory_limit": None,
    }
    return Case.model_validate(fields | changes)
