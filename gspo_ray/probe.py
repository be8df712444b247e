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


@dataclass(slots=True)
class AdapterProbe:
    """`token_ids[num_prompt:]` is the probe completion; `tolerance` bounds the mean |log-prob gap| a token."""

    token_ids: tuple[int, ...]
    num_prompt: int
    tolerance: float
    _previous: list[float] | None = field(default=None, init=False)

    async def check(
        self, adapter: Adapter, echoes: Sequence[WeightVersion], sampler: Sampler, learner: Learner
    ) -> dict[str, float]:
        """Metrics of the push. Raises EngineError with both numbers when an engine holds other weights."""
        for number, echo in enumerate(echoes):
            if echo != adapter.version:
                raise EngineError(f"engine {number} echoes {echo}, but the learner pushed {adapter.version}")
        wanted = await learner.score(self.token_ids, num_prompt=self.num_prompt)
        scores = await sampler.score(self.token_ids, num_prompt=self.num_prompt)
        gaps = [_mean_gap(wanted, score) for score in scores]
        worst = max(range(len(gaps)), key=gaps.__getitem__)
        previous, self._previous = self._previous, wanted
        stale = _mean_gap(previous, scores[worst]) if previous is not None else float("inf")
        if gaps[worst] > self.tolerance:
            raise EngineError(
                f"engine {worst} does not sample from {adapter.version.name}: on the probe completion its mean "
                f"log-prob is {statistics.fmean(scores[worst]):.5f}, the learner's {statistics.fmean(wanted):.5f}; "
                f"the mean gap a token is {gaps[worst]:.2e}, allowed is {self.tolerance:.0e} (rollout.probe_tolerance)"
            )
        shift = _mean_gap(previous, wanted) if previous is not None else 0.0
        if shift > self.tolerance and stale < gaps[worst]:
            raise EngineError(
                f"engine {worst} still samples from the adapter before {adapter.version.name}: its probe log-probs are "
                f"{stale:.2e} a token from the old ones and {gaps[worst]:.2e} from the new ones"
            )
        return {
            "sync/version": float(adapter.version.step),
            "sync/adapter_bytes": float(len(adapter.payload)),
            "sync/probe_gap": gaps[worst],
            "sync/probe_tolerance": self.tolerance,
            "sync/probe_shift": shift,
        }


def _mean_gap(left: Sequence[float], right: Sequence[float]) -> float:
    gap = statistics.fmean(abs(a - b) for a, b in zip(left, right, strict=True))
    return math.inf if math.isnan(gap) else gap  # NaN compares as smaller than nothing: max() would overlook it
