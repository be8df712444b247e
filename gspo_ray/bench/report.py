"""What the bench of the learner found: a table for people, and the same as JSON."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from gspo_ray.bench.learner import REFERENCE, VARIANTS, Result, Row

GB = 1e9
QUIET = 0.25  # cores that others may take before the numbers are doubtful
TITLES = ("useful\ntok/s", "x\nplain", "tokens\ncomputed", "of\nlimit", "peak\nGB", "above\nmodel", "gradient\nerror")
LIBRARIES = ("torch", "transformers", "peft", "trl")


def as_json(result: Result) -> dict[str, Any]:
    case, limit = result.case, result.limit
    return {
        "batch": {
            "name": result.batch,
            "sequences": sum(len(completions) for _, completions in case.groups),
            "completion_tokens": sum(len(ids) for _, completions in case.groups for ids in completions),
            "useful_tokens": result.useful_tokens,
        },
        "settings": case.model_dump(exclude={"groups", "variant", "memory_limit", "profile"}),
        "machine": {"processor": platform.processor() or platform.machine(), "python": platform.python_version()},
        "versions": {name: version for name in LIBRARIES if (version := _version(name))},
        "limit": limit.model_dump(),
        "variants": {row.variant: _numbers(row, result) for row in result.rows},
        "profile": result.profile,
    }


def _numbers(row: Row, result: Result) -> dict[str, Any]:
    passes = [one.model_dump(exclude={"variant"}) for one in row.passes]
    if row.failure:
        return {"text": VARIANTS[row.variant], "failure": row.failure, "passes": passes}
    reference = next((r for r in result.rows if r.variant == REFERENCE and not r.failure), None)
    first = row.passes[0]
    peak = max(one.peak_bytes for one in row.passes)
    return {
        "text": VARIANTS[row.variant],
        "note": first.note,
        "seconds": row.seconds,
        "useful_tokens_per_second": result.useful_tokens / row.seconds,
        "against_plain": reference.seconds / row.seconds if reference else None,
        "computed_tokens": first.computed_tokens,
        "micro_batches": first.micro_batches,
        "flops": first.flops,
        "share_of_limit": row.flops_per_second / result.limit.flops_per_second,
        "peak_bytes": peak,
        "peak_above_model_bytes": peak - first.loaded_bytes,
        "gradient_error": row.gradient_error,
        "passes": passes,
    }


def render(report: dict[str, Any], console: Console) -> None:
    """`report` as `as_json` makes it."""
    batch, settings, limit = report["batch"], report["settings"], report["limit"]
    _say(
        console,
        f"{batch['name']}: {batch['sequences']} sequences, {batch['useful_tokens']} tokens, "
        f"{batch['completion_tokens']} of them completions; micro-batches of {settings['micro_batch_tokens']} tokens; "
        f"{settings['model']['dtype']} on {settings['device']}, {settings['threads']} threads",
    )
    _say(console, f"best matrix product of these sizes: {limit['flops_per_second'] / 1e9:.0f} GFLOP/s")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("", no_wrap=True)
    for title in TITLES:
        table.add_column(title, justify="right", no_wrap=True)
    for name, row in report["variants"].items():
        table.add_row(name, *_cells(row))
    console.print(table)
    for sentence in [f"{name}: {_text(row)}" for name, row in report["variants"].items()] + _remarks(report):
        _say(console, sentence)
    if report["profile"]:
        _say(console, report["profile"])


def _cells(row: dict[str, Any]) -> list[str]:
    if failure := row.get("failure"):
        return [failure]
    return [
        f"{row['useful_tokens_per_second']:.0f}",
        "-" if row["against_plain"] is None else f"{row['against_plain']:.2f}",
        str(row["computed_tokens"]),
        f"{100 * row['share_of_limit']:.0f}%",
        f"{row['peak_bytes'] / GB:.2f}",
        f"{row['peak_above_model_bytes'] / GB:.2f}",
        "-" if row["gradient_error"] is None else f"{row['gradient_error']:.1e}",
    ]


def _text(row: dict[str, Any]) -> str:
    return f"{row['text']}; {note}" if (note := row.get("note")) else str(row["text"])


def _remarks(report: dict[str, Any]) -> list[str]:
    done = {name: row for name, row in report["variants"].items() if not row.get("failure")}
    remarks = []
    if "ours" in done:
        for name, row in done.items():
            if name != "ours":
                speed = row["seconds"] / done["ours"]["seconds"]
                memory = done["ours"]["peak_bytes"] / row["peak_bytes"]
                remarks.append(f"ours against {name}: {speed:.2f} times the speed, {memory:.2f} of the peak memory")
    busy = max((one["busy_others"] for row in done.values() for one in row["passes"]), default=0.0)
    if busy > QUIET:
        remarks.append(f"other programs kept up to {busy:.1f} cores busy: repeat this on a quiet machine")
    return remarks


def _say(console: Console, text: str) -> None:
    console.print(text, soft_wrap=True, highlight=False, markup=False)


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
