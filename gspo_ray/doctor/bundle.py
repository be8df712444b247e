"""One file for a bug report: findings, config, versions, nodes, ends of logs; every text without its secrets."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

from gspo_ray.config import RunConfig
from gspo_ray.config_io import dump_config
from gspo_ray.doctor.redact import redactor, shown_environment
from gspo_ray.errors import ConfigError

TAIL_BYTES = 64 * 1024  # of a log
SESSIONS, LOGS = 2, 40  # newest ones of Ray, and files of each
RUN_FILES = ("config.yaml", "metrics.jsonl", "summary.json")  # no completions: they are the user's data


def write_bundle(
    file: Path,
    *,
    findings: str,
    config: RunConfig,
    nodes: Sequence[Mapping[str, Any]],
    ray_temp: Path,
    redact: Callable[[str], str] | None = None,
) -> None:
    """`findings` as JSON, `nodes` as Ray lists them. Raises ConfigError when the file cannot be written."""
    redact = redact or redactor()
    parts: dict[str, str] = {
        "findings.json": findings,
        "config.yaml": dump_config(config),
        "environment.json": _json(_environment()),
        "nodes.json": _json(list(nodes)),
    }
    run = _newest_run(Path(config.storage_path))
    if run is not None:
        parts |= {f"run/{run.name}/{name}": _tail(run / name) for name in RUN_FILES if (run / name).is_file()}
    parts |= {f"ray/{log.parent.parent.name}/{log.name}": _tail(log) for log in _ray_logs(ray_temp)}
    try:
        with ZipFile(file, "w", ZIP_DEFLATED) as archive:
            for name, text in parts.items():
                archive.writestr(redact(name), redact(text))
    except OSError as error:
        raise ConfigError(f"--bundle {file} cannot be written: {error.strerror or error}") from error


def _environment() -> dict[str, Any]:
    packages = {item.name: item.version for item in metadata.distributions() if item.name}
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": dict(sorted(packages.items(), key=lambda pair: pair[0].lower())),
        "environment": shown_environment(),
    }


def _newest_run(storage: Path) -> Path | None:
    return max((file.parent for file in storage.glob("*/config.yaml")), key=_changed, default=None)


def _ray_logs(root: Path) -> Iterable[Path]:
    """Of this machine, one session after the other, those written last."""
    sessions = [path for path in root.glob("session_*") if path.is_dir() and not path.is_symlink()]
    for session in sorted(sessions, key=_changed)[-SESSIONS:]:
        logs = [path for path in (session / "logs").glob("*.*") if path.is_file() and path.stat().st_size]
        yield from sorted(logs, key=_changed)[-LOGS:]


def _tail(file: Path) -> str:
    """Whole lines."""
    try:
        with file.open("rb") as stream:
            size = stream.seek(0, 2)
            stream.seek(max(0, size - TAIL_BYTES))
            data = stream.read(TAIL_BYTES)
    except OSError as error:
        return f"cannot be read: {error}"
    if size > TAIL_BYTES:
        data = data.partition(b"\n")[2]
    return data.decode("utf-8", errors="replace")


def _changed(path: Path) -> float:
    return path.stat().st_mtime


def _json(tree: Any) -> str:
    return json.dumps(tree, indent=2, ensure_ascii=False, default=str)
