"""How fast this machine multiplies matrices of the model's sizes, and nothing else."""

from __future__ import annotations

import torch

from gspo_ray.bench.case import Case, Limit
from gspo_ray.bench.flops import ModelSize, packed_work
from gspo_ray.bench.hardware import Stopwatch
from gspo_ray.bench.variants import train_batch

HEAD_ROWS = 256  # positions that go through the output head at once
REPEATS = 5


def measure_limit(size: ModelSize, case: Case) -> Limit:
    """Forward and input gradient of every linear layer over a micro-batch of packed rows, and of the head."""
    whole = packed_work(train_batch(case.groups)).tokens
    rows = min(whole, case.micro_batch_tokens)
    dtype = getattr(torch, case.model.dtype)
    by_shape: dict[str, float] = {}
    watch = Stopwatch(case.device)
    for count, (inputs, outputs) in [*((rows, shape) for shape in size.shapes), (HEAD_ROWS, size.head_shape)]:
        generator = torch.Generator(case.device).manual_seed(case.seed)
        options = {"generator": generator, "device": case.device, "dtype": dtype}
        x, gradient = torch.randn(count, inputs, **options), torch.randn(count, outputs, **options)
        weight = torch.randn(outputs, inputs, **options)
        for left, right in ((x, weight.T), (gradient, weight)):
            seconds = _best(left, right, case.device)
            name = f"{count} x {left.shape[1]} x {right.shape[1]}"
            by_shape[name] = 2 * count * inputs * outputs / seconds
    return Limit(flops_per_second=max(by_shape.values()), by_shape=by_shape, busy_others=watch.read().busy_others)


def _best(left: torch.Tensor, right: torch.Tensor, device: str) -> float:
    """Seconds. The result has its place already, as no new memory is the best case."""
    out = left @ right
    seconds = []
    for _ in range(REPEATS):
        watch = Stopwatch(device)
        torch.mm(left, right, out=out)
        seconds.append(watch.read().seconds)
    return min(seconds)
