"""GPUs of a node: NVML tells what is there, torch what it was built for; the judging needs neither."""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass
from functools import cache
from typing import Any

from gspo_ray.doctor.finding import Finding, Level, Problem, judged

GIB = 2**30
# Major CUDA version that torch was built with -> oldest driver branch on Linux
# (https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html).
OLDEST_DRIVER = {11: 450, 12: 525, 13: 580}
_GPU_SET = "pip install --no-deps -r docker/requirements-gpu.txt"


@dataclass(frozen=True, slots=True)
class Gpu:
    index: int
    name: str
    total_bytes: int
    free_bytes: int
    pids: tuple[int, ...] = ()
    """Processes that compute on it; numbers of the host, not of a container."""
    ecc_errors: int | None = None
    """Uncorrected, since the driver was loaded. None: the GPU does not count them."""


@dataclass(frozen=True, slots=True)
class GpuFacts:
    driver: str | None
    """None: no NVIDIA driver on this node."""
    gpus: tuple[Gpu, ...]
    """Those that CUDA_VISIBLE_DEVICES leaves, where it is set to numbers."""
    torch_cuda: str | None
    """None: torch was built without CUDA."""
    torch_devices: int
    nccl: str | None


def check_driver(facts: GpuFacts | None = None, *, wanted: bool) -> Finding:
    """`wanted`: cluster.device is cuda."""
    if not wanted:
        return Finding("GPU driver", Level.SKIP, "cluster.device is cpu")
    facts = facts or probe()
    if facts.driver is None:
        return Finding("GPU driver", Level.SKIP, "no NVIDIA driver: engines and learner go to other nodes")
    found = f"driver {facts.driver}, torch built for CUDA {facts.torch_cuda or '-'}"
    if facts.torch_cuda is None:
        return Finding("GPU driver", Level.FAIL, f"{found}: this torch is a CPU build", _GPU_SET)
    major, oldest = int(facts.driver.split(".")[0]), OLDEST_DRIVER.get(int(facts.torch_cuda.split(".")[0]))
    if oldest is not None and major < oldest:
        text = f"the driver is too old: CUDA {facts.torch_cuda} needs {oldest} or newer"
        fix = f"Install driver {oldest} or newer on the host, or torch for an older CUDA."
        return judged("GPU driver", found, [Problem(Level.FAIL, text, fix)])
    return Finding("GPU driver", Level.PASS, found)


def check_gpus(facts: GpuFacts | None = None, *, wanted: bool, needed_share: float) -> Finding:
    """`needed_share`: of a GPU's memory, that an engine takes when it starts (gpu_memory_utilization)."""
    if not wanted:
        return Finding("GPUs", Level.SKIP, "cluster.device is cpu")
    facts = facts or probe()
    if facts.driver is None:
        return Finding("GPUs", Level.SKIP, "none on this node")
    texts = [f"{gpu.index}: {gpu.name}, {_gib(gpu.free_bytes)} of {_gib(gpu.total_bytes)} free" for gpu in facts.gpus]
    problems = [problem for gpu in facts.gpus for problem in _problems(gpu, needed_share)]
    if facts.torch_cuda is not None and facts.torch_devices < max(1, len(facts.gpus)):
        text = f"torch sees {facts.torch_devices} GPUs, the driver {len(facts.gpus)}"
        fix = "Start the container with its GPUs (--gpus all) and look at CUDA_VISIBLE_DEVICES and the kernel's log."
        problems.append(Problem(Level.FAIL, text, fix))
    return judged("GPUs", "; ".join(texts), problems)


def _problems(gpu: Gpu, needed_share: float) -> list[Problem]:
    problems = []
    if gpu.free_bytes < needed_share * gpu.total_bytes:
        by = f" by processes {', '.join(map(str, gpu.pids))}" if gpu.pids else ""
        text = f"GPU {gpu.index} is taken{by}: an engine wants {needed_share:.0%} of its memory"
        fix = "End what holds the GPU (a run that is going on is fine), or lower rollout.engine.gpu_memory_utilization."
        problems.append(Problem(Level.WARN, text, fix))
    if gpu.ecc_errors:
        text = f"GPU {gpu.index} has {gpu.ecc_errors} uncorrected memory errors"
        problems.append(Problem(Level.FAIL, text, "Take the node out, reset the GPU, replace it if they come back."))
    return problems


def check_nccl(facts: GpuFacts | None = None, *, wanted: bool) -> Finding:
    if not wanted or not (facts := facts or probe()).gpus:
        return Finding("NCCL", Level.SKIP, "no GPUs to connect")
    if facts.nccl is None:
        return Finding("NCCL", Level.FAIL, "torch has none: several GPUs cannot work on one model", _GPU_SET)
    return Finding("NCCL", Level.PASS, f"NCCL {facts.nccl}")


@cache
def probe() -> GpuFacts:
    """Of this node. torch counts devices without making a context, so nothing is taken from whoever uses them."""
    import torch

    nccl = None
    if torch.distributed.is_available() and torch.distributed.is_nccl_available():
        nccl = ".".join(map(str, torch.cuda.nccl.version()))
    driver, gpus = _nvml()
    return GpuFacts(driver, gpus, torch.version.cuda, torch.cuda.device_count(), nccl)


def driver_version() -> str | None:
    """None on a node without the driver, or without NVIDIA's Python package, which the GPU set has."""
    return _nvml()[0]


def _nvml() -> tuple[str | None, tuple[Gpu, ...]]:
    try:
        pynvml: Any = importlib.import_module("pynvml")
    except ImportError:
        return None, ()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None, ()
    try:
        count, seen = pynvml.nvmlDeviceGetCount(), os.environ.get("CUDA_VISIBLE_DEVICES", "")
        numbers = [int(word) for word in seen.split(",") if word.strip().isdigit()] or range(count)
        driver = str(pynvml.nvmlSystemGetDriverVersion())
        return driver, tuple(_gpu(pynvml, number) for number in numbers if number < count)
    finally:
        pynvml.nvmlShutdown()


def _gpu(nvml: Any, number: int) -> Gpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(number)
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    try:
        errors = nvml.nvmlDeviceGetTotalEccErrors(
            handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
        )
    except nvml.NVMLError:  # GPUs without ECC
        errors = None
    try:
        pids = tuple(process.pid for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle))
    except nvml.NVMLError:  # not for everyone
        pids = ()
    name = str(nvml.nvmlDeviceGetName(handle))
    return Gpu(number, name, memory.total, memory.free, pids, errors)


def _gib(size: float) -> str:
    return f"{size / GIB:.0f} GiB"
