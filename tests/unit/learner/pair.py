"""Two processes that are two ranks, started once; functions of the ranks are run in both of them."""

import multiprocessing
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch

from gspo_ray.learner.distributed import Seat, connect_store, join, open_store

HOST = "127.0.0.1"
PATIENCE_S = 120.0


class Raised(NamedTuple):
    """What a function raised in a rank."""

    error: Exception
    trace: str


class Pair:
    def __init__(self) -> None:
        self._store = open_store(HOST, size=2)
        context = multiprocessing.get_context("spawn")
        self._pipes, self._processes = [], []
        for rank in (0, 1):
            here, there = context.Pipe()
            process = context.Process(target=_serve, args=(rank, self._store.port, there), daemon=True)
            process.start()
            there.close()
            self._pipes.append(here)
            self._processes.append(process)

    def outcomes(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
        """function(ranks, ...) of both ranks; `Raised` where it raised. Fails when a rank hangs."""
        for pipe in self._pipes:
            pipe.send((function, args, kwargs))
        answers = []
        for rank, pipe in enumerate(self._pipes):
            if not pipe.poll(PATIENCE_S):
                self.close()
                pytest.fail(f"rank {rank} hangs in {function.__name__}")
            answers.append(pipe.recv())
        return answers

    def __call__(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
        """The same for a function that must not raise."""
        answers = self.outcomes(function, *args, **kwargs)
        for answer in answers:
            assert not isinstance(answer, Raised), answer.trace
        return answers

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.join()


def _serve(rank: int, port: int, pipe: Any) -> None:
    torch.set_num_threads(1)
    ranks = join(Seat(rank, 2, connect_store(HOST, port, size=2), HOST), device="cpu")
    while True:
        try:
            function, args, kwargs = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send(function(ranks, *args, **kwargs))
        except Exception as error:
            pipe.send(Raised(error, traceback.format_exc()))
