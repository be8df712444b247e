"""What a run asks of the cluster. Every bundle states its CPUs: an autoscaler does not see what is not asked for."""

from gspo_ray.actors.placement import demand
from gspo_ray.config import ClusterConfig, EngineConfig


def test_on_cpu_nothing_asks_for_a_gpu() -> None:
    cluster = ClusterConfig(device="cpu", cpus_per_engine=0.75, cpus_per_learner=0.5, cpus_per_reward_worker=0.25)
    wanted = demand(cluster, EngineConfig(), num_engines=2, num_reward_workers=3)
    assert wanted.bundles == ({"CPU": 0.75}, {"CPU": 0.75}, {"CPU": 0.5}, *[{"CPU": 0.25}] * 3)
    assert (wanted.total("CPU"), wanted.total("GPU")) == (2.75, 0)


def test_on_cuda_engines_and_learner_have_gpus_of_their_own_and_verifiers_none() -> None:
    cluster = ClusterConfig(device="cuda", cpus_per_engine=4, cpus_per_learner=3, cpus_per_reward_worker=1)
    wanted = demand(cluster, EngineConfig(), num_engines=2, num_reward_workers=1)
    assert wanted.bundles == ({"CPU": 4, "GPU": 1}, {"CPU": 4, "GPU": 1}, {"CPU": 3, "GPU": 1}, {"CPU": 1})
    assert wanted.total("GPU") == 3


def test_a_tensor_parallel_engine_asks_for_its_gpus_in_one_bundle() -> None:
    engine = EngineConfig(tensor_parallel_size=4)
    wanted = demand(ClusterConfig(), engine, num_engines=1, num_reward_workers=1)
    assert [bundle.get("GPU", 0) for bundle in wanted.bundles] == [4, 1, 0]


def test_every_bundle_asks_for_cpus() -> None:
    for device in ("cpu", "cuda"):
        cluster = ClusterConfig.model_validate({"device": device})
        wanted = demand(cluster, EngineConfig(), num_engines=2, num_reward_workers=2)
        assert all(bundle["CPU"] > 0 for bundle in wanted.bundles)


def test_the_learner_comes_after_the_engines() -> None:
    wanted = demand(ClusterConfig(), EngineConfig(), num_engines=3, num_reward_workers=2)
    assert wanted.learner_bundle == 3
    assert wanted.bundles[wanted.learner_bundle]["CPU"] == ClusterConfig().cpus_per_learner
    assert len(wanted.bundles) == 6


def test_every_learner_rank_has_a_bundle_of_its_own() -> None:
    cluster = ClusterConfig(cpus_per_engine=4, cpus_per_learner=3, cpus_per_reward_worker=1)
    wanted = demand(cluster, EngineConfig(), num_engines=1, num_learners=2, num_reward_workers=2)
    assert wanted.bundles == ({"CPU": 4, "GPU": 1}, *[{"CPU": 3, "GPU": 1}] * 2, *[{"CPU": 1}] * 2)
    assert (wanted.learner_bundle, wanted.num_learners, wanted.num_reward_workers) == (1, 2, 2)
