"""`gspo-ray eval`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from gspo_ray.config_io import load_config
from gspo_ray.errors import ConfigError

HELP = "evaluate the base model or an adapter on a set of problems, with intervals and a verdict"
EPILOG = (
    "The protocol is the config's: --eval.source jsonl --eval.path aime25.jsonl --eval.samples 12 --eval.max_tokens "
    "8192. Stopped and started again, the same command goes on where it was."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", help="YAML file; with --adapter RUN_DIR that run's config is the default")
    parser.add_argument(
        "--adapter",
        type=Path,
        metavar="DIR",
        help="run folder (its newest checkpoint), checkpoint, or PEFT directory; without it the base model",
    )
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FILE", help="result file (JSONL), continued if there"
    )
    parser.add_argument("--base", type=Path, metavar="FILE", help="finished result file to compare with")
    parser.add_argument("--retry-failed", action="store_true", help="ask the problems that failed once more")


def run(args: argparse.Namespace, rest: Sequence[str]) -> int:
    path = args.config
    if path is None and args.adapter is not None and (own := args.adapter / "config.yaml").exists():
        path = own
    if args.adapter is not None and not args.adapter.expanduser().exists():
        raise ConfigError(f"--adapter {args.adapter} does not exist")
    config = load_config(path, rest)
    from gspo_ray.eval_job import run_evaluation

    return run_evaluation(config, adapter=args.adapter, out=args.out, base=args.base, retry_failed=args.retry_failed)
