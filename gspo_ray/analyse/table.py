"""The study as a table: Markdown to read, CSV to compute with."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass

from gspo_ray.analyse.study import Model, Study
from gspo_ray.evaluation.result import Result
from gspo_ray.evaluation.verdict import change_text, level_text, metric_label, p_text, verdict_word


@dataclass(frozen=True, slots=True)
class Row:
    """A single evaluation, or the mean of several (`model` is then the one that is compared)."""

    label: str
    result: Result
    model: Model | None


def table_rows(study: Study) -> list[Row]:
    """One row a file, and one more for a model that was evaluated several times."""
    rows = []
    for model in study.models:
        if len(model.runs) == 1:
            rows.append(Row(model.label, model.result, model))
            continue
        rows += [Row(f"{model.label}, run {number}", run, None) for number, run in enumerate(model.runs, start=1)]
        rows.append(Row(f"{model.label}, mean of {len(model.runs)}", model.result, model))
    return rows


def markdown_table(study: Study) -> str:
    """Values with 95 % intervals in brackets; differences are in avg@n against the base."""
    n, metrics = study.samples_per_problem, _shown(study)
    average = metric_label("average", n)
    titles = ["", "problems", "correct", *(metric_label(metric, n) for metric in metrics)]
    titles += [f"change of {average}", "p (Holm)" if len(study.checkpoints) > 1 else "p", "verdict"]
    lines = [titles, ["---", *["---:"] * (len(titles) - 2), "---"]]
    for row in table_rows(study):
        cells = [
            f"**{row.label}**" if row.model and row.model is study.best else row.label,
            str(row.result.num_problems),
            f"{row.result.correct_generations}/{row.result.generations}",
            *(_cell(row.result, metric) for metric in metrics),
        ]
        lines.append(cells + _comparison_cells(row))
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def csv_table(study: Study) -> str:
    """One line a row of `table_rows`, plain numbers, every metric that all results have, empty where unknown."""
    n, metrics = study.samples_per_problem, study.shared_metrics()
    records = []
    for row in table_rows(study):
        record: dict[str, object] = {
            "label": row.label,
            "step": row.result.step,
            "adapter": row.result.adapter,
            "runs": row.result.runs,
            "file": row.result.where if row.result.runs == 1 else None,
            "problems": row.result.num_problems,
            "failed_problems": len(row.result.failed),
            "samples_per_problem": n,
            "generations": row.result.generations,
            "correct_generations": row.result.correct_generations,
            "best": row.model is not None and row.model is study.best,
        }
        for metric in metrics:
            estimate = row.result.estimate(metric)
            record[metric] = estimate.value
            record |= {f"{metric}_low": estimate.low, f"{metric}_high": estimate.high} if estimate.is_known else {}
        for metric, difference in (row.model.differences if row.model else {}).items():
            record[f"{metric}_change"] = difference.value
            if difference.interval.is_known:
                record[f"{metric}_change_low"] = difference.interval.low
                record[f"{metric}_change_high"] = difference.interval.high
            record[f"{metric}_p"] = difference.p_value
            record[f"{metric}_p_holm"] = difference.p_adjusted
            record[f"{metric}_verdict"] = verdict_word(difference)
        records.append(record)
    text = io.StringIO()
    names = list(dict.fromkeys(name for record in records for name in record))
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()


def _shown(study: Study) -> list[str]:
    """What a page has room for; the CSV has all."""
    wanted = ["average", study.base.result.top_metric, "majority", "format", "truncated", "tokens"]
    if study.samples_per_problem == 1:  # any of one and the vote of one are the average
        wanted = ["average", "format", "truncated", "tokens"]
    return [metric for metric in wanted if metric in study.shared_metrics()]


def _cell(result: Result, metric: str) -> str:
    estimate = result.estimate(metric)
    text = level_text(metric, estimate.value)
    if not estimate.is_known:
        return text
    if metric == "tokens":
        return f"{text} ({estimate.low:,.0f}-{estimate.high:,.0f})"
    return f"{text} ({100 * estimate.low:.1f}-{100 * estimate.high:.1f})"


def _comparison_cells(row: Row) -> list[str]:
    difference = row.model.differences.get("average") if row.model else None
    if difference is None:
        return ["", "", ""]
    return [
        change_text("average", difference.value),
        p_text(difference.p_adjusted).removeprefix("p ").removeprefix("= "),
        verdict_word(difference),
    ]
