"""`gspo-ray`: finds the command, runs it, turns errors into one line and an exit code."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from gspo_ray import __version__
from gspo_ray.errors import ConfigError, GspoRayError, UserError

# A command is a module here with HELP, add_arguments(parser) and run(args, rest) -> exit code; `rest` holds the
# arguments that its parser does not know: config overrides, or mistakes.
COMMANDS = ("prepare", "plan", "train", "submit", "eval", "analyse", "verify", "lab", "bench", "model", "doctor")


def main(argv: Sequence[str] | None = None) -> int:
    """Exit codes: 0 done, 1 the run failed, 2 something that the message tells how to mend, 128 + n signal n."""
    try:
        args, rest = _parser().parse_known_args(argv)
        return _module(args.command).run(args, rest)
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
    for name in COMMANDS:
        module = _module(name)
        module.add_arguments(
            commands.add_parser(
                name, help=module.HELP, description=module.HELP, epilog=module.EPILOG, allow_abbrev=False
            )
        )
    return parser


def _module(command: str) -> Any:
    return importlib.import_module(f"gspo_ray.cli.{command}")
