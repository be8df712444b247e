"""Ray shell around the learner. Synchronous: one device, one thing at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import ray

from gspo_ray.actors.memory import peak_memory_mib
from gspo_ray.algo.batch import TrainBatch
from gspo_ray.algo.stats import UpdateStats
from gspo_ray.types import Adapter, LearnerState

if TYPE_CHECKING:  # transformers and peft are for the learner's own process only
    from gspo_ray.learner.learner import LoraLearner

LearnerFactory = Callable[[], "LoraLearner"]


class LearnerActor:
    """The model is loaded by `start`, not by `__init__`: its errors then reach the driver as they are."""

    def __init__(self, factory: LearnerFactory) -> None:
        self._factory = factory

    def start(self) -> None:
        self._learner = self._factory()

    def fill_old_logprobs(self, minibatch: TrainBatch) -> TrainBatch:
        return self._learner.fill_old_logprobs(minibatch)

    def fill_reference_logprobs(self, minibatch: TrainBatch) -> TrainBatch:
        return self._learner.fill_reference_logprobs(minibatch)

    def step(self, minibatch: TrainBatch, *, step: int) -> UpdateStats:
        return self._learner.step(minibatch, step=step)

    def score(self, token_ids: Sequence[int], *, num_prompt: int) -> list[float]:
        return self._learner.score(token_ids, num_prompt=num_prompt)

    def export_adapter(self) -> Adapter:
        return self._learner.export_adapter()

    def export_state(self) -> LearnerState:
        return self._learner.export_state()

    def load_state(self, state: LearnerState) -> None:
        self._learner.load_state(state)

    def memory(self) -> float:
        return peak_memory_mib()


RemoteLearnerActor = ray.remote(LearnerActor)
