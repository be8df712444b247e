"""The numeric gap between sampler and learner as a run has measured it, beside what Gaussian noise would give."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import NormalDist, fmean, pstdev
from typing import Any

import yaml

from gspo_ray.errors import DataError
from gspo_ray.lab.experiment import Table
from gspo_ray.lab.recorded import read_jsonl
from gspo_ray.tracking.local import METRICS_FILE, ROLLOUTS_DIR, read_metrics

STD = "mismatch/seq_log_ratio_std"
# The share outside the band; a run from before the two were told apart has it under the second name.
OUTSIDE = ("mismatch/outside_frac", "mismatch/clip_frac")
BUCKETS = (0, 32, 128, 512, 2048, 8192)  # lengths in tokens
TABLE_ROWS = 12


def read_measured(run: Path, eps_low: float | None, eps_high: float | None) -> dict[str, Any]:
    """Numbers by step from metrics.jsonl and, where the rollouts hold them, by length. Raises DataError.

    The band is that of the run's config.yaml, unless given.
    """
    file = run / METRICS_FILE
    if not file.is_file():
        raise DataError(f"--run {run}: no {METRICS_FILE} there; name the folder that holds config.yaml")
    try:
        records = read_metrics(file)
    except ValueError as error:
        raise DataError(f"{file}: not valid JSON ({error})") from error
    band = {} if eps_low and eps_high else _band(run)
    low, high = eps_low or band["eps_low"], eps_high or band["eps_high"]
    steps = [_step(record, low, high) for record in records if record.get(STD) is not None]
    if not steps:
        raise DataError(
            f"{file}: no step has {STD}; the gap is measured when the learner scores a batch at the sampling weights"
        )
    return {"run": str(run), "eps_low": low, "eps_high": high, "steps": steps, "lengths": _by_length(run, low, high)}


def _band(run: Path) -> dict[str, float]:
    """algo.eps_low and algo.eps_high."""
    file = run / "config.yaml"
    try:
        algo = yaml.safe_load(file.read_text(encoding="utf-8"))["algo"]
        return {key: float(algo[key]) for key in ("eps_low", "eps_high")}
    except (OSError, yaml.YAMLError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"{file}: no algo.eps_low and algo.eps_high can be read there; give both as options") from error


def _step(record: Mapping[str, Any], low: float, high: float) -> dict[str, Any]:
    """Measured share, the one a Gaussian of the measured mean and std has, and the std of independent token noise."""
    mean, std = record.get("mismatch/seq_log_ratio_mean") or 0.0, record[STD]
    # mean |x| of a Gaussian is std * sqrt(2 / pi)
    token_noise = (record.get("mismatch/token_abs_diff_mean") or 0.0) * math.sqrt(math.pi / 2)
    length = record.get("completion/len_mean")
    return {
        "step": record["step"],
        "outside": next((record[name] for name in OUTSIDE if record.get(name) is not None), None),
        "outside_gaussian": _outside(mean, std, low, high),
        "seq_log_ratio_mean": mean,
        "seq_log_ratio_std": std,
        "mean_length": length,
        "token_noise": token_noise,
        "std_of_independent_noise": token_noise / math.sqrt(length) if length else None,
    }


def _outside(mean: float, std: float, low: float, high: float) -> float:
    if std == 0:
        return float(not math.log1p(-low) <= mean <= math.log1p(high))
    normal = NormalDist(mean, std)
    return normal.cdf(math.log1p(-low)) + 1 - normal.cdf(math.log1p(high))


def _by_length(run: Path, low: float, high: float) -> list[dict[str, Any]]:
    """One entry a bucket of lengths; [] when the rollouts hold no gap of single sequences."""
    found = list(_sequences(run))
    buckets = []
    for first, after in zip(BUCKETS, (*BUCKETS[1:], math.inf), strict=True):
        some = [(tokens, gap) for tokens, gap in found if first <= tokens < after]
        if some:
            gaps = [gap for _, gap in some]
            buckets.append(
                {
                    "first": first,
                    "mean_length": fmean(tokens for tokens, _ in some),
                    "sequences": len(some),
                    "outside": fmean(not 1 - low <= math.exp(gap) <= 1 + high for gap in gaps),
                    "seq_log_ratio_std": pstdev(gaps),
                }
            )
    return buckets


def _sequences(run: Path) -> Iterator[tuple[int, float]]:
    """(tokens, mean token log-prob gap of learner and sampler) of each completion for which it was measured."""
    for file in sorted((run / ROLLOUTS_DIR).glob("step_*.jsonl")):
        for _, row in read_jsonl(file):
            # The gap is that before any update: the same in every update that knows it.
            known = (update["mismatch"] for update in row.get("updates", ()) if update.get("mismatch"))
            if (mismatch := next(known, None)) is not None:
                yield int(row["tokens"]), float(mismatch["log_ratio"])


def measured_table(measured: Mapping[str, Any]) -> Table:
    if measured["lengths"]:
        rows = [["tokens from", "sequences", "outside", "std of log ratio", "std x sqrt(tokens)"]]
        rows += [
            [
                str(row["first"]),
                str(row["sequences"]),
                f"{row['outside']:.1%}",
                f"{row['seq_log_ratio_std']:.1e}",
                f"{row['seq_log_ratio_std'] * math.sqrt(row['mean_length']):.1e}",
            ]
            for row in measured["lengths"]
        ]
        return Table(title=f"measured in {measured['run']}, by length", rows=rows)
    rows = [["step", "tokens", "outside", "as a Gaussian", "std of log ratio", "token noise", "std if independent"]]
    every = max(1, math.ceil(len(measured["steps"]) / TABLE_ROWS))
    for row in measured["steps"][::every]:
        share, single = row["outside"], row["std_of_independent_noise"]
        rows.append(
            [
                str(row["step"]),
                "-" if row["mean_length"] is None else f"{row['mean_length']:.0f}",
                "-" if share is None else f"{share:.1%}",
                f"{row['outside_gaussian']:.1%}",
                f"{row['seq_log_ratio_std']:.1e}",
                f"{row['token_noise']:.1e}",
                "-" if single is None else f"{single:.1e}",
            ]
        )
    return Table(title=f"measured in {measured['run']}", rows=rows)


def measured_notes(measured: Mapping[str, Any]) -> list[str]:
    stds = [row["seq_log_ratio_std"] for row in measured["steps"]]
    narrow = min(measured["eps_low"], measured["eps_high"])
    verdict = "inside" if max(stds) < narrow / 2 else "not well inside"
    return [
        f"Measured: the gap of a sequence has a standard deviation of {min(stds):.1e} to {max(stds):.1e}, {verdict} "
        f"the band of {narrow:g}.",
        "Where it exceeds that of independent token noise, the errors of one sequence go the same way.",
    ]
