"""Raw file in, prepared folder out: read, clean, split, compare with evaluation sets, report, write."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.progress import Progress

from gspo_ray.errors import DataError
from gspo_ray.prepare.catalogue import answers_digest
from gspo_ray.prepare.dedup import split_records, with_unique_ids
from gspo_ray.prepare.describe import describe_answers, describe_lengths, describe_scripts
from gspo_ray.prepare.hub import download, hub_source
from gspo_ray.prepare.known_sets import TEST_FILE, known_sets
from gspo_ray.prepare.manifest import MANIFEST_FILE, Inputs, Manifest, OutputFile, sha256_of
from gspo_ray.prepare.output import new_files, write_records
from gspo_ray.prepare.overlap import EvalSet, Hit, OverlapIndex
from gspo_ray.prepare.raw import RawPass, read_raw
from gspo_ray.prepare.records import Record
from gspo_ray.prepare.report import REPORT_JSON, REPORT_TEXT, conflicts, hit_rows, invalid_rows, overlap_table, render
from gspo_ray.prepare.request import DEV_FILE, TRAIN_FILE, Request, check_raw, finished, inputs_of

Keyed = Sequence[tuple[str, Record]]  # (deduplication key, record)
TokenCounter = Callable[[Record], int]


@dataclass(frozen=True, slots=True)
class Prepared:
    manifest: Manifest
    report: Mapping[str, Any]  # report.json
    was_done: bool  # by an earlier run of the same inputs


def prepare(request: Request, progress: Progress, *, token_counter: Callable[[str], TokenCounter]) -> Prepared:
    """`token_counter`: from the name of a model to the number of tokens of a record's prompt.

    Raises UserError for what the person can mend; nothing was written then.
    """
    if request.raw is not None:
        check_raw(request.raw)
    sets = known_sets(request.out, request.against) if request.split == "train" else []
    if request.drop_contaminated and not sets:
        raise DataError(
            "--drop-contaminated, but no evaluation set is known to compare with. Prepare them in folders beside "
            f"{request.out}, or name files: --against FILE"
        )
    if not request.force and (old := finished(request, sets)) is not None:
        return Prepared(old, json.loads((request.out / REPORT_JSON).read_text(encoding="utf-8")), was_done=True)
    count_tokens = token_counter(request.model) if request.model else None
    with new_files(request.out) as folder:
        raw = request.raw or download(hub_source(request.dataset, request.split), request.split, request.commit)
        inputs = inputs_of(request, raw, sets)
        rows = read_raw(raw, request.dataset, request.split, progress)
        parts, renamed = _parts(request, rows)
        hits = _hits(parts[TRAIN_FILE], sets, progress) if sets else []
        overlap = _overlap(parts, sets, hits, dropped=request.drop_contaminated)
        contaminated = {hit.train_id for hit in hits if hit.contaminated}
        if request.drop_contaminated:
            parts[TRAIN_FILE] = [(key, record) for key, record in parts[TRAIN_FILE] if record.id not in contaminated]
            if not parts[TRAIN_FILE]:
                raise DataError(
                    f"--drop-contaminated leaves nothing: all {len(contaminated):,} problems are contaminated."
                )
        counts = {
            "rows": rows.rows,
            "invalid": rows.num_invalid,
            "duplicates": rows.questions.duplicates,
            "conflicts": len(rows.questions.conflicts),
            "kept": len(rows.questions),
            "renamed_ids": renamed,
            "contaminated": len(contaminated),
            "dropped": len(contaminated) if request.drop_contaminated else 0,
            **{Path(name).stem: len(part) for name, part in parts.items()},
        }
        report = {
            "name": inputs.name,
            "split": inputs.split,
            "unit": rows.unit,
            "counts": counts,
            "invalid": invalid_rows(rows),
            "conflicts": conflicts(rows),
            **_describe([record for part in parts.values() for _, record in part], request, count_tokens, progress),
            "overlap": overlap,
        }
        manifest = _write(folder, inputs, parts, counts, report)
    return Prepared(manifest, report, was_done=False)


def _parts(request: Request, rows: RawPass) -> tuple[dict[str, Keyed], int]:
    """(file name -> its problems, number of ids made unique). Raises DataError when it is not the set asked for."""
    questions, split = rows.questions, request.split
    keyed, renamed = with_unique_ids(questions.by_key() if split == "train" else questions.in_file_order())
    if not keyed:
        raise DataError(f"nothing is left: each of {len(questions.conflicts):,} questions has several answers.")
    _check_known_set(request, rows, [record.answer for _, record in keyed])
    if split == "test":
        return {TEST_FILE: keyed}, renamed
    train, dev = split_records(keyed, dev_size=request.dev_size, seed=request.seed)
    return {TRAIN_FILE: train, DEV_FILE: dev}, renamed


def _check_known_set(request: Request, rows: RawPass, answers: Sequence[str]) -> None:
    dataset, split = request.dataset, request.split
    remedy = "Name the right file, or mend it; for problems of your own: gspo-ray prepare jsonl --split test"
    known = dataset.problems.get(split, len(answers))
    if len(answers) != known:
        fault = "".join(f"; {item['reason']} ({rows.unit} {item['numbers'][0]})" for item in invalid_rows(rows)[:1])
        raise DataError(
            f"{dataset.name} has {known:,} problems, but {len(answers):,} were found in {rows.rows:,} rows{fault}. "
            + remedy
        )
    if split == "test" and dataset.test_answers not in (None, answers_digest(answers)):
        raise DataError(f"these are not the problems of {dataset.name}: their answers are other ones. {remedy}")


def _hits(train: Keyed, sets: Sequence[EvalSet], progress: Progress) -> list[Hit]:
    index = OverlapIndex(sets)
    for _, record in progress.track(train, description="comparing with evaluation sets"):
        index.add(record.id, record.question)
    return index.hits()


def _overlap(
    parts: Mapping[str, Keyed], sets: Sequence[EvalSet], hits: Sequence[Hit], *, dropped: bool
) -> dict[str, Any]:
    questions = {record.id: record.question for _, record in parts.get(TRAIN_FILE, ())}
    return {
        "sets": overlap_table(sets, hits),
        "dropped": dropped,
        "contaminated": hit_rows((hit for hit in hits if hit.contaminated), questions),
        "share_a_run": hit_rows((hit for hit in hits if not hit.contaminated), questions),
    }


def _describe(
    records: Sequence[Record], request: Request, count_tokens: TokenCounter | None, progress: Progress
) -> dict[str, Any]:
    lengths = None
    if count_tokens is not None:
        tracked = progress.track(records, description=f"counting tokens of {request.model}")
        lengths = {"model": request.model, **describe_lengths([count_tokens(record) for record in tracked])}
    return {
        "prompt_tokens": lengths,
        "answers": describe_answers(records),
        "scripts": describe_scripts(records),
    }


def _write(
    folder: Path, inputs: Inputs, parts: Mapping[str, Keyed], counts: dict[str, int], report: Mapping[str, Any]
) -> Manifest:
    """All files into `folder`, the manifest over them."""
    for name, part in parts.items():
        write_records(folder / name, (record for _, record in part))
    (folder / REPORT_JSON).write_text(json.dumps(report, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    (folder / REPORT_TEXT).write_text(render(report), encoding="utf-8")
    files = {
        path.name: OutputFile(
            sha256=sha256_of(path),
            bytes=path.stat().st_size,
            problems=len(parts[path.name]) if path.name in parts else None,
        )
        for path in sorted(folder.iterdir())
    }
    keys = {
        Path(name).stem: hashlib.sha256("\n".join(key for key, _ in part).encode()).hexdigest()
        for name, part in parts.items()
    }
    manifest = Manifest(**inputs.model_dump(), counts=counts, keys_sha256=keys, files=files)
    (folder / MANIFEST_FILE).write_text(manifest.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return manifest
