"""The words for numbers: what is shown, what is not, and how small a difference could have been."""

from __future__ import annotations

import math

from gspo_ray.evaluation.compare import Difference, Direction, Method
from gspo_ray.evaluation.intervals import Estimate
from gspo_ray.evaluation.result import Result

_JUDGED = {Direction.HIGHER: "better", Direction.LOWER: "worse", Direction.UNDECIDABLE: "undecidable"}
_NOT_JUDGED = ("format", "truncated", "tokens")  # higher or lower, but neither good nor bad in itself


def verdict_word(difference: Difference) -> str:
    """better, worse, undecidable; higher, lower, undecidable for what is not a matter of right answers."""
    return difference.direction.value if difference.metric in _NOT_JUDGED else _JUDGED[difference.direction]


def metric_label(metric: str, samples_per_problem: int) -> str:
    """Example: metric_label("average", 12) == "avg@12" """
    labels = {
        "average": f"avg@{samples_per_problem}",
        "majority": f"maj@{samples_per_problem}",
        "format": "format rate",
        "truncated": "truncated",
        "tokens": "mean tokens",
    }
    return labels.get(metric, metric)


def level_text(metric: str, value: float) -> str:
    """Example: level_text("average", 0.4111) == "41.1 %" """
    return f"{value:,.0f}" if metric == "tokens" else f"{100 * value:.1f} %"


def change_text(metric: str, value: float, *, unit: bool = True) -> str:
    """Example: change_text("average", -0.0722) == "-7.2 points" """
    if metric == "tokens":
        return f"{value:+,.0f}" + " tokens" * unit
    return f"{100 * value:+.1f}" + " points" * unit


def interval_text(metric: str, estimate: Estimate) -> str:
    """Example: "27.4 to 55.2 %"; "unknown" where the data allow none."""
    if not estimate.is_known:
        return "unknown"
    if metric == "tokens":
        return f"{estimate.low:,.0f} to {estimate.high:,.0f}"
    return f"{100 * estimate.low:.1f} to {100 * estimate.high:.1f} %"


def p_text(p_value: float) -> str:
    return "p < 0.001" if p_value < 0.001 else f"p = {p_value:.3f}"


def difference_text(difference: Difference) -> str:
    """The numbers of a comparison in brackets' worth of words.

    Example: "+7.2 points (95 % interval +1.2 to +13.0, p = 0.021)"
    """
    metric, interval = difference.metric, difference.interval
    ends = "unknown"
    if interval.is_known:
        ends = " to ".join(change_text(metric, end, unit=False) for end in (interval.low, interval.high))
    p_value = p_text(difference.p_adjusted)
    if difference.tests > 1:
        p_value += f" after Holm over {difference.tests} comparisons"
    return f"{change_text(metric, difference.value)} (95 % interval {ends}, {p_value})"


def verdict_sentence(difference: Difference, new: Result, *, base: str = "the base") -> str:
    """Better, worse or undecidable in the metric of `difference`, with every number behind it."""
    metric, n = difference.metric, new.samples_per_problem
    return (
        f"{verdict_word(difference)}: {metric_label(metric, n)} {level_text(metric, difference.new)} against "
        f"{level_text(metric, difference.base)} of {base} on {difference.problems} common problems, "
        f"{difference_text(difference)}; {difference.method}. {detectable_sentence(difference)}"
    )


def detectable_sentence(difference: Difference) -> str:
    """How small a true difference could have been seen: what makes "undecidable" a statement."""
    if math.isnan(difference.detectable):
        return "How small a difference this set could have shown cannot be said: no problem differs from another."
    if math.isinf(difference.detectable):
        return f"{difference.problems} problems are too few to show any difference by this test."
    size = change_text(difference.metric, difference.detectable).lstrip("+")
    source = "these summaries show" if difference.method is Method.BOUND else "this set shows"
    return f"The smallest true difference that {source} with 80 % power is {size}."


def result_lines(result: Result) -> list[str]:
    """One line a metric, with 95 % intervals."""
    n = result.samples_per_problem
    lines = [
        f"{metric_label(metric, n):<12} {level_text(metric, result.means[metric]):>8}   95 % interval "
        f"{interval_text(metric, result.estimate(metric))}"
        for metric in result.metrics
    ]
    lines.insert(0, f"{result.num_problems} problems x {n} samples, {result.correct_generations} correct")
    if result.failed:
        lines.append(failed_sentence(result))
    return lines


def failed_sentence(result: Result) -> str:
    """Left-out problems are often the hard ones: say what they could change."""
    lost, kept = len(result.failed), result.num_problems
    as_wrong = result.means["average"] * kept / (kept + lost)
    label = metric_label("average", result.samples_per_problem)
    return (
        f"{lost} of {kept + lost} problems gave no result and are left out ({', '.join(result.failed[:5])}"
        f"{', ...' if lost > 5 else ''}); counted as wrong they would make {label} {level_text('average', as_wrong)}."
    )
