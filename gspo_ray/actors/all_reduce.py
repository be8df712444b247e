"""Speed of the operation that learner ranks share gradients with, between all GPUs that are free."""

from __future__ import annotations

import time

import ray
import torch
import torch.distributed as dist
from ray.util import get_node_ip_address
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from gspo_ray.learner.distributed import Seat, connect_store, join, open_store

NUM_BYTES, WARM_UP, ROUNDS = 64 * 2**20, 3, 10
PLACEMENT_S, LIMIT_S = 60.0, 180.0


class Rank:
    """Meets the others as a learner rank does."""

    def meeting_point(self, *, size: int) -> tuple[str, int]:
        self._store = open_store(get_node_ip_address(), size=size)
        return self._store.host, self._store.port

    def speed(self, rank: int, *, size: int, meeting_point: tuple[str, int], device: str) -> float:
        """Bus bandwidth in bytes a second."""
        store = connect_store(*meeting_point, size=size) if rank else self._store
        join(Seat(rank, size, store, get_node_ip_address()), device=device)
        message = torch.zeros(NUM_BYTES // 4, device=device)
        self._rounds(message, WARM_UP)
        return 2 * (size - 1) / size * NUM_BYTES * ROUNDS / self._rounds(message, ROUNDS)

    def _rounds(self, message: torch.Tensor, count: int) -> float:
        started = time.perf_counter()
        for _ in range(count):
            dist.all_reduce(message)
        if message.is_cuda:
            torch.cuda.synchronize()
        return time.perf_counter() - started


RemoteRank = ray.remote(Rank)


def all_reduce_speed(size: int, *, device: str) -> float:
    """Of the slowest rank, in bytes a second. Raises RayError, for ranks that are not placed or hang too."""
    bundle = {"GPU": 1.0} if device == "cuda" else {"CPU": 0.1}
    group = placement_group([bundle] * size)
    ranks = []
    try:
        ray.get(group.ready(), timeout=PLACEMENT_S)
        ranks = [
            RemoteRank.options(
                num_cpus=bundle.get("CPU", 0.0),
                num_gpus=bundle.get("GPU", 0.0),
                scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=number),
            ).remote()
            for number in range(size)
        ]
        place = ray.get(ranks[0].meeting_point.remote(size=size), timeout=LIMIT_S)
        calls = [
            rank.speed.remote(number, size=size, meeting_point=place, device=device)
            for number, rank in enumerate(ranks)
        ]
        return min(ray.get(calls, timeout=LIMIT_S))
    finally:
        for rank in ranks:
            ray.kill(rank)
        remove_placement_group(group)
