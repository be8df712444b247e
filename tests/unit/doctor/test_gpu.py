import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from gspo_ray.doctor.finding import Level
from gspo_ray.doctor.gpu import GIB, Gpu, GpuFacts, _nvml, check_driver, check_gpus, check_nccl
from gspo_ray.doctor.selftest import use_freest_gpu

H100 = Gpu(0, "NVIDIA H100 80GB HBM3", total_bytes=80 * GIB, free_bytes=79 * GIB, ecc_errors=0)
GOOD = GpuFacts("580.65.06", (H100, replace(H100, index=1)), torch_cuda="13.0", torch_devices=2, nccl="2.29.7")
NONE = GpuFacts(None, (), torch_cuda=None, torch_devices=0, nccl=None)


@pytest.mark.parametrize(
    ("facts", "level", "says"),
    [
        (GOOD, Level.PASS, "driver 580.65.06, torch built for CUDA 13.0"),
        (replace(GOOD, driver="570.124.06"), Level.FAIL, "CUDA 13.0 needs 580 or newer"),
        (replace(GOOD, driver="525.60.13", torch_cuda="12.8"), Level.PASS, "525.60.13"),  # minor version compatibility
        (replace(GOOD, driver="470.82", torch_cuda="12.8"), Level.FAIL, "needs 525 or newer"),
        (replace(GOOD, torch_cuda=None), Level.FAIL, "CPU build"),
        (NONE, Level.SKIP, "no NVIDIA driver"),
    ],
)
def test_the_driver_must_be_new_enough_for_torch(facts: GpuFacts, level: Level, says: str) -> None:
    finding = check_driver(facts, wanted=True)
    assert finding.level is level
    assert says in finding.found
    assert bool(finding.fix) == (level is Level.FAIL)


def test_a_cpu_run_looks_at_no_gpu() -> None:
    for finding in (
        check_driver(GOOD, wanted=False),
        check_gpus(GOOD, wanted=False, needed_share=0.9),
        check_nccl(GOOD, wanted=False),
    ):
        assert finding.level is Level.SKIP


@pytest.mark.parametrize(
    ("gpu", "level", "says"),
    [
        (H100, Level.PASS, "79 GiB of 80 GiB free"),
        (replace(H100, free_bytes=30 * GIB, pids=(4711, 4712)), Level.WARN, "GPU 0 is taken by processes 4711, 4712"),
        (replace(H100, free_bytes=70 * GIB), Level.WARN, "90% of its memory"),  # 70 < 0.9 * 80
        (replace(H100, ecc_errors=3), Level.FAIL, "3 uncorrected memory errors"),
        (replace(H100, ecc_errors=None), Level.PASS, "H100"),
    ],
)
def test_memory_and_its_errors(gpu: Gpu, level: Level, says: str) -> None:
    finding = check_gpus(replace(GOOD, gpus=(gpu,), torch_devices=1), wanted=True, needed_share=0.9)
    assert finding.level is level
    assert says in finding.found


def test_a_gpu_that_torch_does_not_see_fails() -> None:
    finding = check_gpus(replace(GOOD, torch_devices=1), wanted=True, needed_share=0.9)
    assert finding.level is Level.FAIL
    assert "torch sees 1 GPUs, the driver 2" in finding.found


def test_gpus_without_nccl_fail() -> None:
    assert check_nccl(GOOD, wanted=True).found == "NCCL 2.29.7"
    assert check_nccl(replace(GOOD, nccl=None), wanted=True).level is Level.FAIL
    assert check_nccl(NONE, wanted=True).level is Level.SKIP


def test_the_engine_is_tried_on_the_freest_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    environment: dict[str, str] = {}
    monkeypatch.setattr("gspo_ray.doctor.selftest.os.environ", environment)
    busy = replace(H100, index=1, free_bytes=10 * GIB)
    assert use_freest_gpu(replace(GOOD, gpus=(busy, replace(H100, index=2)))) == ""
    assert environment == {"CUDA_VISIBLE_DEVICES": "2", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert "no GPU has memory left" in use_freest_gpu(replace(GOOD, gpus=(busy,)))
    assert "no GPU on this node" in use_freest_gpu(NONE)


class NvmlError(Exception):
    pass


def nvml(**calls: Any) -> SimpleNamespace:
    """NVIDIA's package, with a GPU of 80 GiB at each number."""

    def no_ecc(*_: Any) -> int:
        raise NvmlError

    plain = {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: 4,
        "nvmlSystemGetDriverVersion": lambda: "580.65.06",
        "nvmlDeviceGetHandleByIndex": lambda number: number,
        "nvmlDeviceGetName": lambda handle: f"GPU {handle}",
        "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(total=80 * GIB, free=handle * GIB),
        "nvmlDeviceGetTotalEccErrors": no_ecc,
        "nvmlDeviceGetComputeRunningProcesses": lambda handle: [SimpleNamespace(pid=7)],
        "NVML_MEMORY_ERROR_TYPE_UNCORRECTED": 1,
        "NVML_VOLATILE_ECC": 0,
        "NVMLError": NvmlError,
    }
    return SimpleNamespace(**plain | calls)


def test_nvml_is_asked_about_the_gpus_that_are_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml())
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,3")
    driver, gpus = _nvml()
    assert driver == "580.65.06"
    assert [(gpu.index, gpu.free_bytes // GIB, gpu.pids, gpu.ecc_errors) for gpu in gpus] == [
        (1, 1, (7,), None),
        (3, 3, (7,), None),
    ]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert [gpu.index for gpu in _nvml()[1]] == [0, 1, 2, 3]


def test_no_driver_and_no_package_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def init() -> None:
        raise NvmlError("Driver Not Loaded")

    monkeypatch.setitem(sys.modules, "pynvml", nvml(nvmlInit=init))
    assert _nvml() == (None, ())
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert _nvml() == (None, ())
