"""What is printed at the end: the counts, where the files are, and the command to go on with."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from gspo_ray.commands import typed
from gspo_ray.prepare.known_sets import TEST_FILE
from gspo_ray.prepare.manifest import MANIFEST_FILE
from gspo_ray.prepare.pipeline import Prepared
from gspo_ray.prepare.report import REPORT_TEXT
from gspo_ray.prepare.request import TRAIN_FILE, Request

_LABELS = {
    "rows": "source rows",
    "invalid": "invalid rows",
    "duplicates": "duplicate rows",
    "conflicts": "conflicting questions dropped",
    "kept": "deduplicated questions",
    "contaminated": "contaminated with evaluation",
    "dropped": "contaminated ones dropped",
    "train": "train",
    "dev": "dev",
    "test": "test",
}


def summary(request: Request, done: Prepared) -> Iterator[str]:
    manifest, report = done.manifest, done.report
    if done.was_done:
        yield f"{request.out} was prepared before, from these very inputs: nothing to do (--force makes it again)."
    for key, label in _LABELS.items():
        if (key == "contaminated" and not manifest.against) or (key == "dropped" and not request.drop_contaminated):
            continue
        if key in manifest.counts:
            yield f"{label:<30}{manifest.counts[key]:>12,}"
    for row in report["overlap"]["sets"]:
        yield (
            f"  {row['set']}: {row['contaminated']} contaminated, {row['same_text']} of them with the same text; they "
            f"meet {row['problems_met']} of its {row['problems']} problems"
        )
    if lengths := report["prompt_tokens"]:
        yield f"prompts of {lengths['min']} to {lengths['max']} {lengths['model']} tokens, 99 % up to {lengths['p99']}"
    for part, digest in manifest.keys_sha256.items():
        yield f"sha256 of the {part} questions: {digest}"
    yield f"In {request.out}: {', '.join([*manifest.files, MANIFEST_FILE])}"
    if manifest.counts["invalid"] or manifest.counts["conflicts"]:
        yield f"Invalid rows and conflicts are listed in {request.out / REPORT_TEXT}"
    yield from _next_step(request, manifest.counts)


def _next_step(request: Request, counts: dict[str, int]) -> Iterator[str]:
    model = f" --model.path {shlex.quote(request.model)}" if request.model else ""
    if request.split == "test":
        yield (
            f"Training sets prepared in folders beside {request.out} are compared with it; those that are there need "
            "the same command again, with --force."
        )
        path, result = (shlex.quote(str(item)) for item in (request.out / TEST_FILE, f"{request.dataset.name}.jsonl"))
        command = f"gspo-ray eval --eval.source jsonl --eval.path {path} --eval.id_column id --out {result}{model}"
    else:
        if counts["contaminated"] > counts["dropped"]:
            yield f"Contaminated problems are still in {TRAIN_FILE}: --drop-contaminated --force leaves them out."
        path = shlex.quote(str(request.out / TRAIN_FILE))
        command = f"gspo-ray train --data.source jsonl --data.path {path} --data.id_column id{model}"
    yield f"Next: {typed(command)}"
