"""cluster.*: what fits together, and label selectors in Ray's own syntax."""

from typing import Any

import pytest

from gspo_ray.config import RunConfig
from gspo_ray.config_io import load_config, parse_config
from gspo_ray.errors import ConfigError

SHARED = {"cluster": {"colocate": True}, "rollout": {"engine": {"gpu_memory_utilization": 0.4}}}


def refusal(tree: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as refused:
        parse_config(tree, where="test")
    return str(refused.value)


def test_one_gpu_may_be_shared_when_its_memory_is_divided() -> None:
    assert parse_config(SHARED, where="test").cluster.colocate
    message = refusal({"cluster": {"colocate": True}})
    for part in ("cluster.colocate", "gpu_memory_utilization=0.9", "learner 10% of the GPU", "0.6 or lower"):
        assert part in message


@pytest.mark.parametrize(
    "more",
    [
        {"rollout": {"num_engines": 2}},
        {"rollout": {"engine": {"tensor_parallel_size": 2}}},
        {"learner": {"num_ranks": 2}},
    ],
)
def test_a_shared_gpu_holds_one_engine_and_one_learner(more: dict[str, Any]) -> None:
    assert "puts one engine and one learner on one GPU" in refusal({"cluster": {"colocate": True}, **more})


@pytest.mark.parametrize(("key", "value"), [("colocate", True), ("accelerator_type", "L4")])
def test_keys_about_gpus_are_refused_on_cpu(key: str, value: Any) -> None:
    assert f"cluster.{key} is about GPUs" in refusal({"cluster": {"device": "cpu", key: value}})


@pytest.mark.parametrize("selector", ["on-demand", "!spot", "in(us-west-1a, us-west-1b)", "!in(a,b)"])
def test_selectors_are_those_of_ray(selector: str) -> None:
    from ray._private.label_utils import validate_label_selector

    labels = {"ray.io/market-type": selector}
    assert validate_label_selector(labels) is None
    assert RunConfig.model_validate({"cluster": {"learner_labels": labels}}).cluster.learner_labels == labels


@pytest.mark.parametrize("labels", [{"market": "spot!"}, {"market": "in()"}, {"a/b/c": "x"}, {"-x": "y"}])
def test_what_ray_would_refuse_is_refused_by_key(labels: dict[str, str]) -> None:
    from ray._private.label_utils import validate_label_selector

    assert validate_label_selector(labels) is not None
    assert "cluster.engine_labels" in refusal({"cluster": {"engine_labels": labels}})


def test_labels_may_be_given_as_a_flag() -> None:
    config = load_config(None, ["--cluster.reward_labels", "{gspo-ray/group: reward}"])
    assert config.cluster.reward_labels == {"gspo-ray/group": "reward"}
