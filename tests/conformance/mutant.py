"""Runs tests of the objective against a copy of the package that has one deliberate fault.

In this process, so that a fault costs a fraction of a second: package and tests are imported anew from the copy and
forgotten again. Tests that need a fixture or search with hypothesis (slow to shrink) are left out.
"""

from __future__ import annotations

import importlib
import itertools
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
RELOADED = ("gspo_ray", "tests.unit.algo", "tests.unit.factories")  # imported anew for every copy
INVALID = (NameError, AttributeError, TypeError, ImportError)  # the copy cannot run: no test has found anything


class Mutation(NamedTuple):
    fault: str
    file: str  # of gspo_ray/algo
    tests: str  # the module of tests/unit/algo that is to find it
    before: str  # stands once in the file
    after: str


def first_failure(tests: str, mutation: Mutation | None) -> str | None:
    """The first test of this module that fails in a copy of the package with the fault; None: all of them pass.

    Raises ValueError when the source text does not stand there exactly once, and lets errors through that only code
    which cannot run gives: either way the table has to follow the package.
    """
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "gspo_ray"
        shutil.copytree(ROOT / "gspo_ray", package, ignore=shutil.ignore_patterns("__pycache__"))
        if mutation is not None:
            path = package / "algo" / mutation.file
            source = path.read_text(encoding="utf-8")
            if (count := source.count(mutation.before)) != 1:
                raise ValueError(
                    f"{mutation.fault}: {count} times in algo/{mutation.file}, not once: {mutation.before!r}"
                )
            path.write_text(source.replace(mutation.before, mutation.after), encoding="utf-8")
        with _imported_from(Path(folder)):
            module = importlib.import_module(f"tests.unit.algo.{tests}")
            algo = Path(str(importlib.import_module("gspo_ray.algo.losses").__file__))
            assert algo.is_relative_to(package), f"{algo} is not the copy"
            return _first_failure(module)


@contextmanager
def _imported_from(folder: Path) -> Iterator[None]:
    """The package of `folder` and the tests that use it, imported anew; afterwards everything is as it was."""
    kept = {name: module for name, module in sys.modules.items() if _is_reloaded(name)}
    writes = sys.dont_write_bytecode
    try:
        for name in kept:
            del sys.modules[name]
        sys.path.insert(0, str(folder))
        sys.dont_write_bytecode = True
        importlib.invalidate_caches()
        yield
    finally:
        sys.dont_write_bytecode = writes
        sys.path.remove(str(folder))
        for name in [name for name in sys.modules if _is_reloaded(name)]:
            del sys.modules[name]
        sys.modules.update(kept)


def _is_reloaded(name: str) -> bool:
    return any(name == root or name.startswith(f"{root}.") for root in RELOADED)


def _first_failure(module: ModuleType) -> str | None:
    for name, function in vars(module).items():
        if not name.startswith("test_") or hasattr(function, "hypothesis"):
            continue
        for arguments in _parameters(function):
            try:
                function(**arguments)
            except INVALID:
                raise
            except (Exception, pytest.fail.Exception):
                return f"{module.__name__.rpartition('.')[2]}.py::{name}"
    return None


def _parameters(function: Callable[..., None]) -> Iterator[dict[str, Any]]:
    """Every combination of the test's `parametrize` marks."""
    axes: list[list[dict[str, Any]]] = []
    for mark in getattr(function, "pytestmark", []):
        if mark.name == "parametrize":
            names, values = mark.args
            many = not isinstance(names, str)
            axes.append([dict(zip(names, value, strict=True)) if many else {names: value} for value in values])
    for choice in itertools.product(*axes):
        yield {name: value for arguments in choice for name, value in arguments.items()}
