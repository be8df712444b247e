"""checkpoint.*, tracking.*, cluster.*: what surrounds the training."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from gspo_ray.config.section import Section


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
    """Where engines and learner run. On cuda every engine and the learner have GPUs of their own."""
    address: str | None = None
    """Ray address. None: the cluster given by RAY_ADDRESS or the job environment, else a new local one."""
    cpus_per_engine: float = Field(2, gt=0)
    cpus_per_learner: float = Field(2, gt=0)
    cpus_per_reward_worker: float = Field(1, gt=0)
    """Ray's logical CPUs: they decide placement. Fractions suit one machine, whose phases take turns on the cores."""
    placement_timeout_s: float = Field(600.0, gt=0)
    """How long to wait for an autoscaling cluster to bring up what is missing. A local cluster cannot grow: no wait."""
