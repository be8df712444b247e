"""95 % intervals of means over problems.

The problem is the unit that is resampled, never the generation: samples of one problem depend on each other, and
treating n samples of P problems as n * P independent draws makes intervals too narrow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from gspo_ray.seeding import derive_seed

CONFIDENCE = 0.95
RESAMPLES = 10_000
ROUNDING = 1e-12  # values closer than this are equal
_CHUNK = 500  # resamples held in memory at a time
_NORMAL = NormalDist()

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean and its 95 % interval; the ends are NaN where the data allow no statement."""

    value: float
    low: float
    high: float

    @property
    def is_known(self) -> bool:
        return math.isfinite(self.low)


def bootstrap(values_P: Floats, *, lowest: float = -math.inf, highest: float = math.inf) -> Estimate:
    """Expanded percentile interval of the mean over P problems (Hesterberg 2015, doi:10.1080/00031305.2015.1089789).

    A percentile interval at the level that gives a t interval its coverage: Phi(-sqrt(P/(P-1)) t) a side. Simulated
    coverage at P = 30 (n = 12, 3,000 repetitions): paired differences 0.949, average 0.953, where plain percentile
    gives 0.936 and 0.935 and BCa 0.924 and 0.951. Near a border all fall short (a mean of 0.05: 0.896, 0.880, 0.917).
    The seed of the draws is a function of P, so the same values give the same bits.

    `lowest` and `highest` bound every possible value. Equal values tell the bootstrap nothing: then, with both bounds
    known, the interval is the exact binomial one for "differs from what was seen".
    """
    count, mean = len(values_P), float(np.mean(values_P))
    if np.ptp(values_P) <= ROUNDING:
        return _all_equal(float(values_P[0]), count, lowest, highest)
    rng = np.random.Generator(np.random.PCG64(derive_seed(0, "bootstrap", count)))
    means = np.concatenate(
        [values_P[rng.integers(0, count, size=(_CHUNK, count))].mean(axis=1) for _ in range(RESAMPLES // _CHUNK)]
    )
    tail = _NORMAL.cdf(-math.sqrt(count / (count - 1)) * t_quantile((1 + CONFIDENCE) / 2, count - 1))
    low, high = np.quantile(means, [tail, 1 - tail])
    return Estimate(mean, float(low), float(high))


def wilson(mean: float, count: int, *, lowest: float = 0.0, highest: float = 1.0) -> Estimate:
    """Interval of a mean over `count` problems of which nothing but the mean is known.

    Values between `lowest` and `highest` with mean m vary by at most (highest - m)(m - lowest) (Bhatia & Davis 2000),
    reached when every problem sits at one end. Wilson's score interval with that variance holds however the samples
    of a problem depend on each other; it is too wide rather than too narrow.
    """
    share = (mean - lowest) / (highest - lowest)
    z = _NORMAL.inv_cdf((1 + CONFIDENCE) / 2)
    centre = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    low, high = max(0.0, centre - half), min(1.0, centre + half)
    return Estimate(mean, lowest + low * (highest - lowest), lowest + high * (highest - lowest))


def newcombe(old: Estimate, new: Estimate) -> Estimate:
    """Difference new - old of two means from their own Wilson intervals (Newcombe 1998, method 10).

    It takes them as independent. The same problems stand behind both, and a problem that is hard for one model tends
    to be hard for the other, so the paired difference varies less than this.
    """
    difference = new.value - old.value
    low = difference - math.hypot(new.value - new.low, old.high - old.value)
    high = difference + math.hypot(new.high - new.value, old.value - old.low)
    return Estimate(difference, low, high)


def t_quantile(probability: float, freedom: int) -> float:
    """Quantile of Student's t by its expansion in 1/freedom (Abramowitz & Stegun 26.7.5): within 0.1 % from 5 on."""
    z = _NORMAL.inv_cdf(probability)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / freedom ** (order + 1) for order, term in enumerate(terms))


def _all_equal(value: float, count: int, lowest: float, highest: float) -> Estimate:
    if not math.isfinite(lowest) or not math.isfinite(highest):
        return Estimate(value, math.nan, math.nan)
    unseen = 1 - ((1 - CONFIDENCE) / 2) ** (1 / count)  # largest share of other values that `count` draws could miss
    return Estimate(value, value - (value - lowest) * unseen, value + (highest - value) * unseen)
