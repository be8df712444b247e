"""Where a local MLflow store keeps its things, and how to keep it quiet."""

from __future__ import annotations

import logging
from pathlib import Path

SQLITE = "sqlite:///"


def artifact_location(uri: str) -> str | None:
    """For a local sqlite store the folder `mlartifacts` beside it, as a file URI; None lets a server choose."""
    database = _sqlite_path(uri)
    return (database.parent / "mlartifacts").as_uri() if database else None


def _sqlite_path(uri: str) -> Path | None:
    return Path(uri.removeprefix(SQLITE).split("?")[0]).resolve() if uri.startswith(SQLITE) else None


def make_sqlite_folder(uri: str) -> None:
    """MLflow makes the database file but not the folder it lies in."""
    if database := _sqlite_path(uri):
        database.parent.mkdir(parents=True, exist_ok=True)


def quiet_logs() -> None:
    """Table creation and migrations are of no interest here, and errors arrive through `warn`."""
    for name in ("alembic", "mlflow.store.tracking", "urllib3.connectionpool"):
        logging.getLogger(name).setLevel(logging.ERROR)
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)  # a traceback for every locked database
