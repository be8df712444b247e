"""What may import what. A new module is added to LAYERS; a new exception needs a reason beside it."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2] / "gspo_ray"

# Bottom to top. A module imports from lower layers and from its own package, never from its siblings.
LAYERS = (
    ("types", "config", "errors", "seeding", "commands", "openmp"),
    ("interfaces", "models", "config_io", "advice"),
    ("algo", "data", "rollout", "reward", "learner", "tracking", "evaluation"),
    ("probe", "checkpoint", "job_files", "audit", "prepare", "analyse"),
    ("controller", "evaluate", "inputs", "run_dir", "adapters", "lab"),
    ("report", "training_eval", "doctor", "planning"),
    ("actors",),
    ("train", "submit", "eval_job"),
    ("bench",),
    ("cli",),
)
SIBLINGS = {  # importing unit -> what it may take from its own layer
    "rollout": ("data.prompts",),  # the sampler's view of a prompt
    "learner": ("algo",),
    "tracking": ("algo",),  # metrics of the loss
}
TYPE_CHECKING_ONLY = {"interfaces": ("algo",)}  # algo imports torch; the Protocols stay importable without it

HOME_OF = {  # heavy library -> the only files that import it
    "ray": (
        "actors/*.py",
        "submit.py",
    ),
    "vllm": ("rollout/engine_vllm.py", "rollout/vllm_worker.py"),
    "peft": ("learner/*.py", "planning/*.py"),
    "mlflow": ("tracking/mlflow_*.py", "doctor/services.py"),
    "transformers": (
        "learner/*.py",
        "planning/*.py",
        "models.py",
        "inputs.py",
        "prepare/tokens.py",
        "bench/*.py",
        "doctor/selftest.py",
    ),
    "math_verify": ("reward/*.py",),
    "torch": (
        "algo/*.py",
        "learner/*.py",
        "lab/*.py",
        "cli/lab.py",
        "models.py",
        "rollout/vllm_worker.py",
        "actors/*.py",
        "bench/*.py",
        "doctor/*.py",
        "planning/*.py",
    ),
    "matplotlib": ("tracking/plots.py", "analyse/*.py", "lab/*.py"),
}


class Import(NamedTuple):
    file: Path  # relative to the package
    line: int
    target: str  # dotted
    type_checking: bool


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def imports_of(path: Path) -> Iterator[Import]:
    """All of them, those inside functions too."""
    file = path.relative_to(ROOT)

    def walk(node: ast.AST, type_checking: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                for alias in child.names:
                    yield Import(file, child.lineno, alias.name, type_checking)
            elif isinstance(child, ast.ImportFrom):
                assert child.level == 0, f"{file}:{child.lineno}: relative import"
                assert child.module is not None
                for alias in child.names:
                    yield Import(file, child.lineno, f"{child.module}.{alias.name}", type_checking)
            else:
                # The else branch of `if TYPE_CHECKING` does not occur here.
                yield from walk(child, type_checking or is_type_checking(child))

    yield from walk(ast.parse(path.read_text(encoding="utf-8")), False)


FILES = sorted(ROOT.rglob("*.py"))
IMPORTS = [item for path in FILES for item in imports_of(path)]


def unit_of(file: Path) -> str:
    return file.parts[0].removesuffix(".py")


def layer_of(unit: str) -> int:
    return next(number for number, layer in enumerate(LAYERS) if unit in layer)


def is_within(target: str, modules: tuple[str, ...]) -> bool:
    return any(target == module or target.startswith(f"{module}.") for module in modules)


def test_every_module_has_a_layer() -> None:
    units = {unit_of(path.relative_to(ROOT)) for path in FILES} - {"__init__"}
    assert units == {unit for layer in LAYERS for unit in layer}


def test_imports_point_downwards_only() -> None:
    wrong = []
    for item in IMPORTS:
        head, _, target = item.target.partition(".")
        if head != "gspo_ray" or target in ("", "__version__"):
            continue
        source, unit = unit_of(item.file), target.split(".")[0]
        assert source != "__init__", f"{item.file}:{item.line}: the package itself imports nothing"
        if source == unit:
            continue
        if item.type_checking and is_within(target, TYPE_CHECKING_ONLY.get(source, ())):
            continue
        here, there = layer_of(source), layer_of(unit)
        if there > here or (there == here and not is_within(target, SIBLINGS.get(source, ()))):
            wrong.append(f"{item.file}:{item.line} imports {item.target}")
    assert wrong == []


@pytest.mark.parametrize("library", HOME_OF)
def test_a_heavy_library_is_imported_only_where_it_belongs(library: str) -> None:
    importers = {item.file for item in IMPORTS if item.target.split(".")[0] == library}
    strangers = [str(file) for file in importers if not any(file.match(home) for home in HOME_OF[library])]
    assert importers
    assert strangers == []


@pytest.mark.parametrize(
    ("modules", "absent"),
    [
        (
            ("config", "config_io", "types", "errors", "seeding", "interfaces"),
            "ray vllm transformers mlflow peft torch",
        ),
        (("cli.main", "models", "checkpoint", "run_dir"), "ray vllm transformers mlflow peft torch"),
        (
            tuple(f"algo.{path.stem}" for path in sorted((ROOT / "algo").glob("*.py")) if path.stem != "__init__"),
            "ray vllm transformers mlflow peft",
        ),
        (("controller",), "ray vllm transformers mlflow peft"),
        (("tracking.local", "tracking.console", "tracking.composite"), "ray vllm transformers mlflow peft torch"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_light_modules_stay_light(modules: tuple[str, ...], absent: str) -> None:
    code = f"import sys; import {', '.join('gspo_ray.' + module for module in modules)}; "
    code += f"print(*[name for name in {absent.split()!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT.parent)
    assert done.stdout.strip() == ""


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_has_at_most_300_lines(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 300
