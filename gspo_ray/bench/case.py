"""What one measuring process is asked, and what it answers: JSON on both sides."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from gspo_ray.bench.batches import Group
from gspo_ray.config import ModelConfig


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Case(_Frozen):
    variant: str
    model_path: str
    model: ModelConfig
    device: str
    threads: int
    micro_batch_tokens: int
    temperature: float
    gradient_checkpointing: bool
    seed: int
    groups: list[Group]
    trl_rows: int
    """Sequences of a micro-batch of TRL, which counts rows."""
    memory_limit: int | None
    """Bytes of data that the process may have; None: no limit."""
    profile: bool = False


class Measurement(_Frozen):
    """One pass over the batch: forward, loss and backward of all its micro-batches."""

    variant: str
    failure: str = ""
    """Why there is nothing more: it does not fit into memory."""
    note: str = ""
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    """Of all threads: the steadier number when the machine is busy."""
    computed_tokens: int = 0
    """Tokens that went through the model, padding and repeated prompts too."""
    micro_batches: int = 0
    flops: float = 0.0
    """Of the matrix products that a step needs for these tokens; recomputation is not counted."""
    empty_bytes: int = 0
    """Of the process before it loads its model."""
    loaded_bytes: int = 0
    """Of the process with its model, before the batch."""
    peak_bytes: int = 0
    """The most that the process has held during the batch."""
    busy_others: float = 0.0
    """Cores that other programs kept busy meanwhile."""


class Limit(_Frozen):
    """Matrix products alone, at the sizes of this model and this batch."""

    flops_per_second: float
    """The best of them."""
    by_shape: dict[str, float]
    busy_others: float = 0.0
