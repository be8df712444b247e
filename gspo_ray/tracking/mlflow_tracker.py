"""The run in MLflow, delivered in the background. The only file that imports mlflow."""

from __future__ import annotations

import json
import os
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

# Read by mlflow from the environment, partly when it is imported; what the person has set wins.
for _name, _value in {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",  # mlflow would wait 120 s and retry 7 times: the queue retries instead
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}.items():
    os.environ.setdefault(_name, _value)

from mlflow import MlflowClient  # noqa: E402
from mlflow.entities import Metric, Param, RunTag  # noqa: E402
from mlflow.exceptions import MlflowException  # noqa: E402
from mlflow.utils.validation import MAX_PARAM_VAL_LENGTH, MAX_PARAMS_TAGS_PER_BATCH  # noqa: E402

from gspo_ray.algo.record import StepRecord  # noqa: E402
from gspo_ray.commands import typed  # noqa: E402
from gspo_ray.tracking.delivery import Delivery  # noqa: E402
from gspo_ray.tracking.mlflow_store import artifact_location, make_sqlite_folder, quiet_logs  # noqa: E402
from gspo_ray.tracking.mlflow_values import as_yaml, finite, flatten, rollout_table, shorten  # noqa: E402
from gspo_ray.types import RunState, StepMetrics  # noqa: E402

CLOSE_TIMEOUT_S = {"FINISHED": 20.0, "FAILED": 20.0, "KILLED": 3.0}  # `ray job stop` leaves 3 s before SIGKILL
LOGGED_TABLES_TAG = "mlflow.loggedArtifacts"  # the UI shows the JSON files named here as tables
MAX_LOGGED_TABLES = 60  # a tag holds 8000 characters
CREATE_KEY_TAG = "gspo_ray.create_key"
_REFUSALS = {"INVALID_PARAMETER_VALUE", "BAD_REQUEST", "RESOURCE_DOES_NOT_EXIST", "RESOURCE_ALREADY_EXISTS"}
_MAX_KEPT_FILES = 500  # tables wait in memory while the server is away; the run directory has all of them


class MlflowTracker:
    """One MLflow run, addressed by its id. No call waits for the server.

    Params, metrics and tags go through one in-order queue, files through another, so that a broken artifact store or a
    large adapter never holds up the metrics. `run_id` continues an earlier run.
    Example: MlflowTracker("sqlite:///runs/mlflow.db", "gspo_ray", "demo", warn=print)
    """

    def __init__(
        self,
        uri: str,
        experiment: str,
        run_name: str,
        *,
        run_id: str | None = None,
        tags: Mapping[str, str] | None = None,
        warn: Callable[[str], None],
        client_factory: Callable[[str], MlflowClient] | None = None,
        first_wait_s: float = 1.0,
    ) -> None:
        quiet_logs()
        self.uri = uri
        self._experiment = experiment
        self._run_name = run_name
        self._resume_id = run_id
        self._tags = dict(tags or {})
        self._warn = warn
        self._make_client = client_factory or (lambda uri: MlflowClient(tracking_uri=uri))
        self._create_key = uuid.uuid4().hex
        self._client: MlflowClient | None = None
        self._open_id: str | None = None
        self._experiment_id: str | None = None
        self._old_params: dict[str, str] = {}
        self._tables: list[str] = []
        self._tried_to_create = False
        self._opened = threading.Event()
        self._settled = threading.Event()
        self._closed = False
        self._records = Delivery("MLflow", warn=warn, is_permanent=_is_refusal, first_wait_s=first_wait_s)
        self._files = Delivery(
            "MLflow's artifact store",
            warn=warn,
            is_permanent=_is_refusal,
            ready=self._opened,
            max_items=_MAX_KEPT_FILES,
            first_wait_s=first_wait_s,
        )
        self._records.put("the start of the run", self._open)

    @property
    def run_id(self) -> str | None:
        """The run's id, waiting up to 30 s for the first answer. While the server is away: the id given, or None."""
        self._settled.wait(30.0)
        return self._open_id or self._resume_id

    @property
    def undelivered(self) -> int:
        """Records and files that MLflow does not have (yet)."""
        return self._records.pending + self._files.pending + self._records.lost + self._files.lost

    @property
    def how_to_open(self) -> str:
        """The address of the run, or the command that shows a local store."""
        if not self.uri.startswith("http"):
            return typed(f"mlflow ui --backend-store-uri {self.uri}")
        base = self.uri.rstrip("/")
        if self._opened.is_set():
            return f"{base}/#/experiments/{self._experiment_id}/runs/{self._open_id}"
        return base

    def log_config(self, config: Mapping[str, Any]) -> None:
        """The resolved config as params (long values cut) and, whole, as artifact config.yaml."""
        params = {name: shorten(value, MAX_PARAM_VAL_LENGTH) for name, value in flatten(config).items()}
        text = as_yaml(config)
        self._records.put("the config", lambda: self._send_params(params))
        name = "config.yaml" if self._resume_id is None else f"config-resumed-{time.strftime('%Y%m%d-%H%M%S')}.yaml"
        self._files.put(name, lambda: self._open().log_text(self._open_id, text, name))

    def log_step(self, metrics: StepMetrics) -> None:
        """All numbers of the step in one call. NaN and infinite ones are left out and counted."""
        now = int(time.time() * 1000)  # fixed here: sent twice, a point is still the same point
        values, dropped = finite(metrics.values)
        notes = list(metrics.notes)
        if dropped:
            notes.append(f"not finite, left out of MLflow: {', '.join(dropped)}")
        entities = [Metric(name, value, now, metrics.step) for name, value in values.items()]
        tags = [RunTag("gspo_ray.last_note", f"step {metrics.step}: {' '.join(notes)}")] if notes else []
        self._records.put(
            f"step {metrics.step}",
            lambda: self._open().log_batch(self._open_id, metrics=entities, tags=tags, synchronous=True),
        )
        if notes:
            text = "\n".join(notes) + "\n"
            name = f"notes/step_{metrics.step:06d}.txt"
            self._files.put(name, lambda: self._open().log_text(self._open_id, text, name))

    def log_rollouts(self, record: StepRecord) -> None:
        """A table of a few completions: the best and the worst of each group."""
        table = rollout_table(record)
        if table is not None:
            name = f"rollouts/step_{record.step:06d}.json"
            self._files.put(name, lambda: self._send_table(table, name))

    def log_evaluation(self, step: int, summary: Mapping[str, Any], values: Mapping[str, float]) -> None:
        """Its numbers as metrics of the step, the summary as an artifact."""
        now = int(time.time() * 1000)
        entities = [Metric(name, value, now, step) for name, value in finite(values)[0].items()]
        what = f"the evaluation of step {step}"
        self._records.put(what, lambda: self._open().log_batch(self._open_id, metrics=entities, synchronous=True))
        text, name = json.dumps(summary, indent=2), f"evaluations/step_{step:06d}.json"
        self._files.put(name, lambda: self._open().log_text(self._open_id, text, name))

    def log_checkpoint(self, state: RunState, path: str) -> None:
        """Where the checkpoint is; if it is local, its adapter folder (`path`/adapter, else `path`) as an artifact."""
        tags = [
            RunTag("checkpoint.path", path),
            RunTag("checkpoint.step", str(state.step)),
            RunTag("checkpoint.adapter_sha256", state.version.sha256),
        ]
        what = f"the checkpoint of step {state.step}"
        self._records.put(what, lambda: self._open().log_batch(self._open_id, tags=tags, synchronous=True))
        folder = Path(path) / "adapter" if (Path(path) / "adapter").is_dir() else Path(path)
        if folder.is_dir():
            target = f"checkpoints/step_{state.step:06d}"
            self._files.put(what, lambda: self._send_folder(folder, target))

    def log_artifact(self, local_path: str | Path, artifact_path: str | None = None) -> None:
        """Any file, into the folder `artifact_path` of the run's artifacts."""
        path = str(local_path)
        self._files.put(Path(path).name, lambda: self._open().log_artifact(self._open_id, path, artifact_path))

    def close(self, status: str, *, timeout_s: float | None = None) -> None:
        """Set the status and send what is waiting, within 20 s (KILLED: 3 s, status first); say what is missing."""
        bound_s = CLOSE_TIMEOUT_S[status] if timeout_s is None else timeout_s
        if self._closed:
            return
        self._closed = True
        deadline = time.monotonic() + bound_s
        if self._records.is_down:
            self._warn(f"MLflow does not answer; waiting up to {bound_s:.0f} s for it before the run ends.")

        def send_status() -> None:
            self._open().set_terminated(self._open_id, status)

        if status == "KILLED":
            self._records.put("the end of the run", send_status, first=True)
            self._records.drain(bound_s)
        elif self._records.drain(bound_s) and self._opened.is_set():
            self._files.drain(deadline - time.monotonic() - 0.2 * bound_s)  # the rest is for the status
        if status != "KILLED":
            self._records.put("the end of the run", send_status)
            self._records.drain(deadline - time.monotonic())
        if self._opened.is_set():
            self._files.drain(deadline - time.monotonic())
        self._records.stop()
        self._files.stop()
        if missing := self.undelivered:
            names = [*self._records.waiting, *self._files.waiting]
            some = f" ({', '.join(names[:4])}{', ...' if len(names) > 4 else ''})" if names else ""
            self._warn(
                f"MLflow did not get {missing} items of this run{some}. "
                "The run directory has all numbers and completions."
            )

    # Everything below runs in the sending threads.

    def _open(self) -> MlflowClient:
        """The client of the open run; the first call (records thread) makes or reopens the run."""
        if self._opened.is_set() and self._client is not None:
            return self._client
        try:
            make_sqlite_folder(self.uri)
            client = self._client = self._client or self._make_client(self.uri)
            run = self._reopen(client) if self._resume_id else None
            self._open_id = run or self._create(client)
            self._experiment_id = client.get_run(self._open_id).info.experiment_id
            self._opened.set()
        finally:
            self._settled.set()
        return client

    def _reopen(self, client: MlflowClient) -> str | None:
        try:
            run = client.get_run(self._resume_id)
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            self._warn(f"MLflow has no run {self._resume_id} any more; a new run is made for the rest.")
            return None
        if run.info.lifecycle_stage == "deleted":
            client.restore_run(run.info.run_id)
            self._warn(f"MLflow run {run.info.run_id} was in the trash; it is restored.")
        client.update_run(run.info.run_id, status="RUNNING")
        self._old_params = dict(run.data.params)
        self._tables = [entry["path"] for entry in json.loads(run.data.tags.get(LOGGED_TABLES_TAG, "[]"))]
        return str(run.info.run_id)

    def _create(self, client: MlflowClient) -> str:
        experiment_id = self._find_experiment(client)
        if self._tried_to_create:  # the answer to an earlier try may have been lost, not the run
            query = f"tags.`{CREATE_KEY_TAG}` = '{self._create_key}'"
            if found := client.search_runs([experiment_id], query, max_results=1):
                return str(found[0].info.run_id)
        self._tried_to_create = True
        tags = self._tags | {CREATE_KEY_TAG: self._create_key}
        return str(client.create_run(experiment_id, tags=tags, run_name=self._run_name).info.run_id)

    def _find_experiment(self, client: MlflowClient) -> str:
        found = client.get_experiment_by_name(self._experiment)
        if found is None:
            try:
                return str(client.create_experiment(self._experiment, artifact_location=artifact_location(self.uri)))
            except MlflowException as error:
                if error.error_code != "RESOURCE_ALREADY_EXISTS":
                    raise
                found = client.get_experiment_by_name(self._experiment)  # another run was faster
                if found is None:
                    raise
        if found.lifecycle_stage == "deleted":
            client.restore_experiment(found.experiment_id)
            self._warn(f"MLflow experiment {self._experiment!r} was in the trash; it is restored.")
        return str(found.experiment_id)

    def _send_params(self, params: Mapping[str, str]) -> None:
        client = self._open()
        changed = [name for name, value in params.items() if self._old_params.get(name, value) != value]
        fresh = [Param(name, value) for name, value in params.items() if name not in self._old_params]
        for start in range(0, len(fresh), MAX_PARAMS_TAGS_PER_BATCH):
            batch = fresh[start : start + MAX_PARAMS_TAGS_PER_BATCH]
            client.log_batch(self._open_id, params=batch, synchronous=True)
        if changed:
            self._warn(
                f"MLflow keeps the first value of a param; changed for the resumed part: {', '.join(changed)} "
                "(see the artifact config-resumed-*.yaml)."
            )

    def _send_table(self, table: str, name: str) -> None:
        client = self._open()
        client.log_text(self._open_id, table, name)
        self._tables = [*(path for path in self._tables if path != name), name][-MAX_LOGGED_TABLES:]
        listing = json.dumps([{"path": path, "type": "table"} for path in self._tables])
        client.set_tag(self._open_id, LOGGED_TABLES_TAG, listing)

    def _send_folder(self, folder: Path, target: str) -> None:
        if not folder.is_dir():
            raise FileNotFoundError(f"{folder} was removed before it could be sent")
        self._open().log_artifacts(self._open_id, str(folder), target)


def _is_refusal(error: Exception) -> bool:
    """Whether sending again cannot help: MLflow said no to the content, or the file is gone."""
    if isinstance(error, MlflowException):
        return error.error_code in _REFUSALS
    if isinstance(error, OSError):  # requests' errors are OSErrors too: connection refused, timeout
        return isinstance(error, FileNotFoundError)
    return isinstance(error, (TypeError, ValueError, KeyError, AttributeError))
