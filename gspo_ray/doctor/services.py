"""What a run reaches for: the base model and its hub, the layers to adapt, the MLflow store."""

from __future__ import annotations

import os
import sqlite3
import urllib.request
from contextlib import closing
from importlib import metadata
from pathlib import Path

from gspo_ray.config import RunConfig
from gspo_ray.doctor.finding import Finding, Level, Problem, judged
from gspo_ray.doctor.redact import without_credentials
from gspo_ray.doctor.storage import check_storage_path
from gspo_ray.models import resolve_model

TIMEOUT_S = 10
GB = 1e9
SQLITE = "sqlite:///"


def check_base_model(path: str, revision: str | None) -> Finding:
    """Raises ModelError, whose message tells the fix, as every run on this node would."""
    place = resolve_model(path, revision)
    if not Path(place).is_dir():
        return Finding("base model", Level.PASS, f"{place} on the Hugging Face hub")
    size = sum(file.stat().st_size for file in Path(place).glob("*.safetensors"))
    return Finding("base model", Level.PASS, f"{place} ({size / GB:.2f} GB)")


def check_hub(path: str, revision: str | None) -> Finding:
    """A model that is cached needs no hub; one that is not needs it, and the right to read it."""
    place = resolve_model(path, revision)
    if Path(place).is_dir():
        return Finding("model hub", Level.SKIP, "the model is a local folder")
    from huggingface_hub import HfApi, constants, snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(place, revision=revision, local_files_only=True))
        if (folder / "config.json").exists() and any(folder.glob("*.safetensors")):
            return Finding("model hub", Level.PASS, f"{place} is in the cache, {folder}")
    except LocalEntryNotFoundError:
        pass
    fix = "Run `hf auth login` or set HF_TOKEN, accept the model's terms on its page, or copy the model to this node."
    if constants.HF_HUB_OFFLINE:
        text = f"HF_HUB_OFFLINE is set and {place} is not in {constants.HF_HUB_CACHE}"
        return Finding("model hub", Level.FAIL, text, "Unset it, or fill the cache: hf download " + place)
    try:
        info = HfApi().model_info(place, revision=revision, timeout=TIMEOUT_S)
    except Exception as error:  # no such model, no right to it; no way there: of whatever library carries its requests
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        return Finding("model hub", Level.FAIL, f"{place} is not cached and the hub does not give it: {reason}", fix)
    return Finding("model hub", Level.PASS, f"{place} at {str(info.sha)[:12]}, not cached yet: a run downloads it")


def check_adapted_layers(config: RunConfig) -> Finding:
    """Raises ModelError for a model or layer that learner or engine cannot adapt."""
    from gspo_ray.learner.support import check_model

    layers = check_model(
        resolve_model(config.model.path, config.model.revision),
        config.model.revision,
        config.model.lora.target_modules,
        architecture=config.rollout.engine.architecture,
        device=config.cluster.device,
    )
    return Finding("adapted layers", Level.PASS, ", ".join(layers))


def mlflow_uri(config: RunConfig) -> str:
    """As `train` chooses it."""
    local = f"{SQLITE}{Path(config.storage_path).expanduser().resolve() / 'mlflow.db'}"
    return config.tracking.mlflow_uri or os.environ.get("MLFLOW_TRACKING_URI") or local


def check_mlflow(uri: str) -> Finding:
    return _sqlite(Path(uri.removeprefix(SQLITE).split("?")[0])) if uri.startswith(SQLITE) else _server(uri)


def _sqlite(database: Path) -> Finding:
    if not database.exists():
        folder = check_storage_path(database.absolute().parent)
        found = f"{database} can be made" if folder.level is Level.PASS else folder.found
        return Finding("MLflow", folder.level, found, folder.fix)
    try:
        with closing(sqlite3.connect(database, timeout=TIMEOUT_S, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")  # the write lock, given back with nothing written
            connection.execute("SELECT name FROM sqlite_master").fetchall()
            connection.execute("ROLLBACK")
    except sqlite3.Error as error:
        fix = "End what holds it open, or move it away: a run makes a new one. On NFS use an MLflow server."
        return Finding("MLflow", Level.FAIL, f"{database} cannot be written: {error}", fix)
    return Finding("MLflow", Level.PASS, f"{database} can be written")


def _server(uri: str) -> Finding:
    """Asked as a run asks it, credentials and all; nothing is written there."""
    name = without_credentials(uri)
    os.environ.update(MLFLOW_HTTP_REQUEST_MAX_RETRIES="1", MLFLOW_HTTP_REQUEST_TIMEOUT=str(TIMEOUT_S))
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    try:
        MlflowClient(uri).search_experiments(max_results=1)
    except (MlflowException, OSError) as error:
        reason = without_credentials(" ".join(str(error).split()))[:300]
        fix = "Start the server, mend tracking.mlflow_uri, or set MLFLOW_TRACKING_USERNAME and _PASSWORD or _TOKEN."
        return Finding("MLflow", Level.FAIL, f"{name}: {reason}", fix)
    theirs, ours, problems = _server_version(uri), metadata.version("mlflow"), []
    if theirs is not None and theirs.split(".")[0] != ours.split(".")[0]:
        text = f"the server is MLflow {theirs}, this node has {ours}"
        problems.append(Problem(Level.WARN, text, "Use the same major version on both sides."))
    return judged("MLflow", f"{name} answers, version {theirs or 'unknown'}", problems)


def _server_version(uri: str) -> str | None:
    """None where the server keeps it to itself (hosted ones, and those behind a login)."""
    if not uri.startswith(("http://", "https://")):
        return None
    try:
        with urllib.request.urlopen(f"{uri.rstrip('/')}/version", timeout=TIMEOUT_S) as answer:
            return str(answer.read(40).decode("ascii", errors="replace")).strip()
    except (OSError, ValueError):
        return None
