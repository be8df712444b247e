"""Is a difference more than chance, and how small a one could this set have shown?"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from gspo_ray.evaluation.intervals import ROUNDING, Floats, t_quantile
from gspo_ray.seeding import derive_seed

ALPHA = 0.05
POWER = 0.8
SAMPLED_FLIPS = 20_000
_MAX_LATTICE_WORK = 100_000_000  # additions: a tenth of a second
_MAX_ENUMERATED = 16  # problems that differ
_TIE = 1e-9  # relative: sums that are equal but for rounding
_NORMAL = NormalDist()


def sign_flip_p_value(differences_P: Floats, *, denominator: int) -> tuple[float, bool]:
    """Two-sided p-value of the paired permutation test, and whether it is exact.

    Without an effect each problem's difference is as likely with the other sign: p is the share of the 2**P sign
    patterns whose sum is at least as far from 0 as the one seen. Exact when the differences are multiples of
    1 / `denominator` (shares of n samples are), or when at most 16 of them are not zero; else from 20,000 seeded
    patterns, the one seen included.
    """
    nonzero = np.abs(differences_P[np.abs(differences_P) > ROUNDING])
    if len(nonzero) == 0:
        return 1.0, True
    observed = abs(float(differences_P.sum()))
    units = np.rint(nonzero * denominator).astype(np.int64)
    is_lattice = bool(np.all(np.abs(nonzero * denominator - units) < 1e-6))
    if is_lattice and int(units.sum()) * len(units) <= _MAX_LATTICE_WORK:
        return _lattice(units, round(observed * denominator)), True
    least = observed * (1 - _TIE)
    if len(nonzero) <= _MAX_ENUMERATED:
        signs = np.array(list(itertools.product((-1.0, 1.0), repeat=len(nonzero))))
        return float(np.mean(np.abs(signs @ nonzero) >= least)), True
    rng = np.random.Generator(np.random.PCG64(derive_seed(0, "sign-flip", len(nonzero))))
    hits = 0
    for _ in range(SAMPLED_FLIPS // 1000):
        flipped = np.where(rng.random((1000, len(nonzero))) < 0.5, -nonzero, nonzero)
        hits += int(np.count_nonzero(np.abs(flipped.sum(axis=1)) >= least))
    return (hits + 1) / (SAMPLED_FLIPS + 1), False


def bound_p_value(old_mean: float, new_mean: float, count: int, *, lowest: float, highest: float) -> float:
    """Two-sided z test of two means over `count` problems each, with the largest variance that their bounds allow."""
    error = bound_standard_error(old_mean, new_mean, count, lowest=lowest, highest=highest)
    return 1.0 if error == 0 else 2 * _NORMAL.cdf(-abs(new_mean - old_mean) / error)


def bound_standard_error(old_mean: float, new_mean: float, count: int, *, lowest: float, highest: float) -> float:
    pooled = (old_mean + new_mean) / 2
    return math.sqrt(2 * max(0.0, (highest - pooled) * (pooled - lowest)) / count)


def detectable_difference(differences_P: Floats, *, tests: int = 1) -> float:
    """Smallest true mean difference found with 80 % power by a two-sided 5 % test, Bonferroni over `tests`.

    (t_{1 - 0.05 / (2 tests)} + t_{0.8}) * sd / sqrt(P) with P - 1 degrees of freedom. Infinite when even the smallest
    p-value of P sign flips, 2 / 2**P, shows nothing (5 problems and fewer); NaN when all differences are equal:
    nothing is known then of how they vary.
    """
    count = len(differences_P)
    if 2.0 ** (1 - count) >= ALPHA / tests:
        return math.inf
    if np.ptp(differences_P) <= ROUNDING:
        return math.nan
    quantiles = t_quantile(1 - ALPHA / (2 * tests), count - 1) + t_quantile(POWER, count - 1)
    return quantiles * float(np.std(differences_P, ddof=1)) / math.sqrt(count)


def detectable_from_error(standard_error: float, *, tests: int = 1) -> float:
    """The same for a normal test with a known standard error."""
    return (_NORMAL.inv_cdf(1 - ALPHA / (2 * tests)) + _NORMAL.inv_cdf(POWER)) * standard_error


def _lattice(units: NDArray[np.int64], observed: int) -> float:
    """P(|sum of +-units| >= observed) from the distribution of the sum that is flipped, built problem by problem."""
    chances = np.ones(1)
    for unit in units:
        grown = np.zeros(len(chances) + unit)
        grown[: len(chances)] = chances / 2
        grown[unit:] += chances / 2
        chances = grown
    total = len(chances) - 1
    distances = np.abs(total - 2 * np.arange(total + 1))
    return min(1.0, float(chances[distances >= observed].sum()))


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values (Holm 1979): the chance of even one false claim in the family stays at most ALPHA.

    Example: holm([0.01, 0.04, 0.03]) == [0.03, 0.06, 0.06]
    """
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted
