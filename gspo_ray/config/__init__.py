"""The one configuration tree of a run. Defaults < YAML file < dotted flags (see config_io.py).

Classes elsewhere receive the sub-config or the plain values that they need, never `RunConfig`.
"""

from gspo_ray.config.algo import AlgoConfig, DynamicSamplingConfig, KlConfig, MismatchConfig, OverlongConfig
from gspo_ray.config.data import BOX_INSTRUCTION, NO_FILE, DataConfig, ProblemSource, PromptConfig
from gspo_ray.config.evaluation import EvalConfig
from gspo_ray.config.learner import LearnerConfig
from gspo_ray.config.model import LoraConfig, ModelConfig, engine_lora_rank
from gspo_ray.config.rollout import EngineConfig, RewardConfig, RolloutConfig
from gspo_ray.config.run import RunConfig
from gspo_ray.config.service import CheckpointConfig, ClusterConfig, TrackingConfig

__all__ = [
    "BOX_INSTRUCTION",
    "NO_FILE",
    "AlgoConfig",
    "CheckpointConfig",
    "ClusterConfig",
    "DataConfig",
    "DynamicSamplingConfig",
    "EngineConfig",
    "EvalConfig",
    "KlConfig",
    "LearnerConfig",
    "LoraConfig",
    "MismatchConfig",
    "ModelConfig",
    "OverlongConfig",
    "ProblemSource",
    "PromptConfig",
    "RewardConfig",
    "RolloutConfig",
    "RunConfig",
    "TrackingConfig",
    "engine_lora_rank",
]
