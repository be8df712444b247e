"""The four cluster files: valid for Ray, and large enough for the runs that this repository hands out."""

import importlib
import math
from pathlib import Path
from typing import Any

import pytest

from gspo_ray.actors.placement import Role, demand
from gspo_ray.config import RunConfig
from gspo_ray.config_io import load_config
from tests.unit.deploy.files import CLUSTERS, ROOT, VM_CLUSTERS, node_types, ray_cluster_spec, vm_cluster

GROUP, MARKET, ACCELERATOR = "gspo-ray/group", "ray.io/market-type", "ray.io/accelerator-type"
GPU_CONFIGS = [path for path in sorted((ROOT / "configs").glob("*.yaml")) if load_config(path).cluster.device == "cuda"]


@pytest.mark.parametrize("name", CLUSTERS)
def test_ray_reads_the_groups_and_their_labels(name: str) -> None:
    from ray._private.label_utils import validate_node_label_syntax

    types = node_types(name)
    assert list(types) == ["head", "learner", "sampler", "reward"]
    for group, node in types.items():
        validate_node_label_syntax(node["labels"])
        assert node["labels"][GROUP] == group
        assert node["labels"][MARKET] == ("spot" if group == "sampler" else "on-demand")
        assert (ACCELERATOR in node["labels"]) == (node["resources"].get("GPU", 0) > 0)


def test_the_label_keys_are_those_of_ray() -> None:
    raylet: Any = importlib.import_module("ray._raylet")  # compiled; its stubs are incomplete
    assert (MARKET, ACCELERATOR) == (raylet.RAY_NODE_MARKET_TYPE_KEY, raylet.RAY_NODE_ACCELERATOR_TYPE_KEY)


@pytest.mark.parametrize(
    ("driver_name", "label"), [("NVIDIA L40S", "L40S"), ("NVIDIA A100-SXM4-40GB", "A100"), ("NVIDIA L4", "L4")]
)
def test_accelerators_are_labelled_as_a_node_would_label_itself(driver_name: str, label: str) -> None:
    from ray._private.accelerators import NvidiaGPUAcceleratorManager

    assert NvidiaGPUAcceleratorManager._gpu_name_to_accelerator_type(driver_name) == label
    used = {node["labels"].get(ACCELERATOR) for name in CLUSTERS for node in node_types(name).values()}
    assert used <= {None, "L40S", "A100"}  # the rows above


@pytest.mark.parametrize("name", CLUSTERS)
def test_the_head_has_no_gpu_and_nothing_is_rented_before_it_is_asked_for(name: str) -> None:
    types = node_types(name)
    assert types["head"]["resources"]["GPU"] == 0
    assert types["head"]["resources"]["CPU"] > 0
    assert [node["min_workers"] for node in types.values()] == [0, 0, 0, 0]


@pytest.mark.parametrize("name", VM_CLUSTERS)
def test_the_limits_add_up_and_idle_nodes_go(name: str) -> None:
    config = vm_cluster(name)
    assert config["max_workers"] == sum(node["max_workers"] for node in node_types(name).values())
    assert 0 < config["idle_timeout_minutes"] <= 15
    assert config["provider"]["cache_stopped_nodes"] is False


def test_kubernetes_scales_down_as_well() -> None:
    spec = ray_cluster_spec("raycluster")
    assert spec["enableInTreeAutoscaling"] is True
    assert 0 < spec["autoscalerOptions"]["idleTimeoutSeconds"] <= 15 * 60


@pytest.mark.parametrize("name", CLUSTERS)
@pytest.mark.parametrize("path", GPU_CONFIGS, ids=lambda path: path.name)
def test_every_role_of_a_shipped_config_fits_its_group(name: str, path: Path) -> None:
    types = node_types(name)
    for group, role in roles(load_config(path)).items():
        assert nodes_for(role, types[group]["resources"]) <= types[group]["max_workers"], group


@pytest.mark.parametrize("name", CLUSTERS)
def test_the_labels_of_the_groups_are_what_the_job_asks_for(name: str) -> None:
    asked = [line.split() for line in (ROOT / "cluster/train.sh").read_text().splitlines() if "_labels" in line]
    assert [(words[0], words[-1].rstrip('}"')) for words in asked] == [
        ("--cluster.learner_labels", "learner"),
        ("--cluster.engine_labels", "sampler"),
        ("--cluster.reward_labels", "reward"),
    ]
    assert all(words[1].strip('"{:') == GROUP for words in asked)
    assert {words[-1].rstrip('}"') for words in asked} <= set(node_types(name))


def test_what_does_not_fit_is_noticed() -> None:
    """The rule above on the first configuration, with demands that the groups cannot meet."""
    types = node_types("aws")
    config = load_config(GPU_CONFIGS[0])
    learner = config.learner.model_copy(update={"num_ranks": 3})
    engines = config.rollout.model_copy(
        update={"engine": config.rollout.engine.model_copy(update={"tensor_parallel_size": 2})}
    )
    wanted = roles(config.model_copy(update={"learner": learner, "rollout": engines}))
    assert nodes_for(wanted["learner"], types["learner"]["resources"]) == 3 > types["learner"]["max_workers"]
    assert nodes_for(wanted["sampler"], types["sampler"]["resources"]) == math.inf


@pytest.mark.parametrize("name", VM_CLUSTERS)
def test_a_misspelt_key_is_refused_by_ray(name: str) -> None:
    from jsonschema import ValidationError  # type: ignore[import-untyped]
    from ray.autoscaler._private.util import prepare_config, validate_config

    config = vm_cluster(name)
    config["available_node_types"]["sampler"]["max_worker"] = 4
    with pytest.raises(ValidationError, match="max_worker"):
        validate_config(prepare_config(config))


def test_spot_is_asked_of_the_cloud_where_the_label_says_so() -> None:
    aws, gcp = (vm_cluster(name)["available_node_types"] for name in VM_CLUSTERS)
    groups = {
        group["groupName"]: group["template"]["spec"] for group in ray_cluster_spec("raycluster")["workerGroupSpecs"]
    }
    for group in ("learner", "sampler", "reward"):
        spot = group == "sampler"
        assert (aws[group]["node_config"].get("InstanceMarketOptions") == {"MarketType": "spot"}) == spot
        assert (gcp[group]["node_config"].get("scheduling", {}).get("provisioningModel") == "SPOT") == spot
        assert (groups[group].get("nodeSelector", {}).get("cloud.google.com/gke-spot") == "true") == spot


def roles(config: RunConfig) -> dict[str, Role]:
    """By the group that they go to."""
    wanted = demand(
        config.cluster,
        config.rollout.engine,
        num_engines=config.rollout.num_engines,
        num_reward_workers=config.reward.num_workers,
        num_learners=config.learner.num_ranks,
    )
    return {"learner": wanted.learner, "sampler": wanted.engine, "reward": wanted.reward}


def nodes_for(role: Role, node: dict[str, float]) -> float:
    """Nodes of this size that the actors of a role fill; inf when not one fits."""
    per_node = min(int(node.get(kind, 0) // amount) for kind, amount in role.takes.items() if amount)
    return math.ceil(role.count / per_node) if per_node else math.inf
