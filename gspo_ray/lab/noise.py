"""`lab noise`: how often numeric noise alone puts a sequence outside the clip band, by length and noise of a token.

With independent token noise of standard deviation sigma the log of the ratio has sigma / sqrt(length): short answers
are the worst case, and the band must be wider than that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Any

import torch

from gspo_ray.algo.aggregation import Divisor
from gspo_ray.algo.losses import Objective, policy_loss, sequence_log_ratio
from gspo_ray.lab import bounds
from gspo_ray.lab.experiment import Experiment, Table
from gspo_ray.lab.figures_runs import draw_noise
from gspo_ray.lab.golden import Check, equal
from gspo_ray.lab.measured import measured_notes, measured_table, read_measured

LENGTHS = tuple(2**k for k in range(4, 14))  # 16 to 8192
NOISES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 2e-2, 3e-2)
PAPER_BAND = (3e-4, 4e-4)
# (noise, length) -> share outside the paper's band, published in whole percents
PUBLISHED = {
    (0.01, 128): 0.69,
    (0.01, 512): 0.43,
    (0.01, 1024): 0.27,
    (0.01, 4096): 0.03,
    (0.02, 128): 0.84,
    (0.02, 512): 0.69,
    (0.02, 1024): 0.58,
    (0.02, 4096): 0.27,
}
TOLERATED = 0.05  # share outside that the table of noise limits allows
CHUNK_TOKENS = 2**20
SIGMAS = 4.5  # standard errors that a simulated share may be off: one in 150,000 is off by more


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseSettings:
    lengths: Sequence[int] = LENGTHS
    noises: Sequence[float] = NOISES
    samples: int = 4000  # simulated sequences a length
    seed: int = 0
    eps_low: float | None = None  # None: those of the run, else the paper's
    eps_high: float | None = None

    def check(self) -> None:
        """Raises ConfigError for the first value out of bounds."""
        for length in self.lengths:
            bounds.whole("--lengths", length, at_least=1, at_most=131_072)
        for noise in self.noises:
            bounds.real("--noise", noise, above=0, at_most=1)
        bounds.whole("--samples", self.samples, at_least=100, at_most=100_000)
        bounds.whole("--seed", self.seed, at_least=0, at_most=bounds.MOST_SEED)
        for option, value in (("--eps-low", self.eps_low), ("--eps-high", self.eps_high)):
            if value is not None:
                bounds.epsilon(value, option)


def run(*, source: Path | None = None, settings: NoiseSettings | None = None) -> Experiment:
    """`source`: the folder of a run whose measured shares are shown beside. Raises ConfigError or DataError."""
    settings = settings or NoiseSettings()
    settings.check()
    lengths, noises = sorted(set(settings.lengths)), sorted(set(settings.noises))
    measured = None if source is None else read_measured(source, settings.eps_low, settings.eps_high)
    band = PAPER_BAND if measured is None else (measured["eps_low"], measured["eps_high"])
    low = band[0] if settings.eps_low is None else settings.eps_low
    high = band[1] if settings.eps_high is None else settings.eps_high
    cells = simulate(lengths, noises, samples=settings.samples, seed=settings.seed, eps_low=low, eps_high=high)
    report: dict[str, Any] = {
        "experiment": "noise",
        "scope": "independent Gaussian noise on each token's log-prob, no update",
        "torch": torch.__version__,
        "eps_low": low,
        "eps_high": high,
        "samples": settings.samples,
        "seed": settings.seed,
        "lengths": lengths,
        "noises": noises,
        "cells": cells,
        "noise_limits": [
            {"length": length, "share": TOLERATED, "noise": noise_limit(length, low, high)} for length in lengths
        ],
        "published": [
            {"noise": noise, "length": length, "share": share} for (noise, length), share in PUBLISHED.items()
        ]
        if (low, high) == PAPER_BAND
        else [],
        "measured": measured,
    }
    tables = [_shares(report), _limits(report)]
    return Experiment(
        name="noise",
        title=f"Sequences that noise alone puts outside the band -{low:g} / +{high:g}",
        report=report,
        checks=_checks(report),
        tables=tables if measured is None else [*tables, measured_table(measured)],
        notes=[] if measured is None else measured_notes(measured),
        size_inches=(12.0, 6.2),
        draw=draw_noise,
    )


def closed_form(length: int, noise: float, eps_low: float, eps_high: float) -> float:
    """P(s < 1 - eps_low or s > 1 + eps_high) for log s normal with standard deviation noise / sqrt(length)."""
    normal, scale = NormalDist(), noise / math.sqrt(length)
    return normal.cdf(math.log1p(-eps_low) / scale) + normal.cdf(-math.log1p(eps_high) / scale)


def noise_limit(length: int, eps_low: float, eps_high: float) -> float:
    """The token noise at which 5 % of the sequences of this length lie outside, by bisection."""
    low, high = 0.0, 10.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if closed_form(length, middle, eps_low, eps_high) > TOLERATED else (middle, high)
    return low


def simulate(
    lengths: Sequence[int], noises: Sequence[float], *, samples: int, seed: int, eps_low: float, eps_high: float
) -> list[dict[str, Any]]:
    """One cell a length and noise. Every token is drawn; all noises scale the same draws."""
    generator = torch.Generator().manual_seed(seed)
    cells = []
    for length in lengths:
        unit_B = _mean_of_unit_noise(samples, length, generator)
        for noise in noises:
            expected = closed_form(length, noise, eps_low, eps_high)
            share = _share_outside(noise * unit_B, eps_low, eps_high)
            cells.append({"length": length, "noise": noise, "simulated": share, "closed_form": expected})
    return cells


def _mean_of_unit_noise(samples: int, length: int, generator: torch.Generator) -> torch.Tensor:
    """[samples]: log of the sequence ratio when each token's log-prob is off by N(0, 1)."""
    means = []
    rows = max(1, CHUNK_TOKENS // length)
    for start in range(0, samples, rows):
        noise_BT = torch.randn(min(rows, samples - start), length, generator=generator, dtype=torch.float64)
        means.append(
            sequence_log_ratio(noise_BT, torch.zeros_like(noise_BT), torch.ones_like(noise_BT, dtype=torch.bool))
        )
    return torch.cat(means)


def _share_outside(log_ratio_B: torch.Tensor, eps_low: float, eps_high: float) -> float:
    """As the loss counts it: the clip sees the mean log-ratio alone, so one token stands for the sequence."""
    count = len(log_ratio_B)
    _, terms = policy_loss(
        log_ratio_B[:, None],
        torch.zeros(count, 1, dtype=torch.float64),
        torch.ones(count, 1, dtype=torch.bool),
        torch.zeros(count, dtype=torch.float64),
        objective=Objective(eps_low=eps_low, eps_high=eps_high),
        divisor=Divisor(num_sequences=count, num_tokens=count, max_tokens=1),
    )
    return int(terms.outside_tokens_B.sum()) / count


def _checks(report: dict[str, Any]) -> list[Check]:
    low, high, samples = report["eps_low"], report["eps_high"], report["samples"]
    checks = []
    for row in report["published"]:
        ours = closed_form(row["length"], row["noise"], low, high)
        name = f"published: noise {row['noise']:g}, {row['length']} tokens"
        checks.append(equal(name, row["share"], ours, within=0.01))
    # A share of nearly 0 or 1 has next to no standard error; one sequence of the sample is the resolution.
    worst = max(
        abs(cell["simulated"] - p) / max(math.sqrt(p * (1 - p) / samples), 1 / samples)
        for cell in report["cells"]
        for p in [cell["closed_form"]]
    )
    name = f"simulated minus closed form, the worst of {len(report['cells'])}, in standard errors"
    checks.append(equal(name, 0.0, worst, within=SIGMAS))
    return checks


def _shares(report: dict[str, Any]) -> Table:
    cells = {(cell["length"], cell["noise"]): cell for cell in report["cells"]}
    rows = [["tokens", *(f"noise {noise:g}" for noise in report["noises"])]]
    for length in report["lengths"]:
        row = [cells[length, noise] for noise in report["noises"]]
        rows.append([str(length), *(f"{cell['simulated']:.1%} ({cell['closed_form']:.1%})" for cell in row)])
    return Table(title="share outside, simulated (in closed form), no update at all", rows=rows)


def _limits(report: dict[str, Any]) -> Table:
    rows = [["tokens", *(str(row["length"]) for row in report["noise_limits"])]]
    rows.append(["noise", *(f"{row['noise']:.1e}" for row in report["noise_limits"])])
    return Table(title=f"token noise that leaves {1 - TOLERATED:.0%} of the sequences inside", rows=rows)
