"""Is the new result better than the old one? Paired over the problems that both evaluated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from gspo_ray.evaluation.intervals import Estimate, bootstrap, newcombe
from gspo_ray.evaluation.result import Result, common_problems, refuse_incomparable
from gspo_ray.evaluation.significance import (
    ALPHA,
    bound_p_value,
    bound_standard_error,
    detectable_difference,
    detectable_from_error,
    holm,
    sign_flip_p_value,
)


class Method(StrEnum):
    """Where the p-value comes from."""

    EXACT = "exact paired sign-flip test"
    SAMPLED = "paired sign-flip test, 20,000 seeded patterns"
    BOUND = "z test with the largest variance that the means allow, no problem records"


class Direction(StrEnum):
    """What is shown: only a Holm-adjusted p-value below 5 % shows anything."""

    HIGHER = "higher"
    LOWER = "lower"
    UNDECIDABLE = "undecidable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """new - base of one metric on `problems` common problems. The interval is of this comparison alone (95 %)."""

    metric: str
    problems: int
    base: float
    new: float
    interval: Estimate
    p_value: float
    p_adjusted: float  # Holm over the `tests` comparisons of its family
    tests: int
    detectable: (
        float  # smallest true difference found with 80 % power, corrected for `tests`, see `detectable_difference`
    )
    method: Method

    @property
    def value(self) -> float:
        return self.interval.value

    @property
    def direction(self) -> Direction:
        if self.p_adjusted >= ALPHA or self.value == 0:
            return Direction.UNDECIDABLE
        return Direction.HIGHER if self.value > 0 else Direction.LOWER


def compare_family(base: Result, candidates: Sequence[Result], metric: str) -> list[Difference]:
    """Each candidate against `base`, p-values Holm-adjusted over all of them.

    Empty when a file lacks the metric, or no statement is possible (mean lengths without max_tokens and records).
    Raises DataError for results that cannot be compared.
    """
    for candidate in candidates:
        refuse_incomparable((base, candidate))
    everything = (base, *candidates)
    if not all(metric in result.means for result in everything):
        return []
    paired = [bool(base.values and candidate.values) for candidate in candidates]
    if not all(paired) and not all(math.isfinite(result.bounds(metric)[1]) for result in everything):
        return []
    tests = len(candidates)
    drafts = [
        _paired(base, candidate, metric, tests) if is_paired else _bounded(base, candidate, metric, tests)
        for candidate, is_paired in zip(candidates, paired, strict=True)
    ]
    adjusted = holm([draft.p_value for draft in drafts])
    return [replace(draft, p_adjusted=value) for draft, value in zip(drafts, adjusted, strict=True)]


def compare(base: Result, new: Result) -> dict[str, Difference]:
    """Every metric that both have; one comparison, so nothing is adjusted."""
    families = {metric: compare_family(base, [new], metric) for metric in new.metrics}
    return {metric: family[0] for metric, family in families.items() if family}


def _paired(base: Result, new: Result, metric: str, tests: int) -> Difference:
    ids = common_problems((base, new))
    old_P, new_P = base.only(ids).values[metric], new.only(ids).values[metric]
    differences_P = new_P - old_P
    lowest, highest = new.bounds(metric)
    p_value, is_exact = sign_flip_p_value(
        differences_P, denominator=new.samples_per_problem * math.lcm(base.runs, new.runs)
    )
    return Difference(
        metric=metric,
        problems=len(ids),
        base=float(old_P.mean()),
        new=float(new_P.mean()),
        interval=bootstrap(differences_P, lowest=lowest - highest, highest=highest - lowest),
        p_value=p_value,
        p_adjusted=p_value,
        tests=tests,
        detectable=detectable_difference(differences_P, tests=tests),
        method=Method.EXACT if is_exact else Method.SAMPLED,
    )


def _bounded(base: Result, new: Result, metric: str, tests: int) -> Difference:
    lowest, highest = new.bounds(metric)
    old_mean, new_mean, count = base.means[metric], new.means[metric], new.num_problems
    p_value = bound_p_value(old_mean, new_mean, count, lowest=lowest, highest=highest)
    error = bound_standard_error(old_mean, new_mean, count, lowest=lowest, highest=highest)
    return Difference(
        metric=metric,
        problems=count,
        base=old_mean,
        new=new_mean,
        interval=newcombe(base.estimate(metric), new.estimate(metric)),
        p_value=p_value,
        p_adjusted=p_value,
        tests=tests,
        detectable=detectable_from_error(error, tests=tests),
        method=Method.BOUND,
    )
