"""The deployment files, as the programs that will read them see them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]
CLUSTER, DOCKER = ROOT / "cluster", ROOT / "docker"
SCHEMAS = Path(__file__).parent / "schemas"
VM_CLUSTERS = ("aws", "gcp")  # for `ray up`
KUBERAY = ("raycluster", "rayjob")
CLUSTERS = (*VM_CLUSTERS, *KUBERAY)

NodeTypes = dict[str, dict[str, Any]]


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def vm_cluster(name: str) -> dict[str, Any]:
    return documents(CLUSTER / f"{name}.yaml")[0]


def kuberay(name: str) -> dict[str, Any]:
    return documents(CLUSTER / "kuberay" / f"{name}.yaml")[0]


def ray_cluster_spec(name: str) -> dict[str, Any]:
    spec = kuberay(name)["spec"]
    return spec["rayClusterSpec"] if name == "rayjob" else spec


def node_types(name: str) -> NodeTypes:
    """What Ray's autoscaler makes of the file, validated by it; the head's type under "head"."""
    from ray.autoscaler._private.kuberay.autoscaling_config import _derive_autoscaling_config_from_ray_cr
    from ray.autoscaler._private.util import prepare_config, validate_config

    if name in VM_CLUSTERS:
        config = prepare_config(vm_cluster(name))
        validate_config(config)
    else:
        resource = {"metadata": kuberay(name)["metadata"], "spec": ray_cluster_spec(name)}
        config = _derive_autoscaling_config_from_ray_cr(resource)
    types = dict(config["available_node_types"])
    return {"head": types.pop(config["head_node_type"]), **types}


def requirement(package: str, file: str) -> str:
    """The version that `docker/requirements-<file>.txt` pins."""
    text = (DOCKER / f"requirements-{file}.txt").read_text(encoding="utf-8")
    found = re.search(rf"(?mi)^{re.escape(package)}==(\S+)", text)
    assert found, f"{package} is not in requirements-{file}.txt"
    return found[1]


def deployment_texts() -> dict[str, str]:
    """Every file that a person copies to a cluster, by its path."""
    paths = [*CLUSTER.rglob("*"), *DOCKER.glob("*")]
    chosen = [path for path in paths if path.is_file() and path.suffix in (".yaml", ".sh", ".md", "")]
    return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in chosen}
