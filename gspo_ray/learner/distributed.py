"""Several learners as one: the few things that ranks say to each other. One rank alone has the same interface.

Every rank makes the same calls in the same order. A rank that fails says so where the others wait for it, so that all
of them raise and none waits for ever; but see `join`.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol, TypeVar

import psutil
import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import Parameter

from gspo_ray.errors import LearnerError

T = TypeVar("T")
# The longest that a rank waits for the slowest one. A rank that died is noticed at once, by its closed connection.
TIMEOUT = timedelta(minutes=30)
# nccl sums gradients on GPUs; what ranks say to each other besides is small and stays on the CPU.
BACKENDS = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl"}
INTEGER = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class PeerError(LearnerError):
    """This rank is sound and cannot go on because of another one, whose own error tells more."""


class Ranks(Protocol):
    rank: int
    size: int

    def run(self, work: Callable[[], T]) -> list[T]:
        """What `work` gave on every rank, in their order. Where it raised, that error; on the others PeerError."""
        ...

    def sum_gradients(self, parameters: Sequence[Parameter]) -> None:
        """Every gradient becomes the sum over ranks, to the same bits on all of them. A rank without a gradient counts
        as zeros; a parameter that has none on any rank keeps none."""
        ...

    def require_equal(self, tensors: Iterable[Tensor], what: str) -> None:
        """Raises LearnerError, on every rank, that names the rank whose tensors differ from those of rank 0."""
        ...


class _Alone:
    rank, size = 0, 1

    def run(self, work: Callable[[], T]) -> list[T]:
        return [work()]

    def sum_gradients(self, parameters: Sequence[Parameter]) -> None:
        pass

    def require_equal(self, tensors: Iterable[Tensor], what: str) -> None:
        pass


ALONE: Ranks = _Alone()


@dataclass(frozen=True, slots=True)
class Seat:
    """A place among several ranks."""

    rank: int
    size: int
    store: dist.Store  # where they meet: rank 0's own, the others' connection to it
    node_ip: str


def open_store(host: str, *, size: int) -> dist.TCPStore:
    """On a port that is free; `.port` tells which. Ends with the process."""
    return dist.TCPStore(host, 0, size, is_master=True, timeout=TIMEOUT, wait_for_workers=False)


def connect_store(host: str, port: int, *, size: int) -> dist.TCPStore:
    return dist.TCPStore(host, port, size, is_master=False, timeout=TIMEOUT, wait_for_workers=False)


def join(seat: Seat, *, device: str, in_step: bool = False) -> Ranks:
    """Waits for the other ranks. `in_step`: the model itself needs all ranks at every layer. Then a rank that fails
    raises at once, and the others, which wait for it inside the model, must be ended from outside."""
    if (interface := _interface_of(seat.node_ip)) is not None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
    dist.init_process_group(BACKENDS[device], store=seat.store, rank=seat.rank, world_size=seat.size, timeout=TIMEOUT)
    return ProcessRanks(seat.rank, seat.size, in_step=in_step)


class ProcessRanks:
    """Processes of one torch.distributed group, which is the default group of this process."""

    def __init__(self, rank: int, size: int, *, in_step: bool = False) -> None:
        self.rank, self.size = rank, size
        self._in_step = in_step

    def run(self, work: Callable[[], T]) -> list[T]:
        try:
            mine: tuple[str | None, Any] = (None, work())
        except Exception as error:
            if not self._in_step:
                with suppress(PeerError):  # they are gone: nobody is left to be told
                    self._gather((f"{type(error).__name__}: {error}", None))
            raise
        answers = self._gather(mine)
        for rank, (problem, _) in enumerate(answers):
            if problem is not None:
                raise PeerError(f"learner rank {rank} failed with {problem}")
        return [answer for _, answer in answers]

    @torch.no_grad()
    def sum_gradients(self, parameters: Sequence[Parameter]) -> None:
        has_P = torch.tensor([p.grad is not None for p in parameters], dtype=torch.float32, device=parameters[0].device)
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        message = torch.cat([has_P, *(grad.reshape(-1) for grad in grads)])
        self._all_reduce(message)
        has_P, *sums = message.split([len(parameters), *(p.numel() for p in parameters)])
        for parameter, has, total in zip(parameters, has_P.tolist(), sums, strict=True):
            parameter.grad = total.view_as(parameter) if has else None

    def require_equal(self, tensors: Iterable[Tensor], what: str) -> None:
        first, *others = self._gather(checksum(tensors))
        for rank, other in enumerate(others, start=1):
            if other != first:
                raise LearnerError(
                    f"{what} of learner rank {rank} is not that of rank 0: they must be equal bit by bit"
                )

    def _gather(self, mine: T) -> list[T]:
        answers: list[Any] = [None] * self.size
        try:
            dist.all_gather_object(answers, mine)
        except RuntimeError as error:  # gloo and nccl know no narrower type
            raise PeerError(f"learner rank {self.rank} lost the other ranks: {error}") from error
        return answers

    def _all_reduce(self, message: Tensor) -> None:
        try:
            dist.all_reduce(message, op=dist.ReduceOp.SUM)
        except RuntimeError as error:
            raise PeerError(f"learner rank {self.rank} lost the other ranks: {error}") from error


def checksum(tensors: Iterable[Tensor]) -> int:
    """Of their bits, in 64 of them. One number comes off the device, whatever the size of the tensors."""
    bits = [t.detach().reshape(-1).view(INTEGER[t.element_size()]).sum(dtype=torch.int64) for t in tensors]
    return int((torch.stack(bits) * torch.arange(1, 2 * len(bits), 2, device=bits[0].device)).sum())


def _interface_of(ip: str) -> str | None:
    """gloo would look for the address of the host's name, which is often that of another interface, or of none."""
    for name, addresses in psutil.net_if_addrs().items():
        if any(address.family == socket.AF_INET and address.address == ip for address in addresses):
            return name
    return None
