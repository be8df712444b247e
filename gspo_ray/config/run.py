"""The whole tree."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from gspo_ray.config.algo import AlgoConfig
from gspo_ray.config.data import DataConfig
from gspo_ray.config.evaluation import EvalConfig
from gspo_ray.config.learner import LearnerConfig
from gspo_ray.config.model import ModelConfig
from gspo_ray.config.rollout import RewardConfig, RolloutConfig
from gspo_ray.config.section import Section
from gspo_ray.config.service import CheckpointConfig, ClusterConfig, TrackingConfig

COLOCATED_ENGINE_SHARE = 0.6  # of the GPU's memory, at most: the learner needs room for weights and activations as well


class RunConfig(Section):
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")] = "gspo"
    seed: int = Field(0, ge=0)
    """Everything random derives from (seed, step, problem, sample)."""
    steps: int = Field(100, ge=1)
    storage_path: str = "runs"
    """Folder for run directories (config, metrics, rollouts, checkpoints) and the local MLflow store."""
    model: ModelConfig = ModelConfig()
    data: DataConfig = DataConfig()
    rollout: RolloutConfig = RolloutConfig()
    reward: RewardConfig = RewardConfig()
    algo: AlgoConfig = AlgoConfig()
    learner: LearnerConfig = LearnerConfig()
    eval: EvalConfig = EvalConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    tracking: TrackingConfig = TrackingConfig()
    cluster: ClusterConfig = ClusterConfig()

    @model_validator(mode="after")
    def _asks_for_what_is_read(self) -> Self:
        mark = {"boxed": "\\boxed{}", "answer_line": "Answer:", "hashes": "####"}[self.reward.answer_style]
        prompt = self.data.prompt
        if mark.removesuffix("{}") not in prompt.template + (prompt.system or ""):
            raise ValueError(
                f"data.prompt.template never mentions {mark}, but the verifier reads that "
                f"(reward.answer_style={self.reward.answer_style}): right answers would be scored wrong. "
                "Ask for it in the template or in data.prompt.system."
            )
        return self

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        if self.algo.num_minibatches > self.data.problems_per_step:
            raise ValueError(
                f"algo.num_minibatches is {self.algo.num_minibatches} but a step has only "
                f"{self.data.problems_per_step} groups (data.problems_per_step), and groups stay whole. "
                "Lower the first or raise the second."
            )
        if self.algo.overlong.mode == "soft_penalty" and self.algo.overlong.buffer_tokens >= self.rollout.max_tokens:
            raise ValueError(
                f"algo.overlong.buffer_tokens is {self.algo.overlong.buffer_tokens}, but a completion has at most "
                f"{self.rollout.max_tokens} tokens (rollout.max_tokens): every length would be punished. "
                "Lower the first."
            )
        if self.learner.warmup_steps >= self.steps:
            raise ValueError(
                f"learner.warmup_steps is {self.learner.warmup_steps}, but the run has {self.steps} steps: it would "
                "end before learning_rate is reached. Lower the first."
            )
        if "://" in self.storage_path:
            raise ValueError(
                f"storage_path {self.storage_path!r} is a URL; only folders are supported so far. Name a folder."
            )
        if self.cluster.device == "cpu" and self.rollout.engine.tensor_parallel_size > 1:
            raise ValueError("rollout.engine.tensor_parallel_size above 1 needs cluster.device=cuda")
        return self

    @model_validator(mode="after")
    def _one_gpu_is_shared_by_two(self) -> Self:
        if not self.cluster.colocate:
            return self
        engine = self.rollout.engine
        if self.rollout.num_engines * engine.tensor_parallel_size > 1 or self.learner.num_ranks > 1:
            raise ValueError(
                "cluster.colocate puts one engine and one learner on one GPU. Set rollout.num_engines, "
                "rollout.engine.tensor_parallel_size and learner.num_ranks to 1, or cluster.colocate to false."
            )
        if engine.gpu_memory_utilization > COLOCATED_ENGINE_SHARE:
            raise ValueError(
                f"cluster.colocate: rollout.engine.gpu_memory_utilization={engine.gpu_memory_utilization:g} leaves the "
                f"learner {1 - engine.gpu_memory_utilization:.0%} of the GPU's memory. Set it to "
                f"{COLOCATED_ENGINE_SHARE:g} or lower."
            )
        return self

    @property
    def max_model_len(self) -> int:
        """Tokens that a row can have: the longest prompt plus the longest completion, of evaluations too."""
        longest = max(self.rollout.max_tokens, self.eval.max_tokens) if self.eval.every else self.rollout.max_tokens
        return self.data.max_prompt_tokens + longest

    @property
    def engine_gpus(self) -> int:
        """GPUs that sample."""
        engines = self.rollout.num_engines * self.rollout.engine.tensor_parallel_size
        return engines if self.cluster.device == "cuda" else 0
