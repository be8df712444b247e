"""Several verifier processes at once, for files of answers: audits, benchmarks, gold answers before a run."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from types import TracebackType
from typing import Self, TypeVar

from gspo_ray.reward.extract import ExtractionStyle
from gspo_ray.reward.pool import Examined, VerifierProcess

T = TypeVar("T")
R = TypeVar("R")


class VerifierPool:
    """`num_workers` VerifierProcesses; each takes the next item as soon as it is free, so a slow one holds up no other.

    Raises RewardError when a process cannot start.
    """

    def __init__(
        self, num_workers: int, *, timeout_s: float, memory_limit_mib: int, style: ExtractionStyle = "boxed"
    ) -> None:
        self._threads = ThreadPoolExecutor(num_workers)
        self._stack = ExitStack()
        self._stack.callback(self._threads.shutdown)

        def start(_: int) -> VerifierProcess:
            return VerifierProcess(timeout_s, memory_limit_mib, style)

        try:
            # In the threads that stay: a child dies with the thread that started it.
            self._verifiers = list(self._threads.map(start, range(num_workers)))
        except BaseException:
            self._stack.close()
            raise
        for verifier in self._verifiers:
            self._stack.callback(verifier.close)

    def examine(
        self, items: Sequence[tuple[str, str]], on_done: Callable[[int], None] = lambda index: None
    ) -> list[Examined]:
        """Verdicts and reasons for (completion, gold) pairs, in order. `on_done(index)` is called from the threads."""
        return self._spread(items, lambda verifier, item: verifier.examine([item])[0], on_done)

    def gold_faults(self, golds: Sequence[str]) -> list[str]:
        """Why each gold answer cannot be read, "" for one that can."""
        return self._spread(golds, lambda verifier, gold: verifier.gold_faults([gold])[0], lambda index: None)

    def close(self) -> None:
        """Kill the processes. May be called more than once."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _spread(
        self, items: Sequence[T], task: Callable[[VerifierProcess, T], R], on_done: Callable[[int], None]
    ) -> list[R]:
        results: dict[int, R] = {}
        numbers = itertools.count()  # shared by all threads; next() is atomic

        def work(verifier: VerifierProcess) -> None:
            while (number := next(numbers)) < len(items):
                results[number] = task(verifier, items[number])
                on_done(number)

        for future in [self._threads.submit(work, verifier) for verifier in self._verifiers]:
            future.result()
        return [results[number] for number in range(len(items))]
