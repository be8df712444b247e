"""One finished evaluation in the form that is estimated and compared, whatever file it came from.

Metrics, each the mean over problems of a number of one problem:
    average      avg@n: share of the n samples that are correct (pass@1, estimated from n samples)
    pass@k       unbiased, k = 2, 4, ... n; pass@n is "any of n", which other tools report as Pass@n
    majority     maj@n: the most frequent answer is right (ties as in `per_problem.majority_vote`)
    format       share of samples with a complete \\boxed{}
    truncated    share of samples that max_tokens cut off
    tokens       completion length
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from gspo_ray.errors import DataError
from gspo_ray.evaluation.intervals import Estimate, Floats, bootstrap, wilson
from gspo_ray.evaluation.per_problem import pass_name, reported_ks


def metric_names(samples_per_problem: int) -> tuple[str, ...]:
    """All of them, in the order of reports."""
    passes = [pass_name(k) for k in reported_ks(samples_per_problem)]
    return (*passes, "majority", "format", "truncated", "tokens")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Result:
    """P problems, n samples each. Without `values` only the means are known (a file of summaries alone)."""

    where: str  # "eval.jsonl:1", for messages
    is_base: bool  # no adapter
    step: int | None  # training step of the adapter, where it is known
    adapter: str | None  # its sha256, or the path that the file gives
    seed: int | None
    samples_per_problem: int
    max_tokens: int | None
    settings: Mapping[str, object]  # dotted names: what must agree to be compared
    means: Mapping[str, float]
    num_problems: int  # evaluated
    problem_ids: tuple[str, ...] = ()  # [P], sorted
    golds: tuple[str, ...] = ()  # [P]
    values: Mapping[str, Floats] = field(default_factory=dict)  # metric -> [P]
    failed: tuple[str, ...] = ()  # problems without a result, not counted in num_problems
    runs: int = 1  # evaluations that were averaged

    @property
    def label(self) -> str:
        if self.is_base:
            return "Base"
        return f"Step {self.step}" if self.step is not None else f"Adapter {str(self.adapter)[:8]}"

    @property
    def metrics(self) -> tuple[str, ...]:
        """Those that it has, in the order of reports."""
        return tuple(name for name in metric_names(self.samples_per_problem) if name in self.means)

    @property
    def generations(self) -> int:
        return self.num_problems * self.samples_per_problem * self.runs

    @property
    def correct_generations(self) -> int:
        return round(self.means["average"] * self.generations)

    @property
    def top_metric(self) -> str:
        """pass@n, which is "any of n"; the average when n is 1."""
        return pass_name(self.samples_per_problem)

    def bounds(self, metric: str) -> tuple[float, float]:
        """Smallest and largest value that a problem can have."""
        if metric != "tokens":
            return 0.0, 1.0
        return 0.0, math.inf if self.max_tokens is None else float(self.max_tokens)

    def estimate(self, metric: str) -> Estimate:
        """Bootstrap over problems; Wilson on the number of problems when only means are known."""
        lowest, highest = self.bounds(metric)
        if self.values:
            return bootstrap(self.values[metric], lowest=lowest, highest=highest)
        if not math.isfinite(highest):
            return Estimate(self.means[metric], math.nan, math.nan)
        return wilson(self.means[metric], self.num_problems, lowest=lowest, highest=highest)

    def only(self, problem_ids: Iterable[str]) -> Result:
        """The same of a part of its problems."""
        wanted = set(problem_ids)
        kept = [index for index, problem_id in enumerate(self.problem_ids) if problem_id in wanted]
        return _with_values(
            self,
            tuple(self.problem_ids[index] for index in kept),
            tuple(self.golds[index] for index in kept),
            {metric: values[kept] for metric, values in self.values.items()},
            self.runs,
        )


def with_rates(result: Result, rates: Mapping[str, Mapping[str, float]], golds: Mapping[str, str]) -> Result:
    """`result` with the numbers of its problems, problem_id -> metric -> number; the means follow from them."""
    ids = tuple(sorted(rates))
    shared = [metric for metric in rates[ids[0]] if all(metric in row for row in rates.values())]
    values = {metric: np.array([rates[problem_id][metric] for problem_id in ids]) for metric in shared}
    return _with_values(result, ids, tuple(golds[problem_id] for problem_id in ids), values)


def _with_values(
    result: Result, problem_ids: tuple[str, ...], golds: tuple[str, ...], values: Mapping[str, Floats], runs: int = 1
) -> Result:
    return replace(
        result,
        means={metric: float(np.mean(numbers)) for metric, numbers in values.items()},
        num_problems=len(problem_ids),
        problem_ids=problem_ids,
        golds=golds,
        values=values,
        runs=runs,
    )


def refuse_incomparable(results: Sequence[Result]) -> None:
    """Raises DataError when they were not made under the same settings, or a problem has two gold answers."""
    first = results[0]
    for other in results[1:]:
        for key in sorted(first.settings.keys() & other.settings.keys()):
            if first.settings[key] != other.settings[key]:
                raise DataError(
                    f"{other.where}: {key} is {other.settings[key]!r}, but {first.settings[key]!r} in {first.where}: "
                    "these results cannot be compared. Evaluate both with the same settings."
                )
        if not (first.values and other.values):
            if first.num_problems != other.num_problems:
                raise DataError(
                    f"{other.where}: {other.num_problems} problems, but {first.num_problems} in {first.where}, and "
                    "without the records of both there is no telling which they share"
                )
            continue
        golds = dict(zip(first.problem_ids, first.golds, strict=True))
        for problem_id, gold in zip(other.problem_ids, other.golds, strict=True):
            if golds.get(problem_id, gold) != gold:
                raise DataError(
                    f"{other.where}: problem {problem_id!r} has the answer {gold!r}, but {golds[problem_id]!r} in "
                    f"{first.where}: these are two problem sets"
                )
        common_problems((first, other))


def common_problems(results: Sequence[Result]) -> tuple[str, ...]:
    """Ids that all of them evaluated, sorted. Raises DataError when there are none."""
    common = set.intersection(*(set(result.problem_ids) for result in results))
    if not common:
        raise DataError(f"{results[-1].where} and {results[0].where} have no problem in common")
    return tuple(sorted(common))


def pooled(results: Sequence[Result]) -> Result:
    """Repeated evaluations of one model as one: per problem, the mean over them, on the problems common to all."""
    first = results[0]
    if len(results) == 1:
        return first
    refuse_incomparable(results)
    shared = [metric for metric in first.means if all(metric in result.means for result in results)]
    if all(result.values for result in results):
        ids = common_problems(results)
        parts = [result.only(ids) for result in results]
        values = {metric: np.mean([part.values[metric] for part in parts], axis=0) for metric in shared}
        return _with_values(parts[0], ids, parts[0].golds, values, len(results))
    means = {metric: math.fsum(result.means[metric] for result in results) / len(results) for metric in shared}
    return replace(first, means=means, problem_ids=(), golds=(), values={}, runs=len(results))
