"""What a run asks of the cluster. Every actor states its CPUs: an autoscaler does not see what is not asked for."""

import pytest

from gspo_ray.actors.placement import demand
from gspo_ray.actors.reservation import matches
from gspo_ray.config import ClusterConfig, EngineConfig


def test_on_cpu_nothing_asks_for_a_gpu() -> None:
    cluster = ClusterConfig(device="cpu", cpus_per_engine=0.75, cpus_per_learner=0.5, cpus_per_reward_worker=0.25)
    wanted = demand(cluster, EngineConfig(), num_engines=2, num_reward_workers=3)
    assert [(role.name, role.count, role.takes) for role in wanted.roles] == [
        ("learner", 1, {"CPU": 0.5}),
        ("engine", 2, {"CPU": 0.75}),
        ("reward worker", 3, {"CPU": 0.25}),
    ]
    assert (wanted.total("CPU"), wanted.total("GPU")) == (2.75, 0)
    assert str(wanted) == "the run asks for 2.75 CPU, 0 GPU (2 engine(s), 1 learner(s), 3 reward worker(s))"


def test_on_cuda_engines_and_learner_ranks_have_gpus_of_their_own_and_verifiers_none() -> None:
    cluster = ClusterConfig(device="cuda", cpus_per_engine=4, cpus_per_learner=3, cpus_per_reward_worker=1)
    wanted = demand(cluster, EngineConfig(), num_engines=2, num_learners=2, num_reward_workers=1)
    assert wanted.engine.takes == {"CPU": 4, "GPU": 1}
    assert wanted.learner.takes == {"CPU": 3, "GPU": 1}
    assert wanted.reward.takes == {"CPU": 1}
    assert wanted.total("GPU") == 4


def test_a_tensor_parallel_engine_asks_for_its_gpus_in_one_bundle() -> None:
    wanted = demand(ClusterConfig(), EngineConfig(tensor_parallel_size=4), num_engines=1, num_reward_workers=1)
    assert wanted.engine.takes["GPU"] == 4
    assert wanted.total("GPU") == 5


def test_learner_ranks_are_packed_and_engines_spread() -> None:
    wanted = demand(ClusterConfig(), EngineConfig(), num_engines=2, num_learners=2, num_reward_workers=2)
    assert (wanted.learner.strategy, wanted.engine.strategy) == ("PACK", "SPREAD")


def test_an_evaluation_asks_for_no_learner() -> None:
    cluster = ClusterConfig(colocate=True)
    wanted = demand(cluster, EngineConfig(), num_engines=1, num_learners=0, num_reward_workers=1)
    assert [role.name for role in wanted.roles] == ["engine", "reward worker"]
    assert wanted.engine.takes["GPU"] == 1


def test_a_shared_gpu_is_one_bundle_of_which_each_takes_half() -> None:
    cluster = ClusterConfig(
        colocate=True, cpus_per_engine=3, cpus_per_learner=2, engine_labels={"a": "b"}, learner_labels={"c": "d"}
    )
    wanted = demand(cluster, EngineConfig(), num_engines=1, num_reward_workers=1)
    shared, _ = wanted.roles
    assert (shared.count, shared.takes, shared.labels) == (1, {"CPU": 5, "GPU": 1}, {"a": "b", "c": "d"})
    assert wanted.engine.takes == {"CPU": 3, "GPU": 0.5}
    assert wanted.learner.takes == {"CPU": 2, "GPU": 0.5}


def test_labels_say_where_each_kind_may_go() -> None:
    cluster = ClusterConfig(
        accelerator_type="L4",
        learner_labels={"ray.io/market-type": "on-demand"},
        engine_labels={"ray.io/accelerator-type": "A10G"},
        reward_labels={"gspo-ray/group": "reward"},
    )
    wanted = demand(cluster, EngineConfig(), num_engines=1, num_reward_workers=1)
    assert wanted.learner.labels == {"ray.io/accelerator-type": "L4", "ray.io/market-type": "on-demand"}
    assert wanted.engine.labels == {"ray.io/accelerator-type": "A10G"}
    assert wanted.reward.labels == {"gspo-ray/group": "reward"}


@pytest.mark.parametrize(
    ("selector", "fits"),
    [
        ("spot", True),
        ("on-demand", False),
        ("!spot", False),
        ("!on-demand", True),
        ("in(on-demand, spot)", True),
        ("in(a,b)", False),
        ("!in(a, b)", True),
        ("!in(a,spot)", False),
    ],
)
def test_a_node_fits_a_selector_as_ray_reads_it(selector: str, fits: bool) -> None:
    assert matches({"market": "spot", "zone": "a"}, {"market": selector}) is fits


def test_a_label_that_a_node_lacks_fits_negations_alone() -> None:
    assert not matches({}, {"market": "spot"})
    assert matches({}, {"market": "!spot"})
    assert not matches({"market": "spot"}, {"market": "spot", "zone": "a"})
