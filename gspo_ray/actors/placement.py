"""Where actors go: what a run asks of the cluster, the room that it gets, and the options of every actor there.

One placement group a role: learner ranks packed, engines spread, each with the labels of the nodes it may go to.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ray.util.placement_group import PlacementGroup, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from gspo_ray.config import ClusterConfig, EngineConfig, LearnerConfig
from gspo_ray.openmp import openmp_environment

SHARED = "shared GPU"  # the role that engine and learner have together under cluster.colocate


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """Actors of one kind: how many, what one of them takes, and which nodes they may go to."""

    name: str
    count: int
    takes: dict[str, float]
    labels: dict[str, str]  # Ray's label selector
    strategy: str


@dataclass(frozen=True, slots=True)
class Demand:
    engine: Role
    learner: Role  # count 0: an evaluation
    reward: Role
    colocate: bool = False  # engine and learner on one GPU

    @property
    def roles(self) -> tuple[Role, ...]:
        """What gets a placement group of its own: one bundle an actor."""
        if not self.colocate:
            return tuple(role for role in (self.learner, self.engine, self.reward) if role.count)
        takes = {kind: self.engine.takes[kind] + self.learner.takes[kind] for kind in self.engine.takes}
        labels = self.engine.labels | self.learner.labels
        return Role(name=SHARED, count=1, takes=takes, labels=labels, strategy="PACK"), self.reward

    def total(self, kind: str) -> float:
        return sum(role.count * role.takes.get(kind, 0.0) for role in self.roles)

    def __str__(self) -> str:
        asked = ", ".join(f"{math.ceil(self.total(kind) * 100) / 100:g} {kind}" for kind in ("CPU", "GPU"))
        parts = f"{self.engine.count} engine(s), {self.learner.count} learner(s), {self.reward.count} reward worker(s)"
        return f"the run asks for {asked} ({parts})"


def demand(
    cluster: ClusterConfig, engine: EngineConfig, *, num_engines: int, num_reward_workers: int, num_learners: int = 1
) -> Demand:
    """Every actor states its CPUs and GPUs, so that an autoscaler sees all of it."""
    colocate = cluster.colocate and num_learners > 0
    gpus = 0.0 if cluster.device == "cpu" else 0.5 if colocate else 1.0
    device = {"ray.io/accelerator-type": cluster.accelerator_type} if cluster.accelerator_type else {}
    return Demand(
        engine=Role(
            name="engine",
            count=num_engines,
            takes=_takes(cluster.cpus_per_engine, gpus * engine.tensor_parallel_size),
            labels=device | cluster.engine_labels,
            strategy="SPREAD",
        ),
        learner=Role(
            name="learner",
            count=num_learners,
            takes=_takes(cluster.cpus_per_learner, gpus),
            labels=device | cluster.learner_labels,
            strategy="PACK",
        ),
        reward=Role(
            name="reward worker",
            count=num_reward_workers,
            takes=_takes(cluster.cpus_per_reward_worker, 0.0),
            labels=cluster.reward_labels,
            strategy="PACK",
        ),
        colocate=colocate,
    )


@dataclass(frozen=True, slots=True)
class Room:
    """What a run holds of the cluster until it gives it back."""

    wanted: Demand
    groups: dict[str, PlacementGroup]  # by the name of the role

    def engine_options(self, number: int) -> dict[str, Any]:
        return self._options(self.wanted.engine, number, env={})  # the engine sets its own

    def learner_options(self, rank: int, learner: LearnerConfig) -> dict[str, Any]:
        return self._options(self.wanted.learner, rank, env=openmp_environment(learner.cpu_threads))

    def reward_options(self, number: int) -> dict[str, Any]:
        return self._options(self.wanted.reward, number, env={})

    def give_back(self) -> None:
        for group in self.groups.values():
            remove_placement_group(group)

    def _options(self, role: Role, number: int, *, env: dict[str, str]) -> dict[str, Any]:
        group = self.groups.get(role.name) or self.groups[SHARED]
        return {
            "num_cpus": role.takes["CPU"],
            "num_gpus": role.takes.get("GPU", 0),
            "max_restarts": 0,
            "scheduling_strategy": PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=number),
            **({"runtime_env": {"env_vars": env}} if env else {}),
        }


def _takes(cpus: float, gpus: float) -> dict[str, float]:
    return {"CPU": cpus} | ({"GPU": gpus} if gpus else {})
