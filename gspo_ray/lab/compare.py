"""`lab compare`: what different published settings make of identical rollouts: gradients and clip shares."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gspo_ray.errors import ConfigError
from gspo_ray.lab import bounds
from gspo_ray.lab.experiment import Experiment, Table
from gspo_ray.lab.figures_runs import draw_compare
from gspo_ray.lab.golden import Check, equal, in_spread, shown
from gspo_ray.lab.gradients import PAPER, SETTINGS, TOKEN_MEAN, against, compare, gradient, token_mean_cosine
from gspo_ray.lab.recorded import perturbed, read_current, read_run, synthetic

PUBLISHED_COSINE, PUBLISHED_ERROR = 0.69, 0.72  # token mean against the paper, one ragged batch of 16 sequences
PAPER_CUT_TOKENS = {"gspo": 0.15, "grpo": 0.0013}
DEFAULT_NOISE = 0.01
MOST_SEQUENCES = 1024  # of the built-in batch


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareSettings:
    groups: int = 2  # of the built-in batch
    group_size: int = 8
    noise: float | None = None  # std of a token's log-prob; None: 0.01, or none with log-probs from a file
    update: float = 0.0  # nats a token along the advantage: a simulated policy step
    seed: int = 0
    batches: int = 100  # built-in batches that the spread of token mean is taken over

    @property
    def built_in(self) -> tuple[int, int, int]:
        """What shapes the built-in batch."""
        return self.groups, self.group_size, self.batches

    def check(self) -> None:
        """Raises ConfigError for the first value out of bounds."""
        bounds.whole("--groups", self.groups, at_least=1)
        bounds.whole("--group-size", self.group_size, at_least=2)
        bounds.whole("--groups times --group-size", self.groups * self.group_size, at_least=2, at_most=MOST_SEQUENCES)
        bounds.real("--noise", 0.0 if self.noise is None else self.noise, at_least=0, at_most=1)
        bounds.real("--update", self.update, at_least=-1, at_most=1)
        bounds.whole("--seed", self.seed, at_least=0, at_most=bounds.MOST_SEED)
        bounds.whole("--batches", self.batches, at_least=10, at_most=10_000)


def run(
    *,
    source: Path | None = None,
    step: int | None = None,
    current: Path | None = None,
    settings: CompareSettings | None = None,
) -> Experiment:
    """`source`: a run's folder or a rollouts file; None: the built-in batch. `current`: log-probs of other weights.

    Raises ConfigError or DataError.
    """
    settings = settings or CompareSettings()
    settings.check()
    if current is not None and (source is None or settings.noise is not None or settings.update):
        raise ConfigError("--current holds log-probs of a run's rollouts: give --run, and neither --noise nor --update")
    if step is not None and source is None:
        raise ConfigError("--step picks a step of a run: give --run")
    if source is not None and settings.built_in != CompareSettings().built_in:
        raise ConfigError("--groups, --group-size and --batches shape the built-in batch: leave them out with --run")
    if source is None:
        recorded = synthetic(groups=settings.groups, group_size=settings.group_size, seed=settings.seed)
    else:
        recorded = read_run(source, step=step)
    noise = DEFAULT_NOISE if settings.noise is None else settings.noise
    if current is None:
        current_BT = perturbed(recorded, noise=noise, update=settings.update, seed=settings.seed + 1)
        change = f"token noise {noise:g}, update {settings.update:g}, seed {settings.seed + 1}"
    else:
        current_BT, change = read_current(current, recorded), f"from {current}"
    closed_form = token_mean_cosine(recorded, current_BT)
    report: dict[str, Any] = {
        "experiment": "compare",
        "scope": "gradients for the log-probs of recorded tokens; no model",
        "torch": torch.__version__,
        "rollouts": recorded.source,
        "synthetic": recorded.synthetic,
        "change": change,
        "sequences": len(recorded.lens_B),
        "tokens": int(recorded.lens_B.sum()),
        "lengths": recorded.lens_B.tolist(),
        "settings": compare(recorded, current_BT),
        "token_mean_cosine_closed_form": closed_form,
    }
    if recorded.synthetic:
        report["token_mean_spread"] = token_mean_spread(settings, noise)
    notes = [
        f"Rollouts: {recorded.source}.",
        f"Current log-probs: {change}. Cosine and error are against GSPO as published.",
        "cut: the clip takes the gradient; outside: the ratio leaves the band, cut or not.",
    ]
    if closed_form is None:
        notes.append("No sequence has a gradient: the rewards of every group are equal, or the clip cuts all.")
    return Experiment(
        name="compare",
        title=f"{len(SETTINGS)} settings on the same {len(recorded.lens_B)} rollouts of "
        f"{int(recorded.lens_B.min())} to {int(recorded.lens_B.max())} tokens",
        report=report,
        checks=_checks(report),
        tables=[_table(report["settings"])],
        notes=notes,
        size_inches=(13.0, 5.6),
        draw=draw_compare,
    )


def token_mean_spread(settings: CompareSettings, noise: float) -> dict[str, Any] | None:
    """Cosine and relative error of token mean over many built-in batches: median and the middle 90 %.

    None when no batch has a gradient.
    """
    found = []
    for seed in range(settings.batches):
        recorded = synthetic(groups=settings.groups, group_size=settings.group_size, seed=seed)
        current_BT = perturbed(recorded, noise=noise, update=settings.update, seed=seed + 1)
        paper_BT, mean_BT = (gradient(SETTINGS[name], recorded, current_BT)[0] for name in (PAPER, TOKEN_MEAN))
        cosine, error = against(mean_BT, paper_BT)
        if cosine is not None and error is not None:
            found.append((cosine, error))
    if not found:
        return None
    low, median, high = np.quantile(np.array(found), [0.05, 0.5, 0.95], axis=0)
    spread: dict[str, Any] = {
        name: {"low": float(low[i]), "median": float(median[i]), "high": float(high[i])}
        for i, name in enumerate(("cosine", "relative_error"))
    }
    return spread | {"batches": len(found)}


def _checks(report: dict[str, Any]) -> list[Check]:
    rows, checks = report["settings"], []
    if (closed_form := report["token_mean_cosine_closed_form"]) is not None:
        checks += [
            equal("GSPO-token against GSPO: cosine", 1.0, rows["gspo_token"]["cosine"], within=1e-12),
            equal("GSPO-token against GSPO: relative error", 0.0, rows["gspo_token"]["relative_error"], within=1e-12),
            equal("token mean, these rollouts: cosine", closed_form, rows[TOKEN_MEAN]["cosine"], within=1e-12),
        ]
    if spread := report.get("token_mean_spread"):
        for key, golden in (("cosine", PUBLISHED_COSINE), ("relative_error", PUBLISHED_ERROR)):
            span, of = spread[key], f"the middle 90 % of {spread['batches']} such batches"
            name = f"token mean, a published batch (ours: median): {key.replace('_', ' ')}"
            checks.append(in_spread(name, golden, span["median"], low=span["low"], high=span["high"], of=of))
    for name, golden in PAPER_CUT_TOKENS.items():
        label = f"tokens cut by the clip, GSPO paper: {name.upper()}"
        checks.append(shown(label, golden, rows[name]["cut_tokens"], why="another model and other data"))
    return checks


def _table(rows: dict[str, dict[str, Any]]) -> Table:
    lines = [["setting", "gradient", "cosine", "error", "cut seq.", "cut tok.", "outside seq.", "outside tok."]]
    for row in rows.values():
        shares = (row[key] for key in ("cut_sequences", "cut_tokens", "outside_sequences", "outside_tokens"))
        measures = (row["cosine"], row["relative_error"])
        lines.append(
            [
                row["label"],
                f"{row['gradient_norm']:.3e}",
                *("-" if value is None else f"{value:.4f}" for value in measures),
                *(f"{share:.2%}" for share in shares),
            ]
        )
    return Table(title="gradients and clip shares", rows=lines)
