"""Many results as one study: the base, its checkpoints, and each of them against the base."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gspo_ray.errors import DataError
from gspo_ray.evaluation.compare import Difference, compare_family
from gspo_ray.evaluation.result import Result, pooled, refuse_incomparable
from gspo_ray.evaluation.result_files import read_result


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """The base or a checkpoint with its repeated evaluations."""

    runs: tuple[Result, ...]
    result: Result  # the runs, averaged problem by problem
    differences: dict[str, Difference] = field(default_factory=dict)  # metric -> against the base; empty for the base

    @property
    def label(self) -> str:
        return self.result.label


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    base: Model
    checkpoints: tuple[Model, ...]  # by step

    @property
    def models(self) -> tuple[Model, ...]:
        return (self.base, *self.checkpoints)

    @property
    def samples_per_problem(self) -> int:
        return self.base.result.samples_per_problem

    @property
    def best(self) -> Model | None:
        """By `best_rule`; None of one. A mark in a figure, not a claim: the highest of several is high by luck too."""
        if len(self.checkpoints) == 1:
            return None
        return max(self.checkpoints, key=lambda model: model.result.means["average"])

    @property
    def best_rule(self) -> str:
        return f"highest avg@{self.samples_per_problem} of the trained checkpoints, the earlier one on a tie"

    @property
    def has_records(self) -> bool:
        """Every result knows its problems, so that comparisons are paired."""
        return all(model.result.values for model in self.models)

    def shared_metrics(self) -> tuple[str, ...]:
        return tuple(name for name in self.base.result.metrics if all(name in m.result.means for m in self.models))


def read_study(paths: Sequence[Path]) -> Study:
    """Result files, or folders of them. Raises DataError for what cannot be read or does not belong together."""
    return build_study([read_result(file) for path in paths for file in _files(path)])


def build_study(results: Sequence[Result]) -> Study:
    """Repeated evaluations of the base, and of a step, are pooled; p-values are Holm-adjusted over the checkpoints."""
    base_runs = [result for result in results if result.is_base]
    if not base_runs:
        raise DataError(
            f"none of the {len(results)} results is of the base model, so there is nothing to compare with. "
            "Evaluate the model without an adapter and name that file too."
        )
    if len(base_runs) == len(results):
        raise DataError(f"all {len(results)} results are of the base model. Name those of trained checkpoints too.")
    refuse_incomparable(results)
    _refuse_repeats(results)
    base = Model(runs=tuple(base_runs), result=pooled(base_runs))
    groups = _by_adapter([result for result in results if not result.is_base])
    candidates = [pooled(runs) for runs in groups]
    families = {metric: compare_family(base.result, candidates, metric) for metric in base.result.metrics}
    checkpoints = [
        Model(
            runs=tuple(runs),
            result=result,
            differences={metric: family[index] for metric, family in families.items() if family},
        )
        for index, (runs, result) in enumerate(zip(groups, candidates, strict=True))
    ]
    return Study(base=base, checkpoints=tuple(checkpoints))


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(path.glob("*.jsonl"))
    if not files:
        raise DataError(f"{path}: no .jsonl file in this folder")
    return files


def _by_adapter(results: Sequence[Result]) -> list[list[Result]]:
    """Groups of one checkpoint each, by step; those without a step come last."""
    groups: dict[tuple[float, str], list[Result]] = {}
    for result in results:
        key = (math.inf, str(result.adapter)) if result.step is None else (float(result.step), "")
        groups.setdefault(key, []).append(result)
    for runs in groups.values():
        for other in runs[1:]:
            if other.adapter != runs[0].adapter:
                raise DataError(
                    f"{other.where}: another adapter at step {other.step} than in {runs[0].where}. "
                    "Analyse two training runs apart."
                )
    return [groups[key] for key in sorted(groups)]


def _refuse_repeats(results: Sequence[Result]) -> None:
    """A copy would count as a second run and make the spread look small."""
    seen: dict[object, Result] = {}
    for result in results:
        key = (result.is_base, result.step, result.adapter, result.seed, *sorted(result.means.items()))
        if key in seen:
            raise DataError(f"{result.where}: the same evaluation as {seen[key].where}. Name it once.")
        seen[key] = result
