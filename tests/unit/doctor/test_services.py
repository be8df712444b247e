import sqlite3
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from gspo_ray.config import RunConfig
from gspo_ray.doctor.finding import Level
from gspo_ray.doctor.services import check_adapted_layers, check_base_model, check_hub, check_mlflow, mlflow_uri
from gspo_ray.errors import ModelError


def test_a_store_that_does_not_exist_is_not_made(tmp_path: Path) -> None:
    finding = check_mlflow(f"sqlite:///{tmp_path / 'runs' / 'mlflow.db'}")
    assert finding.level is Level.PASS
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_another_program_holds_or_that_is_none_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gspo_ray.doctor.services.TIMEOUT_S", 0.2)
    file = tmp_path / "mlflow.db"
    with sqlite3.connect(file) as holder:
        holder.execute("CREATE TABLE experiments (name)")
        holder.commit()
        assert check_mlflow(f"sqlite:///{file}").level is Level.PASS
        holder.execute("BEGIN EXCLUSIVE")
        finding = check_mlflow(f"sqlite:///{file}")
    assert finding.level is Level.FAIL
    assert "locked" in finding.found
    file.write_bytes(b"no database at all, but longer than the header of one would be " * 4)
    assert check_mlflow(f"sqlite:///{file}").level is Level.FAIL


class Server(BaseHTTPRequestHandler):
    """MLflow's answers to what the client asks."""

    version, status = "3.17.2", 200

    def do_GET(self) -> None:
        self.respond(200, self.version.encode())

    def do_POST(self) -> None:
        self.respond(self.status, b"{}" if self.status == 200 else b"You are not authenticated.")

    def respond(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name in ("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "MLFLOW_HTTP_REQUEST_TIMEOUT"):
        monkeypatch.setenv(name, "1")  # put back afterwards, whatever the check sets
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as http:
        Thread(target=http.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{http.server_port}"
        http.shutdown()


def test_a_server_that_answers_passes_and_its_password_is_not_shown(server: str) -> None:
    finding = check_mlflow(f"http://me:s3cret-word@{server}")
    assert finding.level is Level.PASS
    assert "s3cret-word" not in finding.found
    assert server in finding.found


def test_a_server_of_another_major_version_warns(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Server, "version", "2.22.0")
    assert check_mlflow(f"http://{server}").level is Level.WARN


def test_a_server_that_wants_a_login_fails(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Server, "status", 401)
    finding = check_mlflow(f"http://{server}")
    assert finding.level is Level.FAIL
    assert "401" in finding.found
    assert "MLFLOW_TRACKING_USERNAME" in finding.fix


def test_no_server_fails(server: str) -> None:
    finding = check_mlflow("http://127.0.0.1:9")  # the discard port: nobody listens
    assert finding.level is Level.FAIL


def test_the_store_is_the_one_that_a_run_would_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    config = RunConfig(storage_path=str(tmp_path))
    assert mlflow_uri(config) == f"sqlite:///{tmp_path}/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://there")
    assert mlflow_uri(config) == "http://there"


def test_a_local_model_needs_no_hub_and_a_missing_one_is_refused_with_the_fix(tmp_path: Path) -> None:
    assert check_hub("smollm2-135m", None).level is Level.SKIP
    assert "GB" in check_base_model("smollm2-135m", None).found
    with pytest.raises(ModelError, match="no folder"):
        check_base_model(str(tmp_path / "none"), None)


def test_a_model_that_is_not_cached_offline_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    finding = check_hub("nobody/nothing-of-this-name", None)
    assert finding.level is Level.FAIL
    assert "HF_HUB_OFFLINE" in finding.found


def test_a_model_that_the_hub_does_not_give_fails_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    class ConnectError(Exception):  # of the library that carries its requests: neither the hub's own, nor an OSError
        pass

    def refuse(*_: object, **__: object) -> None:
        raise ConnectError("Name or service not known")

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", refuse)
    finding = check_hub("nobody/nothing-of-this-name", None)
    assert finding.level is Level.FAIL
    assert "ConnectError: Name or service not known" in finding.found
    assert "HF_TOKEN" in finding.fix


def test_layers_that_cannot_be_adapted_are_refused_by_name() -> None:
    cpu = {"cluster": {"device": "cpu"}}
    assert "q_proj" in check_adapted_layers(RunConfig.model_validate(cpu)).found
    wrong = cpu | {"model": {"lora": {"target_modules": ["query"]}}}
    with pytest.raises(ModelError, match="'query'"):
        check_adapted_layers(RunConfig.model_validate(wrong))
