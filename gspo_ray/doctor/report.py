"""All findings: a table a node for people, the same as JSON, one line that sums up."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gspo_ray.doctor.finding import Finding, Level

Report = Mapping[str, Sequence[Finding]]  # node, or CLUSTER -> its findings
CLUSTER = "cluster"
COLOURS = {Level.PASS: "green", Level.WARN: "yellow", Level.FAIL: "bold red", Level.SKIP: "dim"}


def render(report: Report, console: Console) -> None:
    width = max((len(finding.check) for findings in report.values() for finding in findings), default=0)
    for node, findings in report.items():
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=Text(node), title_justify="left", expand=True)
        table.add_column("", no_wrap=True)
        table.add_column("check", no_wrap=True, min_width=width)
        table.add_column("found", overflow="fold", ratio=1)
        for finding in findings:
            text = Text(finding.found)
            if finding.fix:
                text.append(f"\n-> {finding.fix}", style="bold" if finding.level is Level.FAIL else "")
            table.add_row(Text(finding.level, style=COLOURS[finding.level]), Text(finding.check), text)
        console.print(table)
    console.print(summary(report), highlight=False, markup=False, soft_wrap=True)


def summary(report: Report) -> str:
    counts = Counter(finding.level for findings in report.values() for finding in findings)
    nodes = len([node for node in report if node != CLUSTER])
    numbers = ", ".join(f"{counts[level]} {level}" for level in reversed(Level) if counts[level])
    failed = [f"{f.check} ({node})" for node, found in report.items() for f in found if f.level is Level.FAIL]
    ends = f". Mend first: {', '.join(failed)}" if failed else ""
    return f"{nodes} node{'s' * (nodes != 1)}: {numbers}{ends}"


def as_json(report: Report) -> str:
    tree = {
        "summary": summary(report),
        "failed": has_failed(report),
        "nodes": {node: [finding.as_dict() for finding in findings] for node, findings in report.items()},
    }
    return json.dumps(tree, indent=2, ensure_ascii=False)


def has_failed(report: Report) -> bool:
    return any(finding.level is Level.FAIL for findings in report.values() for finding in findings)
