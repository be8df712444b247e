"""What several commands need of their arguments."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from gspo_ray.errors import ConfigError

LATEST = "latest"  # what --resume means without a folder


def refuse_rest(rest: Sequence[str]) -> None:
    """For commands without config overrides. Raises ConfigError for the first argument nobody knows."""
    if rest:
        raise ConfigError(f"unexpected argument {rest[0]!r}")


def add_resume(parser: argparse.ArgumentParser, *, of: str) -> None:
    """`of`: whose folder RUN_DIR is."""
    parser.add_argument(
        "--resume",
        nargs="?",
        const=LATEST,
        metavar="RUN_DIR",
        help=f"go on from the newest complete checkpoint of RUN_DIR{of}, or of the newest run of this name",
    )
