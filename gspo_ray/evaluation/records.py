"""The lines of a result file. One file holds one evaluation of one model on one set of problems.

    {"type": "header", "format": ..., "protocol": {...}}          first line: what must agree to continue or to compare
    {"type": "attempt", "started_at": ..., "device", "gpus"}      one each time the evaluation is started
    {"type": "problem", "problem_id", ..., "samples": [...]}      as they finish, in any order
    {"type": "failed", "problem_id", ..., "error"}                without a result; a later "problem" replaces it
    {"type": "summary", ...}                                      last line, see `summary.py`

What a wall clock says stands in "clock" and in attempt lines alone, so that all else can be compared bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from gspo_ray.errors import DataError
from gspo_ray.evaluation.fields import Fields
from gspo_ray.types import Finish, Outcome, SamplingParams

FORMAT = "gspo-ray-eval/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataManifest:
    """Which problems: `sha256` is of the problem file as it was read, `problems` counts those that are evaluated."""

    name: str
    sha256: str
    problems: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalProtocol:
    """Everything that decides which answers are drawn and how they are judged."""

    model: str  # base model as the config names it
    model_revision: str | None
    dtype: str
    adapter_sha256: str | None  # None: the base model itself
    adapter_step: int | None  # training step of the adapter
    data: DataManifest
    prompt: Mapping[str, Any]  # template, system, examples, enable_thinking
    sampling: SamplingParams
    samples_per_problem: int  # n of avg@n
    seed: int
    verifier: str  # "math-verify 0.9.0"
    engine: str  # "vllm 0.32.0"
    code_version: str

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "prompt": dict(self.prompt)}

    @classmethod
    def from_fields(cls, fields: Fields) -> EvalProtocol:
        data, sampling = fields.inner("data"), fields.inner("sampling")
        return cls(
            model=fields.text("model"),
            model_revision=fields.optional_text("model_revision"),
            dtype=fields.text("dtype"),
            adapter_sha256=fields.optional_text("adapter_sha256"),
            adapter_step=fields.optional_whole("adapter_step"),
            data=DataManifest(
                name=data.text("name"), sha256=data.text("sha256"), problems=data.whole("problems", least=1)
            ),
            prompt=fields.inner("prompt").data,
            sampling=SamplingParams(
                max_tokens=sampling.whole("max_tokens", least=1),
                temperature=sampling.number("temperature"),
                top_p=sampling.number("top_p"),
                top_k=sampling.whole("top_k", least=-1),
            ),
            samples_per_problem=fields.whole("samples_per_problem", least=1),
            seed=fields.whole("seed"),
            verifier=fields.text("verifier"),
            engine=fields.text("engine"),
            code_version=fields.text("code_version"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRecord:
    """One sampled answer, judged."""

    answer: str | None  # what was read as the final answer
    outcome: Outcome
    formatted: bool  # a complete \boxed{} was found
    completion_tokens: int  # EOS included
    finish: Finish
    seed: int
    text: str

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "outcome": self.outcome.value, "finish": self.finish.value}

    @classmethod
    def from_fields(cls, fields: Fields) -> SampleRecord:
        return cls(
            answer=fields.optional_text("answer"),
            outcome=fields.choice("outcome", Outcome),
            formatted=fields.flag("formatted"),
            completion_tokens=fields.whole("completion_tokens"),
            finish=fields.choice("finish", Finish),
            seed=fields.whole("seed"),
            text=fields.text("text"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemRecord:
    """A problem with its n judged samples, in the order of their seeds."""

    problem_id: str
    question: str
    gold: str
    samples: tuple[SampleRecord, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "type": "problem",
            "problem_id": self.problem_id,
            "question": self.question,
            "gold": self.gold,
            "samples": [sample.to_json() for sample in self.samples],
        }

    @classmethod
    def from_fields(cls, fields: Fields, *, samples_per_problem: int) -> ProblemRecord:
        samples = tuple(SampleRecord.from_fields(item) for item in fields.items("samples"))
        if len(samples) != samples_per_problem:
            raise DataError(f"{fields.where}: {len(samples)} samples, the header says {samples_per_problem} a problem")
        return cls(
            problem_id=fields.text("problem_id"),
            question=fields.text("question"),
            gold=fields.text("gold"),
            samples=samples,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedRecord:
    """A problem that gave no result: left out of every rate, counted, and named in the summary."""

    problem_id: str
    error: str

    def to_json(self) -> dict[str, Any]:
        return {"type": "failed", "problem_id": self.problem_id, "error": self.error}

    @classmethod
    def from_fields(cls, fields: Fields) -> FailedRecord:
        return cls(problem_id=fields.text("problem_id"), error=fields.text("error"))


def flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one, with dotted names.

    Example: flat({"sampling": {"top_p": 1.0}}) == {"sampling.top_p": 1.0}
    """
    leaves: dict[str, Any] = {}
    for name, value in tree.items():
        leaves |= flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return leaves
