"""`gspo-ray`: the command line. Heavy imports happen inside the command that needs them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from gspo_ray import __version__
from gspo_ray.config_io import dump_config, load_config
from gspo_ray.errors import ConfigError, GspoRayError, UserError

LATEST = "latest"  # what --resume means without a folder


def main(argv: Sequence[str] | None = None) -> int:
    """Exit codes: 0 done, 1 the run failed, 2 something that the message tells how to mend, 128 + n signal n."""
    try:
        args, rest = _parser().parse_known_args(argv)
        if args.command == "model":
            if rest:
                raise ConfigError(f"unexpected argument {rest[0]!r}")
            return _model(args.name)
        return _train(args, rest)
    except UserError as error:
        print(f"error: {_one_line(error)}", file=sys.stderr)
        return 2
    except GspoRayError as error:
        print(f"the run failed: {error}", file=sys.stderr)
        print("Worker logs: /tmp/ray/session_latest/logs on each node", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _one_line(error: Exception) -> str:
    """Messages of libraries inside ours come with line breaks."""
    return " ".join(str(error).split())


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message} (see {self.prog} --help)")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="gspo-ray", description="Train LoRA adapters with GSPO on a Ray cluster or one machine.")
    parser.add_argument("--version", action="version", version=f"gspo-ray {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    train = commands.add_parser(
        "train",
        help="train a LoRA adapter",
        epilog="Any key of the config can be set as a flag: --rollout.max_tokens 64 --seed 1",
        allow_abbrev=False,
    )
    train.add_argument("--config", help="YAML file; without it the defaults and flags alone")
    train.add_argument("--dry-run", action="store_true", help="print the resolved config and stop")
    train.add_argument(
        "--resume",
        nargs="?",
        const=LATEST,
        metavar="RUN_DIR",
        help="go on from the newest complete checkpoint of RUN_DIR (its config is the default), or of the newest run "
        "of this name",
    )
    model = commands.add_parser("model", help="put a demo model into the cache and print its folder")
    model.add_argument("name", help="smollm2-135m")
    return parser


def _train(args: argparse.Namespace, overrides: Sequence[str]) -> int:
    path = args.config
    if path is None and args.resume is not None and (own := Path(args.resume) / "config.yaml").exists():
        path = own  # the run's config, flags on top
    config = load_config(path, overrides)
    if args.dry_run:
        print(dump_config(config), end="")
        return 0
    from gspo_ray.train import train

    return train(config, resume=args.resume)


def _model(name: str) -> int:
    from gspo_ray.models import resolve_model

    print(resolve_model(name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
