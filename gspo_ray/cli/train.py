"""`gspo-ray train`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from gspo_ray.advice import advise
from gspo_ray.cli.arguments import add_resume
from gspo_ray.config_io import dump_config, load_config

HELP = "train a LoRA adapter"
EPILOG = "Any key of the config can be set as a flag: --rollout.max_tokens 64 --seed 1"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", help="YAML file; without it the defaults and flags alone")
    parser.add_argument("--dry-run", action="store_true", help="print the resolved config and stop")
    add_resume(parser, of="")


def run(args: argparse.Namespace, rest: Sequence[str]) -> int:
    path = args.config
    if path is None and args.resume is not None and (own := Path(args.resume) / "config.yaml").exists():
        path = own  # the run's config, flags on top
    config = load_config(path, rest)
    if args.dry_run:
        print(dump_config(config), end="")
        for sentence in advise(config):
            print(f"! {sentence}", file=sys.stderr)
        return 0
    from gspo_ray.train import train

    return train(config, resume=args.resume)
