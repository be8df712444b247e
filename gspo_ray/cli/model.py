"""`gspo-ray model`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from gspo_ray.cli.arguments import refuse_rest

HELP = "put a demo model into the cache and print its folder"
EPILOG = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="smollm2-135m")


def run(args: argparse.Namespace, rest: Sequence[str]) -> int:
    refuse_rest(rest)
    from gspo_ray.models import resolve_model

    print(resolve_model(args.name))
    return 0
