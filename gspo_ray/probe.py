"""The proof that an adapter arrived: after every push, engines and learner must agree on a probe completion.

Trainers have shipped versions that sampled from the base model for months without an error: an adapter whose module
names do not fit loads without a word, and so does an id that the engine already knows.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from gspo_ray.errors import EngineError
from gspo_ray.interfaces import Learner, Sampler
from gspo_ray.types import Adapter, WeightVersion

DEFAULT_TOLERANCE = {"float32": 1e-3, "bfloat16": 0.1}
SHIFT_THAT_SHOWS = 1e-4  # mean |change| of a probe log-prob that no dtype can round away everywhere


@dataclass(slots=True)
class AdapterProbe:
    """`token_ids[num_prompt:]` is the probe completion; `tolerance` bounds the mean |log-prob gap| a token."""

    token_ids: tuple[int, ...]
    num_prompt: int
    tolerance: float
    _learner_before: list[float] | None = field(default=None, init=False)
    _engines_before: list[list[float]] = field(default_factory=list, init=False)

    async def check(
        self, adapter: Adapter, echoes: Sequence[WeightVersion], sampler: Sampler, learner: Learner
    ) -> dict[str, float]:
        """Metrics of the push. Raises EngineError with both numbers when an engine holds other weights."""
        for number, echo in enumerate(echoes):
            if echo != adapter.version:
                raise EngineError(f"engine {number} echoes {echo}, but the learner pushed {adapter.version}")
        wanted = await learner.score(self.token_ids, num_prompt=self.num_prompt)
        engines = await sampler.score(self.token_ids, num_prompt=self.num_prompt)
        gaps = [self._agrees(number, adapter, scores, wanted) for number, scores in enumerate(engines)]
        shift = 0.0
        if self._learner_before is not None:
            shift = _mean_gap(self._learner_before, wanted)
            for number, scores in enumerate(engines):
                self._moved(number, adapter, scores, wanted, shift)
        self._learner_before, self._engines_before = wanted, engines
        return {
            "sync/version": float(adapter.version.step),
            "sync/adapter_bytes": float(len(adapter.payload)),
            "sync/probe_gap": max(gaps),
            "sync/probe_tolerance": self.tolerance,
            "sync/probe_shift": shift,
        }

    def _agrees(self, number: int, adapter: Adapter, scores: list[float], wanted: list[float]) -> float:
        gap = _mean_gap(wanted, scores)
        if gap > self.tolerance:
            raise EngineError(
                f"engine {number} does not sample from {adapter.version.name}: on the probe completion its mean "
                f"log-prob is {statistics.fmean(scores):.5f}, the learner's {statistics.fmean(wanted):.5f}; "
                f"the mean gap a token is {gap:.2e}, allowed is {self.tolerance:.0e} (rollout.probe_tolerance)"
            )
        return gap

    def _moved(self, number: int, adapter: Adapter, scores: list[float], wanted: list[float], shift: float) -> None:
        """In bfloat16 one update is smaller than the tolerance; an engine that ignores it gives the very same bits."""
        assert self._learner_before is not None
        if shift > SHIFT_THAT_SHOWS and scores == self._engines_before[number]:
            raise EngineError(
                f"engine {number} ignores {adapter.version.name}: this update moved the learner's probe log-probs by "
                f"{shift:.2e} a token, and the engine's by exactly 0"
            )
        stale = _mean_gap(self._learner_before, scores)
        if shift > self.tolerance and stale < (gap := _mean_gap(wanted, scores)):
            raise EngineError(
                f"engine {number} still samples from the adapter before {adapter.version.name}: its probe log-probs "
                f"are {stale:.2e} a token from the old ones and {gap:.2e} from the new ones"
            )


def _mean_gap(left: Sequence[float], right: Sequence[float]) -> float:
    gap = statistics.fmean(abs(a - b) for a, b in zip(left, right, strict=True))
    return math.inf if math.isnan(gap) else gap  # NaN compares as smaller than nothing: max() would overlook it
