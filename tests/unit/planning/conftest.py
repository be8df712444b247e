"""config.json of published models, as Hugging Face serves them, and a small one."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gspo_ray.config import LoraConfig, ModelConfig, RunConfig
from gspo_ray.planning.policy import policy_without_weights
from gspo_ray.planning.shape import ModelShape, model_shape

QWEN3: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "rope_theta": 1000000,
}
# hidden_size, intermediate_size, num_hidden_layers, num_attention_heads, tie_word_embeddings
SIZES = {
    "0.6b": (1024, 3072, 28, 16, True),
    "4b": (2560, 9728, 36, 32, True),
    "8b": (4096, 12288, 36, 32, False),
}
MIXTURE = QWEN3 | {  # Qwen3-30B-A3B
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "tie_word_embeddings": False,
}
TINY: dict[str, Any] = {  # that of tests/unit/learner/conftest.py
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 64,
    "max_position_embeddings": 512,
    "tie_word_embeddings": True,
}

Save = Callable[..., str]


@pytest.fixture
def save(tmp_path: Path) -> Save:
    """The folder of a config.json, which is one of SIZES or a tree, with changes."""
    return partial(save_config, tmp_path)


@pytest.fixture(scope="session")
def qwen3_4b(tmp_path_factory: pytest.TempPathFactory) -> ModelShape:
    """LoRA r=16."""
    path = save_config(tmp_path_factory.mktemp("qwen3-4b"), "4b")
    return model_shape(policy_without_weights(path, model(path), gradient_checkpointing=False))


def save_config(folder: Path, config: str | dict[str, Any], **changes: Any) -> str:
    if isinstance(config, str):
        keys = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
        config = QWEN3 | dict(zip((*keys, "tie_word_embeddings"), SIZES[config], strict=True))
    (folder / "config.json").write_text(json.dumps(config | changes))
    return str(folder)


def model(path: str, *, rank: int = 16, dtype: str = "bfloat16") -> ModelConfig:
    return ModelConfig.model_validate(
        {"path": path, "dtype": dtype, "lora": LoraConfig(rank=rank, alpha=2 * rank).model_dump()}
    )


def run_config(path: str, **sections: Any) -> RunConfig:
    """On GPUs, LoRA r=16, bfloat16."""
    return RunConfig.model_validate({"model": model(path).model_dump(), **sections})
