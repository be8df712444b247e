"""checkpoint.*, tracking.*, cluster.*: what surrounds the training."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from gspo_ray.config.section import Section

_NAME = r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
# Ray's own syntax of label selectors: key: value, !value, in(a, b), !in(a, b).
Labels = dict[
    Annotated[str, Field(pattern=rf"^([A-Za-z0-9.-]{{1,253}}/)?{_NAME}$")],
    Annotated[str, Field(pattern=rf"^!?({_NAME}|in\({_NAME}(, ?{_NAME})*\))$")],
]


class CheckpointConfig(Section):
    every: int = Field(20, ge=0)
    """Steps between checkpoints; 0: only at the end. The last step always gets one."""
    keep: int = Field(3, ge=1)
    """Newest complete checkpoints that stay on disk."""


class TrackingConfig(Section):
    mlflow_uri: str | None = None
    """None: a local sqlite store beside the runs (`<storage_path>/mlflow.db`). MLFLOW_TRACKING_URI is honoured."""
    experiment: str = "gspo_ray"
    sample_every: int = Field(5, ge=0)
    """Steps between sample completions on the console; 0: never."""


class ClusterConfig(Section):
    device: Literal["cpu", "cuda"] = "cuda"
    """Where engines and learner run. On cuda every engine and every learner rank has GPUs of its own."""
    colocate: bool = False
    """One GPU for all: engine and learner take half of it each in Ray's books. Its memory is divided by
    `rollout.engine.gpu_memory_utilization`: that share is the engine's, the learner has the rest."""
    address: str | None = None
    """Ray address. None: the cluster given by RAY_ADDRESS or the job environment, else a new local one."""
    cpus_per_engine: float = Field(2, gt=0)
    cpus_per_learner: float = Field(2, gt=0)
    cpus_per_reward_worker: float = Field(1, gt=0)
    """Ray's logical CPUs: they decide placement. Fractions suit one machine, whose phases take turns on the cores."""
    placement_timeout_s: float = Field(600.0, gt=0)
    """How long to wait for an autoscaling cluster to bring up what is missing. A local cluster cannot grow: no wait."""
    accelerator_type: str | None = Field(None, pattern=rf"^{_NAME}$")
    """GPU of engines and learner by Ray's name, such as L4: only nodes with it as label `ray.io/accelerator-type`."""
    learner_labels: Labels = Field(default_factory=dict)
    engine_labels: Labels = Field(default_factory=dict)
    reward_labels: Labels = Field(default_factory=dict)
    """Label selectors: the actors go only to nodes whose labels match. Such as {ray.io/market-type: on-demand} for the
    learner, or {gspo-ray/group: sampler} for a node group of the files in cluster/ (learner, sampler, reward)."""

    @model_validator(mode="after")
    def _gpu_keys_need_gpus(self) -> Self:
        for key in ("colocate", "accelerator_type"):
            if self.device == "cpu" and getattr(self, key):
                raise ValueError(
                    f"cluster.{key} is about GPUs, but cluster.device is cpu. Remove it; on CPU, engine and learner "
                    "share a machine by fractions of cluster.cpus_per_engine and cluster.cpus_per_learner."
                )
        return self
