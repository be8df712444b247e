"""GPU types: what their makers state, what others have measured, what is a guess. A file of the user overrides any of
it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gspo_ray.errors import ConfigError

PRICES_FROM = "on-demand list prices of large clouds, about mid 2025, a GPU of a full machine; examples, not offers"


class Gpu(BaseModel):
    """`--gpus FILE` holds these by name; what it leaves out of a known type keeps the value below."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    memory_gib: float = Field(gt=0)
    """What a process can allocate; less than the name says."""
    tflops: float = Field(gt=0)
    """Dense bfloat16 peak of the data sheet, in 10^12 a second."""
    bandwidth_gb_s: float = Field(gt=0)
    """Memory bandwidth of the data sheet, in 10^9 bytes a second."""
    learner_efficiency: float = Field(gt=0, le=1)
    """Share of the peak that a LoRA step reaches, recomputed layers counted as work."""
    prefill_efficiency: float = Field(0.4, gt=0, le=1)
    decode_efficiency: float = Field(0.6, gt=0, le=1)
    """Share of the bandwidth that reading weights and KV cache reaches."""
    price_per_hour: float | None = Field(None, ge=0)
    source: str = "--gpus"
    """Where learner_efficiency and the peaks come from."""


_SHEET = "peaks: data sheet; learner efficiency: "
# From benchmarks/results/BENCHMARKS.md of PrimeIntellect-ai/prime-rl: Qwen3-4B, LoRA r=16, one sequence of 16,384
# tokens, layers recomputed: 6.23k tokens/s on an H100, 6.55k on each of eight H200. At 42.9 GFLOP a token (counted as
# in steptime.py) that is 267 and 281 TFLOP/s. In the same way: 15 % for Qwen3-0.6B, 20 % for Qwen3-30B-A3B on H200,
# 43 % for the 4B with 65,536 tokens.
_PRIME_RL = _SHEET + "prime-rl's with a 4B model (15 % with 0.6B, 20 % with a 30B mixture), compiled as ours is not"
GPUS: dict[str, Gpu] = {
    "A10G": Gpu(
        memory_gib=22.0,
        tflops=70,
        bandwidth_gb_s=600,
        learner_efficiency=0.4,
        price_per_hour=1.01,
        source=_SHEET + "guess",
    ),
    "L4": Gpu(
        memory_gib=22.0,
        tflops=121,
        bandwidth_gb_s=300,
        learner_efficiency=0.3,
        price_per_hour=0.80,
        source=_SHEET + "guess",
    ),
    "A100-40": Gpu(
        memory_gib=39.4,
        tflops=312,
        bandwidth_gb_s=1555,
        learner_efficiency=0.35,
        price_per_hour=2.75,
        source=_SHEET + "guess",
    ),
    "A100-80": Gpu(
        memory_gib=79.2,
        tflops=312,
        bandwidth_gb_s=2039,
        learner_efficiency=0.35,
        price_per_hour=3.43,
        source=_SHEET + "guess",
    ),
    "H100": Gpu(
        memory_gib=79.1,
        tflops=989,
        bandwidth_gb_s=3350,
        learner_efficiency=0.27,
        price_per_hour=6.88,
        source=_PRIME_RL,
    ),
    "H200": Gpu(
        memory_gib=139.7,
        tflops=989,
        bandwidth_gb_s=4800,
        learner_efficiency=0.28,
        price_per_hour=7.91,
        source=_PRIME_RL,
    ),
}


def known_gpus(file: Path | None = None) -> dict[str, Gpu]:
    """The table, with what `file` changes and adds. Raises ConfigError naming file, type and field."""
    if file is None:
        return dict(GPUS)
    gpus = dict(GPUS)
    for name, fields in _read(file).items():
        before = gpus[name].model_dump() | {"source": str(file)} if name in gpus else {}
        try:
            gpus[name] = Gpu.model_validate(before | fields)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(part) for part in first["loc"])
            raise ConfigError(f"--gpus {file}: {name}.{field}: {first['msg']}") from None
    return gpus


def gpu_named(text: str, gpus: Iterable[str]) -> str | None:
    """The type that a name of CUDA ("NVIDIA A100-SXM4-80GB") or of Ray ("A100-80G") means, None if it is not known."""
    words = re.split(r"[^A-Z0-9]+", text.upper())

    def means(name: str) -> bool:
        first, *rest = name.upper().split("-")
        return first in words and all(any(word.startswith(part) for word in words) for part in rest)

    return next((name for name in gpus if means(name)), None)


def _read(file: Path) -> dict[str, dict[str, Any]]:
    try:
        tree = yaml.safe_load(file.expanduser().read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"--gpus {file}: cannot be read: {' '.join(str(error).split())}") from error
    if not isinstance(tree, dict) or not all(isinstance(fields, dict) for fields in tree.values()):
        raise ConfigError(f"--gpus {file}: must hold `TYPE: {{price_per_hour: ..., ...}}`")
    return {str(name): fields for name, fields in tree.items()}
