"""What a careful reader would write under the figure."""

from __future__ import annotations

from collections.abc import Sequence

from gspo_ray.analyse.study import Study
from gspo_ray.analyse.table import markdown_table
from gspo_ray.evaluation.compare import Difference, Direction
from gspo_ray.evaluation.verdict import (
    change_text,
    detectable_sentence,
    difference_text,
    failed_sentence,
    level_text,
    metric_label,
)

_MOST_NAMED = 8  # checkpoints in a sentence


def study_report(study: Study, *, title: str) -> str:
    """Table and words as one Markdown text."""
    head = f"# {title}\n\n" if title else ""
    return head + markdown_table(study) + "\n" + "\n\n".join(study_paragraphs(study)) + "\n"


def study_paragraphs(study: Study) -> list[str]:
    """Accuracy first, then what else changed, then how the numbers were made."""
    paragraphs = [_accuracy(study), _spread(study)]
    if study.samples_per_problem > 1:
        paragraphs.append(_any(study))
    paragraphs += [_change(study, metric) for metric in ("format", "truncated", "tokens")]
    paragraphs += [f"{model.label}: {failed_sentence(model.result)}" for model in study.models if model.result.failed]
    paragraphs.append(_method(study))
    return [paragraph for paragraph in paragraphs if paragraph]


def _accuracy(study: Study) -> str:
    """The question of the study; the only metric with a verdict."""
    label = _label(study, "average")
    family = _family(study, "average")
    better, worse = _named(study, "average", Direction.HIGHER), _named(study, "average", Direction.LOWER)
    if better:
        head = f"Accuracy ({label}): better than the base at {_at(study, better)}."
    elif worse:
        head = f"Accuracy ({label}): no gain is shown, and a loss at {_at(study, worse)}."
    else:
        head = f"Accuracy ({label}): no accuracy gain is shown, and no loss."
    undecidable = len(family) - len(better) - len(worse)
    several = len(family) > 1
    counts = f" {len(better)} better, {len(worse)} worse, {undecidable} undecidable." if several else ""
    shown = study.best or study.checkpoints[0]
    difference = shown.differences["average"]
    best = f"Highest: {_lower(shown.label)}" if several else shown.label
    return (
        f"{head}{counts} {best}, {level_text('average', difference.new)} against "
        f"{level_text('average', difference.base)} of the base on {difference.problems} common problems, "
        f"{difference_text(difference)}. {detectable_sentence(difference)}"
    )


def _spread(study: Study) -> str:
    """What moves without any training."""
    runs = study.base.runs
    if len(runs) < 2:
        return "The base was evaluated once: how far it moves by itself is not shown."
    parts = []
    for metric in ("average", study.base.result.top_metric, "format", "tokens"):
        values = [run.means[metric] for run in runs]
        size = change_text(metric, max(values) - min(values)).lstrip("+")
        parts.append(f"{_label(study, metric)} by {size}")
    parts = list(dict.fromkeys(parts))  # avg@1 is pass@1
    return f"{len(runs)} evaluations of the base differ in {_list(parts)}: so much moves without any training."


def _any(study: Study) -> str:
    metric = study.base.result.top_metric
    moved = [*_named(study, metric, Direction.HIGHER), *_named(study, metric, Direction.LOWER)]
    n = study.samples_per_problem
    head = f"{_label(study, metric)} (at least one of {n} samples is correct): "
    if not moved:
        return head + "no change is shown."
    return head + f"changed at {_at(study, moved)}; {_first_to_last(study, metric)}."


def _change(study: Study, metric: str) -> str:
    """Format and length: neither good nor bad in themselves."""
    if not _family(study, metric):
        return ""
    higher, lower = _named(study, metric, Direction.HIGHER), _named(study, metric, Direction.LOWER)
    name = {"format": "Format (share with a complete \\boxed{})", "truncated": "Truncated answers"}.get(
        metric, "Length"
    )
    if not higher and not lower:
        return f"{name}: no change is shown; {_first_to_last(study, metric)}."
    moves = [f"{word} at {_at(study, at)}" for word, at in (("higher", higher), ("lower", lower)) if at]
    return f"{name} changed: {' and '.join(moves)}; {_first_to_last(study, metric)}."


def _first_to_last(study: Study, metric: str) -> str:
    last = study.checkpoints[-1]
    difference = last.differences[metric]
    unit = " tokens" * (metric == "tokens")
    return (
        f"{level_text(metric, difference.base)}{unit} of the base, {level_text(metric, difference.new)}{unit} at "
        f"{_lower(last.label)}, {difference_text(difference)}"
    )


def _method(study: Study) -> str:
    count = len(study.checkpoints)
    methods = sorted(
        {difference.method.value for model in study.checkpoints for difference in model.differences.values()}
    )
    text = f"How: 95 % intervals are over problems. p-values: {'; '.join(methods)}. "
    if study.has_records:
        text += "Intervals: bootstrap over problems (10,000 resamples, expanded percentiles). "
    else:
        problems = study.base.result.num_problems
        text += (
            "Some files hold their summary alone. Samples of one problem depend on each other, and how much is not in "
            f"a summary: an interval from all generations would be too narrow. So the {problems} problems are counted, "
            "not the generations (Wilson, with the largest variance that a mean allows), and base and checkpoint are "
            "taken as unpaired: these intervals and p-values err on the side of caution. "
        )
    if count > 1:
        text += (
            f"{count} checkpoints are compared with the base: each metric's p-values are Holm-adjusted over them, so "
            "that the best of many is not called better by luck. Accuracy is the question; the other metrics describe. "
            f"Marked as best: {study.best_rule}."
        )
    return text.rstrip()


def _label(study: Study, metric: str) -> str:
    return metric_label(metric, study.samples_per_problem)


def _family(study: Study, metric: str) -> list[Difference]:
    return [model.differences[metric] for model in study.checkpoints if metric in model.differences]


def _named(study: Study, metric: str, direction: Direction) -> list[str]:
    models = [m for m in study.checkpoints if metric in m.differences and m.differences[metric].direction is direction]
    return [_lower(model.label) for model in models]


def _lower(label: str) -> str:
    return label[0].lower() + label[1:]


def _at(study: Study, names: Sequence[str]) -> str:
    """Example: "step 20, 40 and 60"; many are counted, the table has them all."""
    if len(names) > _MOST_NAMED:
        return f"{len(names)} of {len(study.checkpoints)} checkpoints, the first of them {names[0]}"
    return _list([names[0], *(name.removeprefix("step ") for name in names[1:])])


def _list(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
