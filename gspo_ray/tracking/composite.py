"""Several trackers as one: what one of them cannot do is said once and stops neither the others nor training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gspo_ray.algo.record import StepRecord
from gspo_ray.interfaces import Tracker
from gspo_ray.types import RunState, StepMetrics


class CompositeTracker:
    """Hands every call to each tracker in turn.

    An Exception of one tracker is reported by name the first time, counted, and the total is said at close.
    KeyboardInterrupt and the like pass through.
    """

    def __init__(self, trackers: Sequence[Tracker], *, warn: Callable[[str], None]) -> None:
        self._trackers = tuple(trackers)
        self._warn = warn
        self._failures: Counter[str] = Counter()

    def log_config(self, config: Mapping[str, Any]) -> None:
        self._each("log_config", lambda tracker: tracker.log_config(config))

    def log_step(self, metrics: StepMetrics) -> None:
        self._each("log_step", lambda tracker: tracker.log_step(metrics))

    def log_rollouts(self, record: StepRecord) -> None:
        self._each("log_rollouts", lambda tracker: tracker.log_rollouts(record))

    def log_evaluation(self, step: int, summary: Mapping[str, Any], values: Mapping[str, float]) -> None:
        self._each("log_evaluation", lambda tracker: tracker.log_evaluation(step, summary, values))

    def log_checkpoint(self, state: RunState, path: str) -> None:
        self._each("log_checkpoint", lambda tracker: tracker.log_checkpoint(state, path))

    def close(self, status: str) -> None:
        """Close every tracker, whatever the others do."""
        self._each("close", lambda tracker: tracker.close(status))
        for name, count in self._failures.items():
            if count > 1:
                self._warn(f"{name} failed {count} times in this run; what it missed is not in its records.")

    def _each(self, method: str, call: Callable[[Tracker], None]) -> None:
        for tracker in self._trackers:
            try:
                call(tracker)
            except Exception as error:
                name = type(tracker).__name__
                self._failures[name] += 1
                if self._failures[name] == 1:
                    self._warn(
                        f"{name}.{method} failed: {type(error).__name__}: {error}. Training goes on without it; "
                        "further failures of this tracker are only counted."
                    )
