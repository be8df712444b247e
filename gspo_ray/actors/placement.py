"""Where actors go: what a run asks of the cluster, the wait for it, and the options of every actor. Nowhere else."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from gspo_ray.config import ClusterConfig, EngineConfig, LearnerConfig
from gspo_ray.errors import ResourceError


@dataclass(frozen=True, slots=True)
class Demand:
    """Bundles of one run: engines first, then the learner ranks (an evaluation has none), then the reward workers."""

    bundles: tuple[dict[str, float], ...]
    num_engines: int
    num_learners: int = 1

    @property
    def learner_bundle(self) -> int:
        """Of rank 0; the others follow."""
        return self.num_engines

    @property
    def num_reward_workers(self) -> int:
        return len(self.bundles) - self.num_engines - self.num_learners

    def total(self, kind: str) -> float:
        return sum(bundle.get(kind, 0.0) for bundle in self.bundles)


def demand(
    cluster: ClusterConfig, engine: EngineConfig, *, num_engines: int, num_reward_workers: int, num_learners: int = 1
) -> Demand:
    """Every actor states its CPUs and GPUs, so that an autoscaler sees all of it."""
    gpu = cluster.device == "cuda"
    one_engine = {"CPU": cluster.cpus_per_engine} | ({"GPU": float(engine.tensor_parallel_size)} if gpu else {})
    one_learner = {"CPU": cluster.cpus_per_learner} | ({"GPU": 1.0} if gpu else {})
    one_reward = {"CPU": cluster.cpus_per_reward_worker}
    bundles = (*[one_engine] * num_engines, *[one_learner] * num_learners, *[one_reward] * num_reward_workers)
    return Demand(bundles=bundles, num_engines=num_engines, num_learners=num_learners)


async def reserve(
    wanted: Demand, *, can_grow: bool, timeout_s: float, say: Callable[[str], None], poll_s: float = 10.0
) -> PlacementGroup:
    """All bundles together, or ResourceError with what is asked for and what is there. Never waits for ever."""
    if not can_grow and (problem := _shortage(wanted)):
        raise ResourceError(f"{problem} {_REMEDY}")
    group = placement_group([dict(bundle) for bundle in wanted.bundles], strategy="PACK")
    ready = asyncio.ensure_future(_ready(group))
    try:
        waited = 0.0
        limit = timeout_s if can_grow else 60.0
        while not ready.done():
            await asyncio.wait([ready], timeout=min(poll_s, limit - waited))
            waited += poll_s
            if not ready.done():
                state = _shortage(wanted) or f"{_ask(wanted)}; they exist but are taken by other work."
                if waited >= limit:
                    raise ResourceError(f"no room on the cluster after {limit:.0f} s: {state} {_REMEDY}")
                say(f"Waiting for the cluster ({waited:.0f} of {limit:.0f} s): {state}")
        ready.result()
    except BaseException:
        ready.cancel()
        remove_placement_group(group)
        raise
    return group


def engine_options(group: PlacementGroup, wanted: Demand, number: int) -> dict[str, Any]:
    return _options(group, wanted, number, env={"OMP_WAIT_POLICY": "PASSIVE"})


def learner_options(group: PlacementGroup, wanted: Demand, rank: int, learner: LearnerConfig) -> dict[str, Any]:
    # Passive: idle OpenMP threads that spin would cost the engine on the same cores half its speed.
    env = {"OMP_NUM_THREADS": str(learner.cpu_threads), "OMP_WAIT_POLICY": "PASSIVE"}
    return _options(group, wanted, wanted.learner_bundle + rank, env=env)


def reward_options(group: PlacementGroup, wanted: Demand, number: int) -> dict[str, Any]:
    return _options(group, wanted, wanted.num_engines + wanted.num_learners + number, env={})


def _options(group: PlacementGroup, wanted: Demand, bundle: int, *, env: dict[str, str]) -> dict[str, Any]:
    resources = wanted.bundles[bundle]
    return {
        "num_cpus": resources["CPU"],
        "num_gpus": resources.get("GPU", 0),
        "max_restarts": 0,
        "scheduling_strategy": PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=bundle),
        **({"runtime_env": {"env_vars": env}} if env else {}),
    }


async def _ready(group: PlacementGroup) -> None:
    await group.ready()


def _shortage(wanted: Demand) -> str:
    """A sentence when the whole cluster is smaller than what is asked for, else ''."""
    there = ray.cluster_resources()
    if all(wanted.total(kind) <= there.get(kind, 0.0) + 1e-6 for kind in ("CPU", "GPU")):
        return _too_large_for_a_node(wanted)
    has = ", ".join(f"{there.get(kind, 0.0):g} {kind}" for kind in ("CPU", "GPU"))
    return f"{_ask(wanted)}, but the cluster has {has}."


def _too_large_for_a_node(wanted: Demand) -> str:
    """A sentence when one actor needs more than the largest node has, else ''."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    for kind in ("CPU", "GPU"):
        need = max(bundle.get(kind, 0.0) for bundle in wanted.bundles)
        largest = max((node.get(kind, 0.0) for node in nodes), default=0.0)
        if need > largest + 1e-6:
            return f"one actor of the run needs {need:g} {kind} on one node, but the largest node has {largest:g}."
    return ""


def _ask(wanted: Demand) -> str:
    asked = ", ".join(f"{math.ceil(wanted.total(kind) * 100) / 100:g} {kind}" for kind in ("CPU", "GPU"))
    parts = f"{wanted.num_engines} engine(s), {wanted.num_learners} learner(s), {wanted.num_reward_workers} reward"
    return f"the run asks for {asked} ({parts} worker(s))"


_REMEDY = (
    "Lower rollout.num_engines, learner.num_ranks, reward.num_workers or cluster.cpus_per_* (fractions are fine on one "
    "machine), "
    "set cluster.device=cpu if there are no GPUs, or use a larger cluster."
)
