"""What crosses process borders. Standard library only, frozen, picklable.

Legend used in the whole package:
    P problems of a step, G completions a problem, B = P*G sequences,
    m tokens of a prompt, n tokens of one completion, L tokens of a padded row.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Finish(StrEnum):
    """Why the engine stopped generating."""

    STOP = "stop"  # the model emitted its end-of-sequence token (part of `token_ids`)
    LENGTH = "length"  # `max_tokens` or the context ran out: truncated
    ABORT = "abort"  # the request was cancelled; such a completion is never trained on


class Outcome(StrEnum):
    """What the verifier found. Only CORRECT is paid; TIMEOUT and ERROR are never a silent WRONG."""

    CORRECT = "correct"
    WRONG = "wrong"
    NO_ANSWER = "no_answer"
    TIMEOUT = "timeout"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One question whose answer a program can check.

    Example: Problem(problem_id="gsm8k-train-12", question="Jasper will serve ...", answer="7", source="gsm8k")
    """

    problem_id: str
    question: str
    answer: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A problem rendered for the model once, before the run; never re-made from text afterwards."""

    problem: Problem
    token_ids: tuple[int, ...]  # [m]


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightVersion:
    """The policy after the optimizer update of training step `step` (0 = the adapter before any update)."""

    step: int
    sha256: str  # of Adapter.payload

    @property
    def name(self) -> str:
        return f"policy-{self.step}"


BASE_MODEL = WeightVersion(step=0, sha256="")
"""The model without any adapter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """A LoRA adapter on the move. `payload` and `peft_config` are the two files of a PEFT directory."""

    version: WeightVersion
    payload: bytes  # adapter_model.safetensors
    peft_config: str  # adapter_config.json


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How completions are drawn; the learner needs `temperature` to score under the same distribution."""

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1  # -1 = off


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One sampled answer. `len(token_ids) == len(sampler_logprobs)`, always."""

    token_ids: tuple[int, ...]  # [n] generated only; the EOS token is included when finish is STOP
    sampler_logprobs: tuple[float, ...]  # [n] log-prob under the distribution that was sampled from
    text: str
    finish: Finish
    version: WeightVersion  # weights that the WHOLE completion was drawn from
    engine_id: str
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The verifier's answer for one completion."""

    reward: float
    outcome: Outcome
    extracted: str | None  # what was read as the final answer, None when there was none
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """G completions of one prompt, kept together from sampling to the loss."""

    prompt: Prompt
    completions: tuple[Completion, ...]  # len G
    verdicts: tuple[Verdict, ...] = ()  # len G after scoring, () before

    @property
    def rewards_G(self) -> tuple[float, ...]:
        return tuple(verdict.reward for verdict in self.verdicts)

    @property
    def is_degenerate(self) -> bool:
        """All rewards equal: no advantage, hence no gradient."""
        return len(set(self.rewards_G)) <= 1

    @property
    def oldest_version(self) -> WeightVersion:
        return min((c.version for c in self.completions), key=lambda version: version.step)


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerState:
    """Everything the learner needs to go on exactly where it stood."""

    adapter: Adapter
    optimizer: bytes  # torch.save of the optimizer's state_dict


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """Where a run stands after a step. All randomness derives from (seed, step, problem, sample), so no RNG state."""

    step: int = 0
    problems_seen: int = 0  # data cursor: the stream's order is a function of the seed
    version: WeightVersion = field(default_factory=lambda: WeightVersion(step=0, sha256=""))
    seed: int = 0

    def to_json(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "problems_seen": self.problems_seen,
            "version": {"step": self.version.step, "sha256": self.version.sha256},
            "seed": self.seed,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> RunState:
        return cls(
            step=data["step"],
            problems_seen=data["problems_seen"],
            version=WeightVersion(**data["version"]),
            seed=data["seed"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMetrics:
    """The numbers of one step under the names of `tracking/metrics.py`, plus plain-word notes for the person."""

    step: int
    values: dict[str, float]
    notes: tuple[str, ...] = ()
