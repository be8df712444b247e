"""Ray shell around one rank of the learner. Synchronous: one device, one thing at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import ray
from ray.util import get_node_ip_address

from gspo_ray.actors.memory import peak_memory_mib
from gspo_ray.algo.batch import TrainBatch
from gspo_ray.algo.stats import UpdateStats
from gspo_ray.learner.distributed import Seat, connect_store, open_store
from gspo_ray.types import Adapter, LearnerState

if TYPE_CHECKING:  # transformers and peft are for the learner's own process only
    from gspo_ray.learner.learner import LoraLearner

LearnerFactory = Callable[[Seat | None], "LoraLearner"]  # None: the only rank


class LearnerActor:
    """The model is loaded by `start`, not by `__init__`: its errors then reach the driver as they are."""

    def __init__(self, factory: LearnerFactory) -> None:
        self._factory = factory

    def meeting_point(self, *, size: int) -> tuple[str, int]:
        """Opened in rank 0: host and port where `size` ranks find each other."""
        self._store = open_store(get_node_ip_address(), size=size)
        return self._store.host, self._store.port

    def start(self) -> None:
        """As the only rank."""
        self._learner = self._factory(None)

    def start_rank(self, rank: int, *, size: int, meeting_point: tuple[str, int]) -> None:
        store = connect_store(*meeting_point, size=size) if rank else self._store
        self._learner = self._factory(Seat(rank, size, store, get_node_ip_address()))

    def follow(self, call: str, *arguments: Any, **named: Any) -> None:
        """Take part in a call whose answer is rank 0's."""
        getattr(self._learner, call)(*arguments, **named)

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

    def describe(self) -> str:
        return self._learner.how_rows_are_computed

    def memory(self) -> float:
        return peak_memory_mib()


RemoteLearnerActor = ray.remote(LearnerActor)
