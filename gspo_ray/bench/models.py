"""The vocabulary of a model, and models of Qwen3's shapes with random weights: values do not change speed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

# hidden size, MLP size, layers, heads, tied head: config.json of Qwen3-0.6B, 4B, 8B
SIZES: dict[str, tuple[int, int, int, int, bool]] = {
    "0.6b": (1024, 3072, 28, 16, True),
    "4b": (2560, 9728, 36, 32, True),
    "8b": (4096, 12288, 36, 32, False),
}
MICRO_BATCH_TOKENS = (4096, 16384)
BATCH = "math"


def vocabulary(model_path: str, revision: str | None = None) -> int:
    """Number of token ids."""
    config = AutoConfig.from_pretrained(model_path, revision=revision)
    return int(config.get_text_config().vocab_size)


def qwen3_config(size: str) -> dict[str, Any]:
    hidden, mlp, layers, heads, tied = SIZES[size]
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "hidden_size": hidden,
        "intermediate_size": mlp,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151936,
        "max_position_embeddings": 40960,
        "rope_theta": 1000000,
        "tie_word_embeddings": tied,
        "dtype": "bfloat16",
    }


@contextmanager
def random_model(config: dict[str, Any], *, seed: int) -> Iterator[str]:
    """A folder that transformers loads, for as long as the context lasts. bfloat16, norms at 1, the rest small."""
    with TemporaryDirectory(prefix="gspo-bench-model-") as folder:
        (Path(folder) / "config.json").write_text(json.dumps(config), encoding="utf-8")
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))
        device = "cuda" if torch.cuda.is_available() else "cpu"
        generator = torch.Generator(device).manual_seed(seed)
        weights = {}
        for name, parameter in model.named_parameters():  # a tied head is no parameter of its own
            if parameter.dim() == 1:
                weights[name] = torch.ones(parameter.shape, dtype=torch.bfloat16)
            else:
                drawn = torch.randn(parameter.shape, generator=generator, device=device, dtype=torch.bfloat16)
                weights[name] = (0.02 * drawn).cpu()
        save_file(weights, Path(folder) / "model.safetensors", metadata={"format": "pt"})
        yield folder
