"""rollout.* and reward.*: sampling, engines, verifiers."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from gspo_ray.config.section import Section


class EngineConfig(Section):
    """vLLM engine arguments that a run may want to set; the rest keeps vLLM's defaults."""

    max_num_seqs: int = Field(256, ge=1)
    """Sequences that one engine decodes at the same time."""
    gpu_memory_utilization: float = Field(0.9, gt=0, lt=1)
    tensor_parallel_size: int = Field(1, ge=1)
    enforce_eager: bool = False
    """True: no CUDA graphs (GPU). The CPU engine always runs eagerly with LoRA."""
    architecture: str | None = None
    """vLLM class to load instead of the one that the model folder names. The learner loads the class that the folder
    names, so that both name their layers alike."""
    block_size: int | None = Field(None, ge=1)
    """KV-cache block, in tokens. None: vLLM's choice (GPU 16, CPU 128; the CPU kernel wants multiples of 32)."""
    cpu_kv_cache_gib: int = Field(1, ge=1)
    cpu_threads: int = Field(2, ge=1)
    cpu_grouped_lora: bool = True
    """CPU only: one matmul per adapter in use instead of vLLM's gather of the adapter weights for every token."""
    startup_timeout_s: float = Field(900.0, gt=0)


class RolloutConfig(Section):
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


class RewardConfig(Section):
    answer_style: Literal["boxed", "answer_line", "hashes"] = "boxed"
    """Where the answer stands in a completion: in the last \\boxed{}, on the last line "Answer: ...", or after "####".
    The prompt must ask for it."""
    num_workers: int = Field(1, ge=1)
    """Reward actors; each drives one verifier process that can be killed."""
    timeout_s: float = Field(5.0, gt=0)
    """Hard wall-clock limit for one completion; then its process is killed, replaced, and the outcome is TIMEOUT."""
    memory_limit_mib: int = Field(2048, ge=256)
    """Address space of a verifier process."""
