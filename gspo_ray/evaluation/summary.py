"""The last line of a result file: a function of the protocol and the records alone, in whatever order they came.

Fields that agentic-rl-lab's eval.py has too carry its names and meanings, so that its analyse.py reads these files.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from gspo_ray.evaluation.compare import Difference, compare
from gspo_ray.evaluation.intervals import Estimate
from gspo_ray.evaluation.per_problem import pass_name, reported_ks
from gspo_ray.evaluation.records import EvalProtocol, ProblemRecord
from gspo_ray.evaluation.result import Result, metric_names
from gspo_ray.evaluation.result_files import result_of
from gspo_ray.evaluation.verdict import verdict_sentence, verdict_word
from gspo_ray.types import Outcome


def summarise(
    protocol: EvalProtocol,
    problems: Iterable[ProblemRecord],
    failed: Iterable[str],
    *,
    where: str,
    base: Result | None = None,
) -> dict[str, Any]:
    """The summary record without its clock (`EvalLog.finish` adds that).

    `failed`: ids of problems without a result; they are named and left out of every rate. `base`: a second result to
    compare with. Raises DataError when no problem was evaluated or the two cannot be compared.
    """
    judged = list(problems)
    result = result_of(protocol, judged, failed, where=where)
    n = result.samples_per_problem
    estimates = {metric: result.estimate(metric) for metric in metric_names(n)}
    outcomes = Counter(sample.outcome for problem in judged for sample in problem.samples)
    names = {
        "average_at_n": "average",
        "pass_at_n": result.top_metric,
        "majority_at_n": "majority",
        "format_rate": "format",
        "truncated_rate": "truncated",
        "mean_completion_tokens": "tokens",
    }
    summary: dict[str, Any] = {
        "type": "summary",
        "protocol": protocol.to_json(),
        "val_n": n,
        "problems": result.num_problems,
        "failed_problems": list(result.failed),
        "generations": result.generations,
        "correct_generations": result.correct_generations,
        "passed_problems": round(result.means[result.top_metric] * result.num_problems),
        "outcomes": {outcome.value: outcomes[outcome] for outcome in Outcome},
        **{name: estimates[metric].value for name, metric in names.items()},
        "intervals_95": {name: _ends(estimates[metric]) for name, metric in names.items()},
        "pass_at_k": {str(k): _level(estimates[pass_name(k)]) for k in reported_ks(n)},
    }
    if base is not None:
        summary["comparison"] = _comparison(base, result)
    return summary


def _comparison(base: Result, new: Result) -> dict[str, Any]:
    """The verdict is on avg@n, fixed beforehand; the other metrics are there to be read, not to be chosen from."""
    differences = compare(base, new)
    return {
        "base": {"label": base.label, "adapter": base.adapter, "seed": base.seed, "runs": base.runs},
        "verdict": verdict_word(differences["average"]),
        "sentence": verdict_sentence(differences["average"], new),
        "differences": {metric: _difference(difference) for metric, difference in differences.items()},
    }


def _difference(difference: Difference) -> dict[str, Any]:
    record = asdict(difference)
    del record["metric"], record["p_adjusted"], record["tests"]  # one comparison: nothing to adjust
    del record["interval"]
    record["detectable"] = _known(difference.detectable)
    return {"value": difference.value, "interval_95": _ends(difference.interval), **record}


def _level(estimate: Estimate) -> dict[str, Any]:
    return {"value": estimate.value, "interval_95": _ends(estimate)}


def _ends(estimate: Estimate) -> list[float | None]:
    return [_known(estimate.low), _known(estimate.high)]


def _known(number: float) -> float | None:
    """JSON has neither NaN nor infinity."""
    return number if math.isfinite(number) else None
