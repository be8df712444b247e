"""aws.yaml through Ray's own bootstrap and node provider on an emulated EC2; gcp.yaml against Google's API description.

Their libraries are no dependency of the project: pip install boto3 moto google-api-python-client
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.deploy.files import vm_cluster


def test_ray_launches_every_group_on_an_emulated_ec2(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    boto3 = pytest.importorskip("boto3")
    moto = pytest.importorskip("moto")
    for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(key, "testing")
    monkeypatch.setenv("HOME", str(tmp_path))  # Ray writes an SSH key
    monkeypatch.setattr("time.sleep", lambda _: None)  # and waits for IAM
    from ray.autoscaler._private.aws.config import bootstrap_aws
    from ray.autoscaler._private.aws.node_provider import AWSNodeProvider
    from ray.autoscaler._private.util import prepare_config
    from ray.autoscaler.tags import TAG_RAY_CLUSTER_NAME, TAG_RAY_NODE_KIND, TAG_RAY_USER_NODE_TYPE

    with moto.mock_aws(config={"iam": {"load_aws_managed_policies": True}}):
        ec2 = boto3.client("ec2", region_name="us-west-2")
        config = prepare_config(vm_cluster("aws"))
        for group in config["available_node_types"].values():
            group["node_config"]["ImageId"] = ec2.describe_images()["Images"][0]["ImageId"]
        config = bootstrap_aws(config)
        provider = AWSNodeProvider(config["provider"], config["cluster_name"])
        for name, group in config["available_node_types"].items():
            tags = {TAG_RAY_USER_NODE_TYPE: name, TAG_RAY_NODE_KIND: "worker"}
            provider.create_node(group["node_config"], tags, 1)
        started = {}
        for reservation in ec2.describe_instances()["Reservations"]:
            for instance in reservation["Instances"]:
                tags = {tag["Key"]: tag["Value"] for tag in instance["Tags"]}
                assert tags[TAG_RAY_CLUSTER_NAME] == "gspo-ray"  # what README.md looks for after `ray down`
                spot = instance.get("InstanceLifecycle") == "spot"
                started[tags[TAG_RAY_USER_NODE_TYPE]] = (instance["InstanceType"], spot)
    assert started == {
        "head": ("m7i.2xlarge", False),
        "learner": ("g6e.2xlarge", False),
        "sampler": ("g6e.2xlarge", True),
        "reward": ("c7i.2xlarge", False),
    }


def test_google_knows_every_field_of_an_instance() -> None:
    client = pytest.importorskip("googleapiclient")
    description = Path(client.__file__).parent / "discovery_cache" / "documents" / "compute.v1.json"
    schemas = json.loads(description.read_text(encoding="utf-8"))["schemas"]
    groups = vm_cluster("gcp")["available_node_types"]
    for group in groups.values():
        assert unknown_fields(group["node_config"], schemas["Instance"], schemas) == []
    misspelt = groups["sampler"]["node_config"] | {"scheduling": {"provisionModel": "SPOT"}}
    assert unknown_fields(misspelt, schemas["Instance"], schemas) == ["provisionModel"]


def unknown_fields(value: Any, schema: dict[str, Any], schemas: dict[str, Any]) -> list[str]:
    """Keys that the description lacks, and values that are none of its choices."""
    schema = schemas[schema["$ref"]] if "$ref" in schema else schema
    if isinstance(value, list):
        return [name for item in value for name in unknown_fields(item, schema["items"], schemas)]
    if not isinstance(value, dict):
        return [] if value in schema.get("enum", [value]) else [str(value)]
    known = schema["properties"]
    found = [key for key in value if key not in known]
    return found + [name for key in value if key in known for name in unknown_fields(value[key], known[key], schemas)]
