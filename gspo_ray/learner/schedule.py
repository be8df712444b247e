"""The learning rate as a function of the step: no hidden state, so a resumed run goes on where it was."""

from __future__ import annotations

import math

from gspo_ray.config import LearnerConfig


def learning_rate(config: LearnerConfig, *, step: int, total_steps: int) -> float:
    """Rises linearly over `warmup_steps`, is `learning_rate` in the step after them, and then follows `lr_schedule`.

    Steps count from 1. Several updates of one step share its rate.
    """
    if step <= config.warmup_steps:
        return config.learning_rate * step / config.warmup_steps
    progress = (step - 1 - config.warmup_steps) / max(total_steps - config.warmup_steps, 1)
    if config.lr_schedule == "linear":
        return config.learning_rate * (1 - progress)
    if config.lr_schedule == "cosine":
        return config.learning_rate * (1 + math.cos(math.pi * progress)) / 2
    return config.learning_rate
