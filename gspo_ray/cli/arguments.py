"""What several commands need of their arguments."""

from __future__ import annotations

from collections.abc import Sequence

from gspo_ray.errors import ConfigError


def refuse_rest(rest: Sequence[str]) -> None:
    """For commands without config overrides. Raises ConfigError for the first argument nobody knows."""
    if rest:
        raise ConfigError(f"unexpected argument {rest[0]!r}")
