"""`gspo-ray plan`."""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from gspo_ray.config_io import load_config
from gspo_ray.errors import ConfigError, ModelError
from gspo_ray.models import resolve_model

HELP = "memory, step time and cost of a run, and what cannot work, before a GPU is rented"
EPILOG = (
    "Reads the config and the model's config.json, no weights. Any key of the config can be set as a flag: "
    "--learner.micro_batch_tokens 8192. Exit code 2 when the run cannot work. "
    "Example: gspo-ray plan --config configs/dapo_qwen3_5_4b.yaml --gpu H100 --completion-tokens 1500"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", help="YAML file; without it the defaults and flags alone")
    parser.add_argument("--gpu", metavar="TYPE", help="A10G, L4, A100-40, A100-80, H100, H200, or one of --gpus")
    parser.add_argument("--gpus", type=Path, metavar="FILE", help="YAML: TYPE: {price_per_hour: 2.5, ...}")
    parser.add_argument(
        "--model-config", type=Path, metavar="FILE|FOLDER", help="config.json to plan with, in place of model.path's"
    )
    parser.add_argument("--prompt-tokens", type=int, metavar="N", help="mean length of a prompt")
    parser.add_argument("--completion-tokens", type=int, metavar="N", help="mean length of an answer")
    parser.add_argument("--token-noise", type=float, metavar="X", help="std of a token's log-prob, engine to learner")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every number there; - for the screen alone")


def run(args: argparse.Namespace, rest: Sequence[str]) -> int:
    for flag, value in (
        ("--prompt-tokens", args.prompt_tokens),
        ("--completion-tokens", args.completion_tokens),
        ("--token-noise", args.token_noise),
    ):
        if value is not None and value <= 0:
            raise ConfigError(f"{flag} is {value:g}; it must be above 0")
    config = load_config(args.config, rest)

    from rich.console import Console

    from gspo_ray.planning.gpus import known_gpus
    from gspo_ray.planning.lengths import assumed_lengths
    from gspo_ray.planning.plan import make_plan
    from gspo_ray.planning.report import as_json, render

    lengths = assumed_lengths(config, prompt=args.prompt_tokens, completion=args.completion_tokens)
    gpus = known_gpus(args.gpus)
    with _model_folder(args.model_config) as folder:
        path = folder or resolve_model(config.model.path, config.model.revision)
        try:
            plan = make_plan(config, path, lengths, gpus, gpu=args.gpu, token_noise=args.token_noise)
        except ModelError as error:
            if folder is not None or Path(path).is_dir():
                raise
            raise ModelError(f"{error} Without the network: --model-config FILE, with its config.json.") from error
    text = json.dumps(as_json(plan), indent=1)
    if args.json == Path("-"):
        print(text)
    else:
        render(plan, Console())
        if args.json is not None:
            _write(text, args.json)
    return 0 if plan.works else 2


@contextmanager
def _model_folder(path: Path | None) -> Iterator[str | None]:
    """A folder with config.json for as long as the context lasts. Raises ModelError."""
    if path is None:
        yield None
        return
    file = path.expanduser() / "config.json" if path.expanduser().is_dir() else path.expanduser()
    if not file.is_file():
        raise ModelError(f"--model-config {path}: there is no file {file}")
    with tempfile.TemporaryDirectory(prefix="gspo-plan-") as folder:
        shutil.copyfile(file, Path(folder) / "config.json")
        yield folder


def _write(text: str, path: Path) -> None:
    try:
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--json {path}: cannot be written ({error.strerror})") from error
