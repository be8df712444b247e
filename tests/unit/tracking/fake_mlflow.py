"""A client that can be switched off, and remembers what reached it."""

from __future__ import annotations

import threading
from types import SimpleNamespace

from mlflow.exceptions import MlflowException


class FakeClient:
    """The methods of MlflowClient that the tracker uses."""

    def __init__(self):
        self.down = threading.Event()
        self.broken_artifacts = False
        self.hang: threading.Event | None = None
        self.tried = threading.Event()
        self.calls: list[tuple[str, object]] = []

    def _reach(self, name, detail=None):
        self.tried.set()
        if self.hang:
            self.hang.wait(30)
        if self.down.is_set():
            raise MlflowException("API request failed") from ConnectionRefusedError("Connection refused")
        self.calls.append((name, detail))

    def get_experiment_by_name(self, name):
        self._reach("get_experiment_by_name", name)
        return SimpleNamespace(experiment_id="1", lifecycle_stage="active")

    def create_run(self, experiment_id, tags, run_name):
        self._reach("create_run", run_name)
        return SimpleNamespace(info=SimpleNamespace(run_id="run-1"))

    def search_runs(self, experiment_ids, query, max_results):
        self._reach("search_runs", query)
        return []

    def get_run(self, run_id):
        self._reach("get_run", run_id)
        return SimpleNamespace(info=SimpleNamespace(run_id=run_id, experiment_id="1"))

    def log_batch(self, run_id, metrics=(), params=(), tags=(), synchronous=None):
        self._reach("log_batch", metrics[0].step if metrics else None)

    def log_text(self, run_id, text, artifact_file):
        if self.broken_artifacts:
            raise PermissionError("no credentials for the bucket")
        self._reach("log_text", artifact_file)

    def set_tag(self, run_id, key, value):
        self._reach("set_tag", key)

    def set_terminated(self, run_id, status):
        self._reach("set_terminated", status)

    def steps(self):
        return [detail for name, detail in self.calls if name == "log_batch" and detail is not None]
