"""Checks of what an experiment is given: one sentence that names the option, what it takes and what it got."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gspo_ray.errors import ConfigError

MOST = 1_000_000  # of anything that is counted: beyond it an experiment fills the memory or never ends
MOST_SEED = 2**32 - 1
LARGEST_STEP = 1000.0  # learning rate or KL weight: beyond it the toy policies leave float64


def whole(option: str, value: object, *, at_least: int, at_most: int = MOST) -> int:
    """Raises ConfigError unless `value` is an integer (not 2.0, not True) in [at_least, at_most]."""
    if type(value) is not int or not at_least <= value <= at_most:
        raise ConfigError(f"{option} takes whole numbers from {at_least} to {at_most}, got {value}")
    return value


def real(
    option: str,
    value: object,
    *,
    above: float = -math.inf,
    at_least: float = -math.inf,
    below: float = math.inf,
    at_most: float = math.inf,
) -> float:
    """Raises ConfigError unless `value` is a finite number inside all bounds."""
    number = math.nan if isinstance(value, bool) or not isinstance(value, int | float) else float(value)
    if not (math.isfinite(number) and above < number < below and at_least <= number <= at_most):
        words = {"above": above, "of at least": at_least, "below": below, "of at most": at_most}
        bounds = " and ".join(f"{word} {bound:g}" for word, bound in words.items() if math.isfinite(bound))
        raise ConfigError(f"{option} takes finite numbers{f' {bounds}' if bounds else ''}, got {value}")
    return number


def learning_rate(value: object) -> float:
    return real("--learning-rate", value, above=0, at_most=LARGEST_STEP)


def epsilon(value: object, option: str = "--epsilon") -> float:
    return real(option, value, above=0, below=1)


def seeds(values: Sequence[object]) -> list[int]:
    """One or more different seeds."""
    checked = [whole("--seeds", value, at_least=0, at_most=MOST_SEED) for value in values]
    if not checked or len(set(checked)) < len(checked):
        raise ConfigError(f"--seeds takes one or more different numbers, got {' '.join(map(str, checked)) or 'none'}")
    return checked
