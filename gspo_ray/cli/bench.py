"""`gspo-ray bench`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gspo_ray.config_io import load_config
from gspo_ray.errors import ConfigError

if TYPE_CHECKING:  # numpy, which --help does not need
    from gspo_ray.bench.case import Case
    from gspo_ray.config import RunConfig

HELP = "measure the learner on this machine, beside the plain way and TRL, or beside what the plan states"
EPILOG = (
    "Any key of the config can be set as a flag: --learner.micro_batch_tokens 8192. Numbers belong to a quiet machine; "
    "what others took of it is said."
)
DEMO = "configs/demo.yaml"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    names = parser.add_subparsers(dest="bench", required=True, metavar="WHAT")
    text = "tokens a second, share of the machine's matrix products, peak memory, and gradients, ours and others'"
    learner = names.add_parser("learner", help=text, description=text, epilog=EPILOG, allow_abbrev=False)
    learner.add_argument("--config", default=DEMO, help=f"YAML file (default: {DEMO})")
    learner.add_argument(
        "--batch",
        default="demo",
        metavar="NAME|FILE",
        help="demo, additions, math (recorded lengths), or a file of rollouts/ in a run folder (default: demo)",
    )
    learner.add_argument("--variants", nargs="+", metavar="NAME", help="default: all that can run here")
    learner.add_argument("--repeats", type=int, default=3, metavar="N", help="rounds over the variants (default: 3)")
    learner.add_argument("--trl-rows", type=int, default=16, metavar="N", help="TRL's micro-batch (default: 16)")
    learner.add_argument("--json", type=Path, metavar="FILE", help="write every number there")
    learner.add_argument("--profile", action="store_true", help="where the time of the first variant goes")
    learner.add_argument("--gpu", action="store_true", help="the set of sizes for a GPU, with random weights")
    learner.add_argument("--sizes", nargs="+", metavar="SIZE", help="of --gpu: 0.6b 4b 8b (default: all)")
    text = "the learner's peak memory for full micro-batches, as gspo-ray plan states it and as it is"
    plan = names.add_parser("plan", help=text, description=text, epilog=EPILOG, allow_abbrev=False)
    plan.add_argument("--config", default=DEMO, help=f"YAML file (default: {DEMO})")
    plan.add_argument("--model-config", metavar="FOLDER", help="random weights for its config.json, not model.path")
    plan.add_argument("--tokens", type=int, nargs="+", default=[1024, 2048], metavar="N", help="default: 1024 2048")
    plan.add_argument("--prompt-tokens", type=int, metavar="N", help="mean length of a prompt")
    plan.add_argument("--completion-tokens", type=int, metavar="N", help="mean length of an answer")
    plan.add_argument("--json", type=Path, metavar="FILE", help="write every number there")


def run(args: argparse.Namespace, rest: Sequence[str]) -> int:
    return _check_plan(args, rest) if args.bench == "plan" else _learner(args, rest)


def _learner(args: argparse.Namespace, rest: Sequence[str]) -> int:
    from rich.console import Console

    from gspo_ray.bench.report import render

    if args.repeats < 1 or args.trl_rows < 1:
        raise ConfigError("--repeats and --trl-rows must be at least 1")
    config = load_config(args.config, rest)
    variants = _variants(args.variants)
    console = Console()
    reports = []
    for case, batch in _gpu_cases(args, config) if args.gpu else _cases(args, config):
        report = _measured(case, batch, variants, args)
        render(report, console)
        reports.append(report)
        if args.json is not None:  # after each: a long set that is stopped has not been for nothing
            _write(reports if args.gpu else report, args.json)
    return 0


def _variants(names: Sequence[str] | None) -> list[str]:
    from gspo_ray.bench.learner import TRL_VARIANTS, VARIANTS, trl_is_installed

    if unknown := [name for name in names or () if name not in VARIANTS]:
        raise ConfigError(f"--variants {unknown[0]!r} is none of {', '.join(VARIANTS)}")
    if names is None:
        return [name for name in VARIANTS if name not in TRL_VARIANTS or trl_is_installed()]
    if not trl_is_installed() and (wanted := [name for name in names if name in TRL_VARIANTS]):
        raise ConfigError(f"--variants {wanted[0]} needs TRL: tests/conformance/README.md says how to install it")
    return list(dict.fromkeys(names))


def _cases(args: argparse.Namespace, config: RunConfig) -> Iterator[tuple[Case, str]]:
    from gspo_ray.models import resolve_model

    if args.sizes:
        raise ConfigError("--sizes belongs to --gpu; without it the config's model is measured")
    path = resolve_model(config.model.path, config.model.revision)
    yield _case(args, config, path, args.batch), args.batch


def _gpu_cases(args: argparse.Namespace, config: RunConfig) -> Iterator[tuple[Case, str]]:
    """In bfloat16, and with the batch of long answers unless one was named."""
    from gspo_ray.bench.hardware import has_gpu
    from gspo_ray.bench.models import BATCH, MICRO_BATCH_TOKENS, SIZES, qwen3_config, random_model

    if unknown := [size for size in args.sizes or () if size not in SIZES]:
        raise ConfigError(f"--sizes {unknown[0]!r} is none of {', '.join(SIZES)}")
    if not has_gpu():
        raise ConfigError("--gpu needs a CUDA device, and torch finds none")
    batch = BATCH if args.batch == "demo" else args.batch
    for size in args.sizes or SIZES:
        with random_model(qwen3_config(size), seed=config.seed) as path:
            for tokens in MICRO_BATCH_TOKENS:
                case = _case(args, config, path, batch)
                model = case.model.model_copy(update={"path": f"qwen3-{size}", "dtype": "bfloat16"})
                update = {"model": model, "device": "cuda", "micro_batch_tokens": tokens}
                yield case.model_copy(update=update), batch


def _check_plan(args: argparse.Namespace, rest: Sequence[str]) -> int:
    from rich.console import Console

    from gspo_ray.bench.models import random_model
    from gspo_ray.bench.plan import check_plan, render
    from gspo_ray.models import resolve_model
    from gspo_ray.planning.lengths import assumed_lengths

    config = load_config(args.config, rest)
    lengths = assumed_lengths(config, prompt=args.prompt_tokens, completion=args.completion_tokens)
    if min(args.tokens) <= lengths.prompt:
        raise ConfigError(f"--tokens {min(args.tokens)} must be more than a prompt's {lengths.prompt}")
    with ExitStack() as stack:
        if args.model_config is None:
            path = resolve_model(config.model.path, config.model.revision)
        else:
            path = stack.enter_context(random_model(_model_config(args.model_config), seed=config.seed))
        case = _empty_case(config, path)
        rows = check_plan(case, lengths, group_size=config.rollout.group_size, tokens=args.tokens)
    render(rows, Console())
    if args.json is not None:
        _write(rows, args.json)
    return 0


def _model_config(folder: str) -> dict[str, Any]:
    try:
        return dict(json.loads((Path(folder) / "config.json").read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise ConfigError(f"--model-config {folder}: no config.json that can be read ({error})") from error


def _empty_case(config: RunConfig, model_path: str) -> Case:
    """Without a batch."""
    from gspo_ray.bench.case import Case

    return Case(
        variant="",
        model_path=model_path,
        model=config.model,
        device=config.cluster.device,
        threads=config.learner.cpu_threads,
        micro_batch_tokens=config.learner.micro_batch_tokens,
        temperature=config.rollout.temperature,
        gradient_checkpointing=config.learner.gradient_checkpointing,
        seed=config.seed,
        groups=[],
        trl_rows=1,
        memory_limit=None,
    )


def _case(args: argparse.Namespace, config: RunConfig, model_path: str, batch: str) -> Case:
    from gspo_ray.bench.batches import load_batch
    from gspo_ray.bench.models import vocabulary

    groups = load_batch(batch, vocabulary=vocabulary(model_path, config.model.revision), seed=config.seed)
    rows = sum(len(completions) for _, completions in groups)
    return _empty_case(config, model_path).model_copy(update={"groups": groups, "trl_rows": min(rows, args.trl_rows)})


def _measured(case: Case, batch: str, variants: Sequence[str], args: argparse.Namespace) -> dict[str, Any]:
    from gspo_ray.bench.hardware import available_bytes
    from gspo_ray.bench.learner import run_bench
    from gspo_ray.bench.report import as_json

    with _progress(args.repeats * (len(variants) + 1)) as advance:
        result = run_bench(
            case,
            batch=batch,
            variants=variants,
            rounds=args.repeats,
            profile=args.profile,
            free_bytes=available_bytes if case.device == "cpu" else None,
            on_done=advance,
        )
    return as_json(result)


@contextmanager
def _progress(total: int) -> Iterator[Any]:
    """On the terminal's other stream, so that the table can be piped."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("measuring", total=total)
        yield lambda text: progress.update(task, advance=1, description=f"{text} done")


def _write(report: Any, path: Path) -> None:
    try:
        path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--json {path}: cannot be written ({error.strerror})") from error
