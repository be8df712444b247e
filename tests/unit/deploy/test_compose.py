"""docker/compose.yaml: its schema, and what a cluster of containers needs to start in order and in private."""

import copy
import json
import re
from typing import Any

import pytest
from jsonschema.validators import validator_for  # type: ignore[import-untyped]

from tests.unit.deploy.files import DOCKER, SCHEMAS, documents

FILE = DOCKER / "compose.yaml"
COMPOSE = documents(FILE)[0]
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
NODES = ("head", "learner", "sampler")


def schema() -> Any:
    spec = json.loads((SCHEMAS / "compose-spec.json").read_text(encoding="utf-8"))
    return validator_for(spec)(spec)


def test_the_file_follows_the_compose_specification() -> None:
    schema().validate(COMPOSE)


def test_a_misspelt_key_is_found() -> None:
    broken = copy.deepcopy(COMPOSE)
    broken["services"]["head"]["health-check"] = {}
    assert not schema().is_valid(broken)


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_waited_for_until_it_is_healthy(name: str) -> None:
    for other, condition in SERVICES[name].get("depends_on", {}).items():
        assert condition == {"condition": "service_healthy"}
        assert "healthcheck" in SERVICES[other] or SERVICES[other]["build"]["target"] == "mlflow"  # in its image


@pytest.mark.parametrize("name", NODES)
def test_every_node_asks_for_the_token_and_is_checked(name: str) -> None:
    service = SERVICES[name]
    assert service["environment"]["RAY_AUTH_MODE"] == "token"
    assert service["environment"]["RAY_AUTH_TOKEN"].startswith("${RAY_AUTH_TOKEN:?")
    assert service["healthcheck"]["test"][:2] == ["CMD", "wget"]
    assert service["shm_size"] == "2gb"
    assert service["image"] == "gspo-ray:0.1.0-cpu"


def test_ray_takes_the_labels_and_every_group_is_there() -> None:
    from ray._private.label_utils import parse_node_labels_string

    labels = [re.findall(r"--labels=(\S+)", SERVICES[name]["command"])[0] for name in NODES]
    parsed = [parse_node_labels_string(text) for text in labels]
    assert {label["gspo-ray/group"] for label in parsed} == {"reward", "learner", "sampler"}
    for name in ("learner", "sampler"):
        assert "--address=head:6379" in SERVICES[name]["command"]
    assert "--port=6379" in SERVICES["head"]["command"]


def test_only_the_head_writes_runs() -> None:
    assert [name for name, service in SERVICES.items() if "runs:/runs" in service.get("volumes", [])] == ["head"]


def test_nothing_is_reachable_from_outside_this_machine() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert ports == ["127.0.0.1:8265:8265", "127.0.0.1:5000:5000"]
    assert COMPOSE["networks"]["stores"] == {"internal": True}
    on_ray = {name for name, service in SERVICES.items() if "ray" in service["networks"]}
    assert on_ray == {*NODES, "mlflow"}


def test_a_secret_that_is_not_set_stops_compose() -> None:
    variables = set(re.findall(r"\$\{([^}]*)\}", FILE.read_text(encoding="utf-8")))
    assert {variable.split(":?")[0] for variable in variables} == {
        "RAY_AUTH_TOKEN",
        "POSTGRES_PASSWORD",
        "S3_SECRET_KEY",
    }
    assert all(":?" in variable for variable in variables)
    made = (DOCKER / "README.md").read_text(encoding="utf-8")
    assert all(f"{variable.split(':?')[0]}=" in made for variable in variables)
    assert ".env" in (DOCKER / ".gitignore").read_text(encoding="utf-8").split()


def test_every_volume_and_network_is_declared_and_used() -> None:
    volumes = {entry.split(":")[0] for service in SERVICES.values() for entry in service.get("volumes", [])}
    networks = {name for service in SERVICES.values() for name in service["networks"]}
    assert (volumes, networks) == (set(COMPOSE["volumes"]), set(COMPOSE["networks"]))


def test_mlflow_and_the_store_agree_on_bucket_and_keys() -> None:
    mlflow, objects = SERVICES["mlflow"]["environment"], SERVICES["objects"]
    assert mlflow["MLFLOW_ARTIFACTS_DESTINATION"] == "s3://mlflow"
    assert "-bucket=mlflow" in objects["command"]
    for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        assert mlflow[key] == objects["environment"][key]
    assert mlflow["MLFLOW_S3_ENDPOINT_URL"] == "http://objects:8333"
