from pathlib import Path

import pytest

from gspo_ray.errors import ConfigError
from gspo_ray.planning.gpus import GPUS, gpu_named, known_gpus


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("NVIDIA A10G", "A10G"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA L40S", None),
        ("NVIDIA A100-SXM4-40GB", "A100-40"),
        ("NVIDIA A100-SXM4-80GB", "A100-80"),
        ("NVIDIA A100 80GB PCIe", "A100-80"),
        ("A100-80G", "A100-80"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H200", "H200"),
        ("h200", "H200"),
        ("A100", None),  # which of the two?
        ("NVIDIA GeForce RTX 4090", None),
        ("", None),
    ],
)
def test_names_of_cuda_and_of_ray(text: str, name: str | None) -> None:
    assert gpu_named(text, GPUS) == name


def test_a_file_changes_and_adds(tmp_path: Path) -> None:
    file = tmp_path / "gpus.yaml"
    new = "{memory_gib: 178, tflops: 2250, bandwidth_gb_s: 8000, learner_efficiency: 0.25}"
    file.write_text(f"H100: {{price_per_hour: 2.5}}\nB200: {new}\n")
    gpus = known_gpus(file)
    assert gpus["H100"].price_per_hour == 2.5
    assert gpus["H100"].tflops == GPUS["H100"].tflops
    assert gpus["B200"].price_per_hour is None
    assert gpu_named("B200", gpus) == "B200"
    assert known_gpus() == GPUS


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("H100: {price: 2}", r"H100.price: Extra inputs"),
        ("B200: {memory_gib: 178}", r"B200.tflops: Field required"),
        ("H100: {tflops: -1}", r"H100.tflops: Input should be greater than 0"),
        ("H100: 3", r"must hold `TYPE"),
        ("[", r"cannot be read"),
    ],
)
def test_a_file_that_is_wrong_is_refused_by_field(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "gpus.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=message):
        known_gpus(file)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        known_gpus(tmp_path / "none.yaml")
