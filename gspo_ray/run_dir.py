"""One folder a run: where everything that it did can be looked at afterwards, and where a resume finds it.

<storage_path>/<name>-<date>-<time>/
    config.yaml  mlflow_run.json  metrics.jsonl  rollouts/  checkpoints/  evaluations.jsonl  eval/
    rewards.png  summary.json
"""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass
from pathlib import Path

from gspo_ray.checkpoint import complete_checkpoints
from gspo_ray.config import RunConfig
from gspo_ray.config_io import dump_config, flatten, load_config
from gspo_ray.errors import CheckpointError, ConfigError

# Changing these on resume would make the state of the run mean something else.
_FIXED = (
    "seed",
    "model.",
    "data.",
    "rollout.group_size",
    "rollout.temperature",
    "algo.num_minibatches",
    "algo.num_epochs",
)


@dataclass(frozen=True, slots=True)
class RunDir:
    path: Path

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def evaluations(self) -> Path:
        return self.path / "eval"

    @property
    def reward_plot(self) -> Path:
        return self.path / "rewards.png"

    @property
    def mlflow_run_id(self) -> str | None:
        file = self.path / "mlflow_run.json"
        return json.loads(file.read_text(encoding="utf-8"))["run_id"] if file.exists() else None

    def remember_mlflow_run(self, run_id: str) -> None:
        (self.path / "mlflow_run.json").write_text(json.dumps({"run_id": run_id}), encoding="utf-8")

    def write_config(self, config: RunConfig) -> None:
        (self.path / "config.yaml").write_text(dump_config(config), encoding="utf-8")


def create_run_dir(config: RunConfig) -> RunDir:
    root = Path(config.storage_path).expanduser().resolve()
    stem, number = f"{config.name}-{time.strftime('%Y%m%d-%H%M%S')}", 0
    while True:
        path = root / (stem if number == 0 else f"{stem}-{number}")
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            number += 1
            continue
        except OSError as error:
            raise ConfigError(f"storage_path {root} cannot be written: {error.strerror} ({path})") from error
        (path / "checkpoints").mkdir()
        run_dir = RunDir(path)
        run_dir.write_config(config)
        return run_dir


def find_run_dir(config: RunConfig, where: str) -> RunDir:
    """`where`: a run folder, or "latest" for the newest run of this name that has a complete checkpoint.

    Raises CheckpointError when there is none, or when the config asks for another experiment than the one saved.
    """
    root = Path(config.storage_path).expanduser().resolve()
    latest = where == "latest"
    for path in _newest_first(root, config.name) if latest else [Path(where).expanduser().resolve()]:
        if complete_checkpoints(path / "checkpoints"):
            _refuse_other_experiment(path, config)
            return RunDir(path)
    if latest:
        raise CheckpointError(f"no run named {config.name!r} under {root} has a complete checkpoint to resume from")
    raise CheckpointError(f"{where} has no complete checkpoint to resume from. Name a run folder of storage_path.")


def _newest_first(root: Path, name: str) -> list[Path]:
    """Runs of exactly this name: those of demo-s1 are none of demo's."""
    found = []
    for path in root.glob(f"{name}-*"):
        if match := re.fullmatch(re.escape(name) + r"-(\d{8}-\d{6})(?:-(\d+))?", path.name):
            found.append((match[1], int(match[2] or 0), path))
    return [path for *_, path in sorted(found, reverse=True)]


def _refuse_other_experiment(path: Path, config: RunConfig) -> None:
    saved, wanted = flatten(load_config(path / "config.yaml")), flatten(config)
    changed = [key for key in wanted if key.startswith(_FIXED) and saved.get(key) != wanted[key]]
    if changed:
        details = ", ".join(f"{key} was {saved.get(key)!r} and is {wanted[key]!r}" for key in changed)
        raise CheckpointError(f"cannot resume {path}: {details}. Start a new run, or set the old values.")
