"""One folder a run: where everything that it did can be looked at afterwards, and where a resume finds it.

<storage_path>/<name>-<date>-<time>/
    config.yaml  mlflow_run.json  metrics.jsonl  rollouts/  checkpoints/  rewards.png  summary.json
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path

from gspo_ray.checkpoint import complete_checkpoints
from gspo_ray.config import RunConfig
from gspo_ray.config_io import dump_config, flatten, load_config
from gspo_ray.errors import CheckpointError

# Changing these on resume would make the state of the run mean something else.
_FIXED = ("seed", "model.", "data.", "rollout.group_size", "rollout.temperature", "algo.num_minibatches")


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
        (path / "checkpoints").mkdir()
        run_dir = RunDir(path)
        run_dir.write_config(config)
        return run_dir


def find_run_dir(config: RunConfig, where: str) -> RunDir:
    """`where`: a run folder, or "latest" for the newest run of this name that has a complete checkpoint.

    Raises CheckpointError when there is none, or when the config asks for another experiment than the one saved.
    """
    root = Path(config.storage_path).expanduser().resolve()
    candidates = sorted(root.glob(f"{config.name}-*"), reverse=True) if where == "latest" else [Path(where).resolve()]
    for path in candidates:
        if complete_checkpoints(path / "checkpoints"):
            _refuse_other_experiment(path, config)
            return RunDir(path)
    what = f"no run named {config.name!r} under {root}" if where == "latest" else f"{where}"
    raise CheckpointError(f"{what} has a complete checkpoint to resume from")


def _refuse_other_experiment(path: Path, config: RunConfig) -> None:
    saved, wanted = flatten(load_config(path / "config.yaml")), flatten(config)
    changed = [key for key in wanted if key.startswith(_FIXED) and saved.get(key) != wanted[key]]
    if changed:
        details = ", ".join(f"{key} was {saved.get(key)!r} and is {wanted[key]!r}" for key in changed)
        raise CheckpointError(f"cannot resume {path}: {details}. Start a new run, or set the old values.")
