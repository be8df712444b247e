"""data.*: problems and prompts."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from gspo_ray.config.section import Section

NO_FILE = ("additions", "additions_heldout")
BOX_INSTRUCTION = "\n\nPlease reason step by step, and put your final answer within \\boxed{}."


class PromptConfig(Section):
    template: str = "{question}" + BOX_INSTRUCTION
    """The user turn; `{question}` is replaced. It must ask for what the verifier reads (reward.answer_style)."""
    system: str | None = None
    examples: list[tuple[str, str]] = Field([])
    """Worked turns (question, assistant reply) before the real one; the question goes through the template."""
    enable_thinking: bool = False
    """Handed to the chat template; templates that do not know it ignore it."""

    @model_validator(mode="after")
    def _has_the_question(self) -> Self:
        if "{question}" not in self.template:
            raise ValueError("data.prompt.template has no {question}, so every prompt would be the same. Add it.")
        return self


class ProblemSource(Section):
    """Where problems come from."""

    source: Literal["additions", "additions_heldout", "gsm8k", "dapo", "jsonl", "parquet"] = "additions"
    """One-digit `additions`, and those held out from them, are made on the spot; the others read `path`."""
    path: str | None = None
    question_column: str = "question"
    """For jsonl and parquet. A dotted name reaches into nested records."""
    answer_column: str = "answer"
    id_column: str | None = None
    """None: the row number is the id."""
    max_problems: int | None = Field(None, ge=1)
    """Keep the first k rows (before shuffling)."""

    def check_file(self, section: str) -> None:
        """Raises ValueError when `path` is missing, or is there for a source that reads no file."""
        if self.source not in NO_FILE and not self.path:
            raise ValueError(f"{section}.source is {self.source!r}, which reads a file: set {section}.path")
        if self.source in NO_FILE and self.path:
            raise ValueError(
                f"{section}.path is {self.path!r}, but {section}.source is {self.source!r}, which reads no file: "
                f"set {section}.source to what the file holds (gsm8k, dapo, jsonl, parquet), or remove {section}.path"
            )


class DataConfig(ProblemSource):
    shuffle: bool = True
    """One permutation of the whole set for every pass over it, derived from (seed, pass)."""
    problems_per_step: int = Field(8, ge=1)
    max_prompt_tokens: int = Field(1024, ge=1)
    """Longer prompts are dropped before the run, counted and named."""
    prompt: PromptConfig = PromptConfig()

    @model_validator(mode="after")
    def _has_a_file(self) -> Self:
        self.check_file("data")
        return self
