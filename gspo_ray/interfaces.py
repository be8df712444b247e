"""The seams: everything the controller knows about the outside, as Protocols. Fakes and real parts meet here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from gspo_ray.types import (
    Adapter,
    Completion,
    Group,
    LearnerState,
    Prompt,
    RunState,
    SamplingParams,
    StepMetrics,
    WeightVersion,
)

if TYPE_CHECKING:  # algo imports torch; the Protocols must stay importable without it
    from gspo_ray.algo.batch import TrainBatch
    from gspo_ray.algo.record import StepRecord
    from gspo_ray.algo.stats import UpdateStats


class InferenceEngine(Protocol):
    """One engine. vLLM lives behind this, and the fake engine too."""

    async def generate(
        self, prompt_ids: Sequence[int], *, n: int, sampling: SamplingParams, seed: int
    ) -> list[Completion]:
        """`n` completions of one prompt, all drawn from the adapter loaded last."""
        ...

    async def score(self, token_ids: Sequence[int], *, num_prompt: int) -> list[float]:
        """Log-probs (temperature 1) of token_ids[num_prompt:] under the adapter loaded last."""
        ...

    async def load_adapter(self, adapter: Adapter) -> WeightVersion:
        """Make `adapter` the one that new requests use; echo step and the sha256 of the bytes that arrived."""
        ...

    async def use_base_model(self) -> WeightVersion:
        """Let new requests use no adapter. Evaluation alone asks for that; without it an engine refuses to sample."""
        ...

    async def close(self) -> None: ...


class Sampler(Protocol):
    """All engines together."""

    async def sample(self, prompts_P: Sequence[Prompt], *, step: int, first_place: int = 0) -> list[Group]:
        """G completions for each prompt, in their order. `first_place`: how many of this step came before them."""
        ...

    async def load_adapter(self, adapter: Adapter) -> list[WeightVersion]:
        """Load into every engine; the echo of each."""
        ...

    async def score(self, token_ids: Sequence[int], *, num_prompt: int) -> list[list[float]]:
        """Log-probs of token_ids[num_prompt:] as each engine computes them."""
        ...


class Verifier(Protocol):
    async def score(self, groups_P: Sequence[Group]) -> list[Group]:
        """The same groups, in the same order, with a verdict for every completion."""
        ...


class Learner(Protocol):
    async def fill_old_logprobs(self, minibatch: TrainBatch) -> TrainBatch:
        """With log-probs at the current weights, for batches that get several updates."""
        ...

    async def fill_reference_logprobs(self, minibatch: TrainBatch) -> TrainBatch:
        """With log-probs of the model with the adapter switched off."""
        ...

    async def step(self, minibatch: TrainBatch, *, step: int) -> UpdateStats:
        """One optimizer update, or none when no row has a gradient."""
        ...

    async def score(self, token_ids: Sequence[int], *, num_prompt: int) -> list[float]:
        """Log-probs (temperature 1) of token_ids[num_prompt:] at the current weights."""
        ...

    async def export_adapter(self) -> Adapter: ...

    async def export_state(self) -> LearnerState: ...

    async def load_state(self, state: LearnerState) -> None: ...


class Evaluation(Protocol):
    """Evaluations in the course of a run."""

    def is_due(self, step: int) -> bool: ...

    async def run(self, state: RunState) -> tuple[dict[str, Any], dict[str, float]]:
        """Of the weights that the engines hold: the summary record, and its numbers under the names of metrics.py."""
        ...


class Tracker(Protocol):
    """Where a run is watched. A tracker never stops training: what it cannot deliver it keeps and says."""

    def log_config(self, config: Mapping[str, Any]) -> None: ...

    def log_step(self, metrics: StepMetrics) -> None: ...

    def log_rollouts(self, record: StepRecord) -> None: ...

    def log_evaluation(self, step: int, summary: Mapping[str, Any], values: Mapping[str, float]) -> None: ...

    def log_checkpoint(self, state: RunState, path: str) -> None: ...

    def close(self, status: str) -> None:
        """`status`: FINISHED, FAILED or KILLED."""
        ...
