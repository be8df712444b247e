"""`gspo-ray doctor`."""

from __future__ import annotations

import argparse
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gspo_ray.config import RunConfig
from gspo_ray.config_io import load_config
from gspo_ray.errors import ResourceError

if TYPE_CHECKING:
    from gspo_ray.doctor.finding import Finding

HELP = "check every node of the cluster (or this machine) before a run, and say how to mend what is wrong"
EPILOG = (
    "Exit code 0: nothing failed; 2: something did. Any key of the config can be set as a flag: --cluster.device cpu. "
    "Without a config and cluster.device, GPUs are looked at where there are some."
)

Progress = Callable[[str, int, int], None]  # node, checks done, of how many


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", help="YAML file of the run to come; without it the defaults and flags alone")
    parser.add_argument("--address", help="Ray address (default: cluster.address, RAY_ADDRESS, else this machine)")
    parser.add_argument("--quick", action="store_true", help="without the engine's self-test, which takes a minute")
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    parser.add_argument(
        "--bundle",
        type=Path,
        metavar="FILE.zip",
        help="also write findings, config, versions and the ends of the logs of this machine there, for a bug report; "
        "tokens, passwords and home folders are taken out",
    )


def run(args: argparse.Namespace, rest: Sequence[str]) -> int:
    config = _with_absolute_paths(load_config(args.config, rest))
    guess = args.config is None and "device" not in config.cluster.model_fields_set

    from rich.console import Console

    from gspo_ray.actors.cluster import joined_cluster
    from gspo_ray.actors.node_checks import examine_cluster, list_nodes, total_gpus
    from gspo_ray.doctor.bundle import write_bundle
    from gspo_ray.doctor.checks import ray_temp
    from gspo_ray.doctor.report import as_json, has_failed, render

    console = Console(stderr=True)
    nodes: list[dict[str, Any]] = []
    with _progress(console) as progress:
        try:
            with joined_cluster(args.address or config.cluster.address, say=console.print):
                if guess:
                    config = _on(config, "cuda" if total_gpus() else "cpu")
                report = examine_cluster(config, quick=args.quick, progress=progress)
                nodes = list_nodes()
        except ResourceError as error:
            report = _without_ray(_on(config, "cpu") if guess else config, error, args.quick, progress)
    if args.json:
        print(as_json(report))
    else:
        render(report, Console())
    if args.bundle is not None:
        write_bundle(args.bundle, findings=as_json(report), config=config, nodes=nodes, ray_temp=ray_temp())
        print(f"{args.bundle}: read it before you send it", file=sys.stderr)
    return 2 if has_failed(report) else 0


def _without_ray(config: RunConfig, error: ResourceError, quick: bool, progress: Progress) -> dict[str, list[Finding]]:
    """This machine alone: where Ray does not start, a doctor is wanted most."""
    from gspo_ray.doctor.checks import Place, checks
    from gspo_ray.doctor.finding import Finding, Level
    from gspo_ray.doctor.report import CLUSTER
    from gspo_ray.doctor.runner import examine

    fix = "Ray must have one version everywhere; a cluster with token authentication wants RAY_AUTH_MODE and its token."
    node, total, findings = socket.gethostname(), len(checks(config, Place(), quick=quick)), []
    for finding in examine(config, Place(), quick=quick):
        findings.append(finding)
        progress(node, len(findings), total)
    return {CLUSTER: [Finding("Ray", Level.FAIL, " ".join(str(error).split()), fix)], node: findings}


def _with_absolute_paths(config: RunConfig) -> RunConfig:
    """Nodes work in other folders than this process; ~ is each node's own."""
    config = config.model_copy(update={"storage_path": str(Path(config.storage_path).expanduser().absolute())})
    if (folder := Path(config.model.path)).is_dir():
        model = config.model.model_copy(update={"path": str(folder.absolute())})
        config = config.model_copy(update={"model": model})
    return config


def _on(config: RunConfig, device: str) -> RunConfig:
    return config.model_copy(update={"cluster": config.cluster.model_copy(update={"device": device})})


@contextmanager
def _progress(console: object) -> Iterator[Progress]:
    """One line a node, on the terminal's other stream."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bars(*columns, console=console, transient=True) as bars:  # type: ignore[arg-type]
        tasks: dict[str, object] = {}

        def progress(node: str, done: int, of: int) -> None:
            if node not in tasks:
                tasks[node] = bars.add_task(node, total=of)
            bars.update(tasks[node], completed=done)  # type: ignore[arg-type]

        yield progress
