"""The report of `gspo-ray verify` for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

_MAX_CELL = 60


def render(report: dict[str, Any], console: Console, *, num_examples: int) -> None:
    """Tables; of each list of items the first `num_examples`, texts never read as markup."""
    total = report["num_items"]
    rate = total / report["seconds"] if report["seconds"] else 0.0
    console.print(
        f"{total} answers, style {report['style']}, {report['num_workers']} worker(s), "
        f"{report['seconds']:.1f} s ({rate:.0f} a second)",
        highlight=False,
    )
    outcomes = {name: count for name, count in report["outcomes"].items() if count}
    _table(
        console, "Outcomes", ["outcome", "answers", "share"], [[n, c, _share(c, total)] for n, c in outcomes.items()]
    )
    if labels := report["labels"]:
        agreeing = labels["num_agreeing"]
        console.print(
            f"\nAgreement with the labels: {agreeing} of {total} ({_share(agreeing, total)})", highlight=False
        )
        rows = [[label, *(row[name] for name in outcomes)] for label, row in labels["confusion"].items()]
        _table(console, "Label against outcome", ["label", *outcomes], rows)
        _items(console, "Labels that the verifier contradicts", report["disagreements"], num_examples)
    match = report["string_match"]
    rows = [
        ["same text", match["same_correct"], match["same_not_correct"]],
        ["other text", match["different_correct"], match["different_not_correct"]],
    ]
    _table(console, "Plain string match against verifier", ["", "correct", "not correct"], rows)
    same = [item for item in match["disagreements"] if item["outcome"] != "correct"]
    _items(console, "Same text, yet not correct", same, num_examples)
    kinds = [
        [row["kind"], row["num_items"], *(row[name] for name in outcomes)]
        + ([_share(row["num_agreeing"], row["num_items"])] if report["labels"] else [])
        for row in report["kinds"]
    ]
    titles = ["gold answer", "answers", *outcomes, *(["agreement"] if report["labels"] else [])]
    _table(console, "Types of gold answers", titles, kinds)
    _table(console, "Why not correct", ["reason", "answers"], [[r, c] for r, c in list(report["reasons"].items())[:12]])
    _items(console, "Not judged (timeout, error)", report["not_judged"], num_examples)
    _items(console, "Slowest", report["slowest"], len(report["slowest"]))


def _items(console: Console, title: str, items: Sequence[dict[str, Any]], num_examples: int) -> None:
    """A line each."""
    if not items:
        return
    shown = items[:num_examples]
    more = f"{len(items)}, the first {len(shown)}" if len(shown) < len(items) else f"{len(items)}"
    console.print(Text(f"\n{title} ({more})", style="bold"))
    for item in shown:
        parts = [
            f"line {item['line']}" + (f" {item['name']}" if item["name"] != f"line {item['line']}" else ""),
            f"gold {_cut(item['gold'])}",
            f"answer {_cut(item['extracted'])}" if item["extracted"] is not None else "no answer",
            item["outcome"] + (f" ({_cut(item['reason'])})" if item["reason"] else ""),
            f"{item['seconds']:.3f} s",
        ]
        console.print(Text("  " + "  |  ".join(parts)), soft_wrap=True)


def _table(console: Console, title: str, titles: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Nothing for no rows. Numbers to the right."""
    if not rows:
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for index, name in enumerate(titles):
        is_number = all(isinstance(row[index], int) or str(row[index]).endswith("%") for row in rows)
        table.add_column(name, justify="right" if is_number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(_cut(str(cell))) for cell in row))
    console.print(Text(f"\n{title}", style="bold"))
    console.print(table)


def _share(count: int, total: int) -> str:
    return f"{100 * count / total:.1f}%" if total else "-"


def _cut(text: str) -> str:
    line = " ".join(text.split())
    printable = "".join(letter if letter.isprintable() else "?" for letter in line)
    return printable if len(printable) <= _MAX_CELL else printable[: _MAX_CELL - 1] + "…"
