"""learner.*: optimizer and micro-batches."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from gspo_ray.config.section import Section


class LearnerConfig(Section):
    learning_rate: float = Field(4e-5, gt=0)
    lr_schedule: Literal["constant", "linear", "cosine"] = "constant"
    """`linear` and `cosine` fall from learning_rate in the first step (after warm-up) towards 0, which the step after
    the last would have."""
    warmup_steps: int = Field(0, ge=0)
    """Steps over which the rate rises linearly to learning_rate."""
    beta1: float = Field(0.9, ge=0, lt=1)
    beta2: float = Field(0.95, ge=0, lt=1)
    adam_eps: float = Field(1e-8, gt=0)
    weight_decay: float = Field(0.0, ge=0)
    max_grad_norm: float | None = Field(1.0, gt=0)
    """None: no clipping (the norm is logged all the same)."""
    micro_batch_tokens: int = Field(16384, ge=1)
    """Tokens of one forward and backward pass; a prompt that completions share counts once. Changes memory and speed,
    never the gradient."""
    gradient_checkpointing: bool = False
    num_ranks: int = Field(1, ge=1)
    """Learner processes that share the rows of a batch by tokens, each with the whole model and, on cuda, a GPU of its
    own. Changes speed, never the gradient; a run may be resumed with another number."""
    shard_base: bool = False
    """Each learner process holds a part of every decoder layer's frozen weights (FSDP2), and gets the rest when it
    computes the layer: for a base model that does not fit one GPU. Slower; embeddings, head and adapter stay whole."""
    cpu_threads: int = Field(2, ge=1)
    """Torch threads of a learner process when it runs on CPU."""

    @model_validator(mode="after")
    def _something_to_shard_over(self) -> Self:
        if self.shard_base and self.num_ranks == 1:
            raise ValueError(
                "learner.shard_base spreads the base weights over the learner's processes, and learner.num_ranks is 1. "
                "Raise learner.num_ranks."
            )
        return self
