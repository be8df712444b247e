"""`gspo-ray submit`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from gspo_ray.cli.arguments import add_resume
from gspo_ray.config_io import load_config

HELP = "train on a Ray cluster elsewhere: upload the project, follow the log, return the exit code"
EPILOG = "Any key of the config can be set as a flag, as in gspo-ray train. --storage_path must be a path of the head."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", required=True, help="YAML file; the project is the folder it is called from")
    parser.add_argument("--address", help="http://HEAD:8265; else RAY_API_SERVER_ADDRESS or RAY_ADDRESS")
    parser.add_argument("--no-wait", action="store_true", help="print the job's id and leave")
    parser.add_argument("--pip", action="append", default=[], metavar="PACKAGE", help="to be installed for this job")
    add_resume(parser, of=" (a path of the head)")


def run(args: argparse.Namespace, rest: Sequence[str]) -> int:
    config = load_config(args.config, rest)
    if _has_token():  # as `ray start` decides it; before Ray is loaded
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    from gspo_ray.submit import submit

    resume = [] if args.resume is None else ["--resume", args.resume]
    return submit(
        config, Path(args.config), [*resume, *rest], address=args.address, pip=args.pip, wait=not args.no_wait
    )


def _has_token() -> bool:
    named = os.environ.get("RAY_AUTH_TOKEN") or os.environ.get("RAY_AUTH_TOKEN_PATH")
    return bool(named) or Path("~/.ray/auth_token").expanduser().is_file()
