"""cluster/kuberay/: fields that KubeRay knows, pods without root, and references that lead somewhere."""

import copy
import fnmatch
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from gspo_ray.models import cache_root
from tests.unit.deploy.files import CLUSTER, DOCKER, KUBERAY, ROOT, SCHEMAS, documents, kuberay, ray_cluster_spec

SCHEMA = Draft202012Validator(documents(SCHEMAS / "kuberay.yaml")[0])
FILES = CLUSTER / "kuberay"


def pods() -> Iterator[tuple[str, dict[str, Any]]]:
    """(where, pod spec) of every pod that these files start."""
    for name in KUBERAY:
        spec = ray_cluster_spec(name)
        for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
            yield f"{name}/{group.get('groupName', 'head')}", group["template"]["spec"]
    yield "rayjob/submitter", kuberay("rayjob")["spec"]["submitterPodTemplate"]["spec"]
    for item in documents(FILES / "mlflow.yaml"):
        if "template" in item["spec"]:
            yield item["metadata"]["name"], item["spec"]["template"]["spec"]


PODS = dict(pods())


@pytest.mark.parametrize("name", KUBERAY)
def test_kuberay_knows_every_field(name: str) -> None:
    Draft202012Validator.check_schema(SCHEMA.schema)
    resource = kuberay(name)
    SCHEMA.validate(resource)
    assert resource["metadata"] == {"name": "gspo-ray", "namespace": "gspo-ray"}


def test_a_misspelt_field_or_a_number_for_a_string_is_found() -> None:
    for path, value in ((("autoscalerOptions", "idleTimeout"), 60), (("headGroupSpec", "labels"), {"rank": 1})):
        broken = copy.deepcopy(kuberay("raycluster"))
        broken["spec"][path[0]][path[1]] = value
        assert not SCHEMA.is_valid(broken)


def test_the_job_makes_the_same_cluster() -> None:
    assert ray_cluster_spec("rayjob") == ray_cluster_spec("raycluster")


def test_a_job_is_tried_again_ends_in_any_case_and_leaves_no_node() -> None:
    spec = kuberay("rayjob")["spec"]
    assert spec["shutdownAfterJobFinishes"] is True
    assert spec["backoffLimit"] > 0
    assert spec["activeDeadlineSeconds"] > spec["preRunningDeadlineSeconds"] > 0
    copied = (DOCKER / "Dockerfile").read_text(encoding="utf-8")
    assert "WORKDIR /opt/gspo_ray\n" in copied
    assert "COPY cluster/train.sh /cluster/\n" in copied
    assert spec["entrypoint"] == "bash /opt/gspo_ray/cluster/train.sh"


@pytest.mark.parametrize("where", PODS)
def test_no_pod_runs_as_root_or_may_become_it(where: str) -> None:
    pod = PODS[where]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    for container in pod["containers"]:
        assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        assert container["resources"]["limits"]["memory"] == container["resources"]["requests"]["memory"]


@pytest.mark.parametrize("where", [where for where in PODS if where.startswith("raycluster")])
def test_a_ray_pod_has_shared_memory_and_a_cache_within_its_limits(where: str) -> None:
    pod = PODS[where]
    (container,) = pod["containers"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    mounts = {mount["mountPath"]: volumes[mount["name"]] for mount in container["volumeMounts"]}
    shm = mounts["/dev/shm"]["emptyDir"]
    assert shm["medium"] == "Memory"
    assert gib(shm["sizeLimit"]) <= gib(container["resources"]["limits"]["memory"]) / 2
    assert "sizeLimit" in mounts["/cache"]["emptyDir"]
    assert ("/runs" in mounts) == (where == "raycluster/head")


@pytest.mark.parametrize("group", ["learner", "sampler"])
def test_gpus_are_limits_and_their_taint_is_tolerated(group: str) -> None:
    pod = PODS[f"raycluster/{group}"]
    resources = pod["containers"][0]["resources"]
    assert resources["limits"]["nvidia.com/gpu"] == resources["requests"]["nvidia.com/gpu"] == "1"
    assert {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in pod["tolerations"]
    assert pod["containers"][0]["image"].endswith("-cuda")


def test_secrets_and_claims_that_are_named_are_made() -> None:
    script = (FILES / "secrets.sh").read_text(encoding="utf-8")
    assert {name for name, _, _ in secret_keys()} == {"gspo-ray-mlflow", "gspo-ray-hub"}
    for name, key, optional in secret_keys():
        assert f'make {name} "{key}=' in script
        assert optional == (name == "gspo-ray-hub")
    assert ray_cluster_spec("raycluster")["authOptions"] == {"mode": "token", "secretName": "gspo-ray-token"}
    assert 'make gspo-ray-token "auth_token=' in script  # the key that KubeRay reads
    claims = {item["metadata"]["name"] for item in documents(FILES / "storage.yaml")}
    used = {volume["persistentVolumeClaim"]["claimName"] for volume in PODS["raycluster/head"]["volumes"][:1]}
    assert used == {"gspo-ray-runs"} < claims


def test_everything_lies_in_the_namespace_that_is_made() -> None:
    items = [*documents(FILES / "storage.yaml"), *documents(FILES / "mlflow.yaml"), *map(kuberay, KUBERAY)]
    assert {item["metadata"].get("namespace", item["metadata"]["name"]) for item in items} == {"gspo-ray"}


def test_the_head_finds_mlflow_under_a_name_that_mlflow_answers_to() -> None:
    items = {(item["kind"], item["metadata"]["name"]): item["spec"] for item in documents(FILES / "mlflow.yaml")}
    service = items["Service", "mlflow"]
    uri = next(
        e["value"] for e in PODS["raycluster/head"]["containers"][0]["env"] if e["name"] == "MLFLOW_TRACKING_URI"
    )
    host = f"mlflow:{service['ports'][0]['port']}"
    assert uri == f"http://{host}"
    env = {item["name"]: item.get("value") for item in PODS["mlflow"]["containers"][0]["env"]}
    patterns = env["MLFLOW_SERVER_ALLOWED_HOSTS"].split(",")
    for name in (host, "localhost:5000", "127.0.0.1:5000"):  # the last two: a port-forward
        assert any(fnmatch.fnmatch(name, pattern) for pattern in patterns)
    assert "@mlflow-postgres:5432/mlflow" in env["MLFLOW_BACKEND_STORE_URI"]
    assert ("Service", "mlflow-postgres") in items


def test_caches_of_the_image_lie_on_the_mounted_volume(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (DOCKER / "Dockerfile").read_text(encoding="utf-8")
    assert "HF_HOME=/cache/huggingface" in text
    assert "GSPO_RAY_CACHE=/cache/gspo_ray" in text
    assert "GSPO_RAY_STORAGE=/runs" in text
    monkeypatch.setenv("GSPO_RAY_CACHE", "/cache/gspo_ray")
    assert str(cache_root()) == "/cache/gspo_ray"
    assert "${GSPO_RAY_STORAGE:-" in (ROOT / "cluster/train.sh").read_text(encoding="utf-8")


def secret_keys() -> set[tuple[str, str, bool]]:
    found = set()
    for pod in PODS.values():
        for item in (entry for container in pod["containers"] for entry in container.get("env", [])):
            if "valueFrom" in item:
                key = item["valueFrom"]["secretKeyRef"]
                found.add((key["name"], key["key"], key.get("optional", False)))
    return found


def gib(quantity: str) -> float:
    assert quantity.endswith("Gi")
    return float(quantity[:-2])
