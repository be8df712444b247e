"""Ray shell around one verifier process. Synchronous, one call at a time: a verifier is never shared by threads."""

from __future__ import annotations

from collections.abc import Sequence

import ray

from gspo_ray.reward.extract import ExtractionStyle
from gspo_ray.reward.pool import VerifierProcess
from gspo_ray.types import Verdict


class RewardActor:
    """The process is started by `start`, not by `__init__`: its errors then reach the driver as they are."""

    def __init__(self, *, timeout_s: float, memory_limit_mib: int, style: ExtractionStyle = "boxed") -> None:
        self._timeout_s, self._memory_limit_mib, self._style = timeout_s, memory_limit_mib, style

    def start(self) -> None:
        self._verifier = VerifierProcess(self._timeout_s, self._memory_limit_mib, self._style)

    def score(self, items: Sequence[tuple[str, str]]) -> list[Verdict]:
        """Verdicts for (completion text, gold answer) pairs, in order."""
        return self._verifier.score(items)

    def close(self) -> None:
        self._verifier.close()


RemoteRewardActor = ray.remote(RewardActor)
