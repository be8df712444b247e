"""The doctor's view of real GPUs. No GPU has run these yet."""

import pytest
import torch

from gspo_ray.doctor.finding import Level
from gspo_ray.doctor.gpu import check_driver, check_gpus, check_nccl, probe

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(900)]

needs_one = pytest.mark.skipif(torch.cuda.device_count() < 1, reason="needs a CUDA device")
needs_two = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")


@needs_one
def test_nvml_and_torch_see_the_same_gpus():
    facts = probe()
    assert facts.driver is not None
    assert len(facts.gpus) == facts.torch_devices == torch.cuda.device_count()
    assert {gpu.name for gpu in facts.gpus} == {torch.cuda.get_device_name(n) for n in range(len(facts.gpus))}
    assert all(0 < gpu.free_bytes <= gpu.total_bytes for gpu in facts.gpus)


@needs_one
def test_a_sound_node_passes():
    assert check_driver(wanted=True).level is Level.PASS
    assert check_nccl(wanted=True).level is Level.PASS
    assert check_gpus(wanted=True, needed_share=0.1).level in (Level.PASS, Level.WARN)


@needs_one
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_the_engine_passes_its_test(dtype, monkeypatch):
    from gspo_ray.doctor.selftest import check_engine

    for name, value in {"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}.items():
        monkeypatch.setenv(name, value)  # the check sets them for its process
    finding = check_engine("cuda", dtype)
    assert finding.level is Level.PASS, finding.found


@needs_two
def test_all_reduce_is_measured_between_two_gpus():
    import ray

    from gspo_ray.actors.all_reduce import all_reduce_speed

    ray.init(address="local", num_cpus=2, num_gpus=2, include_dashboard=False, log_to_driver=False)
    try:
        assert all_reduce_speed(2, device="cuda") > 1e8
    finally:
        ray.shutdown()
