"""eval.*: the protocol of evaluations."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from gspo_ray.config.data import ProblemSource


class EvalConfig(ProblemSource):
    """The protocol of an evaluation, in training and by `gspo-ray eval`. Prompts are built as data.prompt says."""

    every: int = Field(0, ge=0)
    """Steps between evaluations in training; also before the first step and after the last. 0: never."""
    samples: int = Field(12, ge=1)
    """Answers for each problem: n of avg@n and pass@n."""
    max_tokens: int = Field(8192, ge=1)
    temperature: float = Field(1.0, ge=0)
    """0 is greedy, which needs samples=1."""
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int = Field(-1, ge=-1)
    seed: int = Field(42, ge=0)
    """Of the answers alone: two models evaluated with one seed are compared on the same problems."""

    @model_validator(mode="after")
    def _can_be_sampled(self) -> Self:
        if self.temperature == 0 and self.samples > 1:
            raise ValueError(
                f"eval.samples is {self.samples}, but eval.temperature=0 gives the same answer every time: "
                "set eval.samples=1, or a temperature."
            )
        if self.top_k == 0:
            raise ValueError("eval.top_k is 0; use -1 to switch it off or a positive number")
        if self.every:
            self.check_file("eval")
        return self
