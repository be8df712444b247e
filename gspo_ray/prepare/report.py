"""`report.json` with everything that was found, and `report.md` with what a person wants to see of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from gspo_ray.prepare.overlap import CONTAMINATED_SHARE, RUN_WORDS, EvalSet, Hit
from gspo_ray.prepare.raw import RawPass

REPORT_JSON, REPORT_TEXT = "report.json", "report.md"

_SHOWN = 50  # conflicts and contaminated problems in the text; all are in the JSON file
_BAR = 40  # characters
_CUT = 160  # characters of a question


def invalid_rows(raw: RawPass) -> list[dict[str, Any]]:
    return [
        {"reason": reason, "rows": item.rows, "numbers": item.numbers}
        for reason, item in sorted(raw.invalid.items(), key=lambda pair: -pair[1].rows)
    ]


def conflicts(raw: RawPass) -> list[dict[str, Any]]:
    """In the order in which they turned up; of each answer its first row and how many there are."""
    return [
        {
            "question": conflict.question,
            "answers": [
                {"answer": answer, "first": first, "rows": rows} for answer, (first, rows) in conflict.answers.items()
            ],
        }
        for conflict in raw.questions.conflicts.values()
    ]


def overlap_table(sets: Sequence[EvalSet], hits: Sequence[Hit]) -> list[dict[str, Any]]:
    """One row an evaluation set: distinct training problems of each degree, and the evaluation problems they meet."""
    rows = []
    for item in sets:
        own = [hit for hit in hits if hit.eval_set == item.name]
        contaminated = [hit for hit in own if hit.contaminated]
        rows.append(
            {
                "set": item.name,
                "problems": len(item.questions),
                "same_text": len({hit.train_id for hit in own if hit.same_text}),
                "contaminated": len({hit.train_id for hit in contaminated}),
                "problems_met": len({hit.eval_id for hit in contaminated}),
                "share_a_run": len({hit.train_id for hit in own}),
            }
        )
    return rows


def hit_rows(hits: Iterable[Hit], questions: Mapping[str, str]) -> list[dict[str, Any]]:
    """`questions`: training id -> question."""
    return [{**asdict(hit), "question": questions[hit.train_id]} for hit in hits]


def render(report: Mapping[str, Any]) -> str:
    """The text of report.md."""
    lines = [f"# {report['name']} ({report['split']})", "", "| | |", "| --- | ---: |"]
    lines += [f"| {name.replace('_', ' ')} | {count:,} |" for name, count in report["counts"].items()]
    unit = report["unit"]
    lines += _invalid(report["invalid"], unit) + _conflicts(report["conflicts"], unit)
    lines += _lengths(report["prompt_tokens"])
    answers = report["answers"]
    lines += ["", "## Answers", "", *_bars(answers["kinds"])]
    if answers["kinds"].get("integer"):
        lines += [
            "",
            f"Integers from {answers['smallest_integer']} to {answers['largest_integer']}: "
            f"{answers['negative_integers']:,} negative, {answers['integers_beyond_int64']:,} beyond 64 bits.",
        ]
    lines += ["", "## Scripts of the questions", "", *_bars(report["scripts"])]
    if report["split"] == "train":
        lines += _overlap(report["overlap"])
    return "\n".join(lines) + "\n"


def _invalid(rows: Sequence[Mapping[str, Any]], unit: str) -> list[str]:
    lines = ["", "## Invalid rows", ""]
    for row in rows:
        more = f" and {row['rows'] - 20:,} more" if row["rows"] > 20 else ""
        lines.append(f"- {row['rows']:,} x {row['reason']}: {unit} {', '.join(map(str, row['numbers'][:20]))}{more}")
    return lines if rows else [*lines, "None."]


def _conflicts(found: Sequence[Mapping[str, Any]], unit: str) -> list[str]:
    lines = ["", "## Questions with several answers, dropped", ""]
    for conflict in found[:_SHOWN]:
        answers = ", ".join(
            f"{item['answer']} ({unit} {item['first']}, {item['rows']:,} in all)" for item in conflict["answers"]
        )
        lines.append(f"- {_short(conflict['question'])} -> {answers}")
    return [*lines, *_rest(found)] if found else [*lines, "None."]


def _lengths(lengths: Mapping[str, Any] | None) -> list[str]:
    if lengths is None:
        return ["", "## Prompt lengths", "", "Not measured: name a model with --model."]
    return [
        "",
        f"## Prompt lengths in tokens of {lengths['model']}",
        "",
        f"{lengths['min']} to {lengths['max']}; median {lengths['median']}, 90 % up to {lengths['p90']}, "
        f"99 % up to {lengths['p99']}. Prompts longer than data.max_prompt_tokens are left out of a run.",
        "",
        *_bars(lengths["histogram"]),
    ]


def _overlap(overlap: Mapping[str, Any]) -> list[str]:
    lines = ["", "## Overlap with evaluation sets", ""]
    if not overlap["sets"]:
        return [*lines, "No evaluation set was known: prepare them beside this folder, or name files with --against."]
    lines += [
        f"Contaminated: the same text, or {CONTAMINATED_SHARE:.0%} and more of the evaluation problem's runs of "
        f"{RUN_WORDS} words. Those that share a single run are worth a look; set phrases do not count.",
        "",
        "| set | problems | same text | contaminated | evaluation problems met | share a run |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in overlap["sets"]:
        numbers = (row[key] for key in ("problems", "same_text", "contaminated", "problems_met", "share_a_run"))
        lines.append(f"| {row['set']} | {' | '.join(f'{number:,}' for number in numbers)} |")
    found = overlap["contaminated"]
    if found:
        fate = (
            "dropped from train.jsonl" if overlap["dropped"] else "still in train.jsonl; --drop-contaminated drops them"
        )
        lines += ["", f"Contaminated training problems, {fate}:", ""]
        for hit in found[:_SHOWN]:
            degree = "same text" if hit["same_text"] else f"{hit['share']:.0%}"
            lines.append(
                f"- {hit['train_id']} ~ {hit['eval_set']} {hit['eval_id']} ({degree}): {_short(hit['question'])}"
            )
        lines += _rest(found)
    return lines


def _bars(counts: Mapping[str, int]) -> list[str]:
    total, width = max(1, sum(counts.values())), max((len(name) for name in counts), default=0)
    return [
        f"    {name:<{width}} {count:>9,} {count / total:>6.1%} {'#' * round(_BAR * count / total)}".rstrip()
        for name, count in counts.items()
    ]


def _rest(found: Sequence[object]) -> list[str]:
    return [f"- ... and {len(found) - _SHOWN:,} more in {REPORT_JSON}"] if len(found) > _SHOWN else []


def _short(question: str) -> str:
    text = " ".join(question.split())
    return text if len(text) <= _CUT else text[: _CUT - 3] + "..."
