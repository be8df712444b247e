"""Duplicates, conflicts and the split: the rule of agentic-rl-lab/07-gspo (prepare_data.py), as a stream."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from gspo_ray.data.formats import cut_dapo_template
from gspo_ray.errors import DataError
from gspo_ray.prepare.records import Record

RULE_VERSION = "1"
"""Raise it when the same raw rows would give other files."""


def question_key(question: str) -> str:
    """What makes two rows the same question: the text without template, white space folded."""
    return " ".join(cut_dapo_template(question).split())


@dataclass(slots=True)
class Kept:
    record: Record
    number: int  # of the first row (line of a JSONL file), from 1
    rows: int = 1


@dataclass(slots=True)
class Conflict:
    """A question with several answers: dropped for good."""

    question: str
    answers: dict[str, list[int]] = field(default_factory=dict)  # answer -> [first row, number of rows]


class Deduplicator:
    """The first row of a question is kept. A later one is a duplicate: with the same answer text the record with the
    lexicographically smaller id wins, whatever the order of the file; with another one the question is a conflict.

    Memory grows with the distinct questions alone.
    """

    def __init__(self) -> None:
        self._kept: dict[str, Kept] = {}
        self.conflicts: dict[str, Conflict] = {}
        self.duplicates = 0

    def __len__(self) -> int:
        """Questions kept so far."""
        return len(self._kept)

    def add(self, record: Record, number: int) -> None:
        """`number`: its row or line, from 1."""
        key = question_key(record.question)
        if (conflict := self.conflicts.get(key)) is not None:
            self.duplicates += 1
            conflict.answers.setdefault(record.answer, [number, 0])[1] += 1
        elif (kept := self._kept.get(key)) is None:
            self._kept[key] = Kept(record, number)
        else:
            self.duplicates += 1
            if record.answer != kept.record.answer:
                first = kept.record
                answers = {first.answer: [kept.number, kept.rows], record.answer: [number, 1]}
                self.conflicts[key] = Conflict(first.question, answers)
                del self._kept[key]
                return
            kept.rows += 1
            if record.id < kept.record.id:
                kept.record = record

    def by_key(self) -> list[tuple[str, Record]]:
        """(key, record), sorted by key, then id."""
        return sorted((key, kept.record) for key, kept in self._kept.items())

    def in_file_order(self) -> list[tuple[str, Record]]:
        """(key, record) in the order in which the questions first came."""
        return [(key, kept.record) for key, kept in self._kept.items()]


def split_records(
    records: Sequence[tuple[str, Record]], *, dev_size: int, seed: int
) -> tuple[list[tuple[str, Record]], list[tuple[str, Record]]]:
    """(train, dev): one shuffle by `random.Random(seed)`, the first `dev_size` are dev. Raises DataError."""
    if not 1 <= dev_size < len(records):
        raise DataError(
            f"--dev-size is {dev_size}, but it must be at least 1 and leave something to train on: there are "
            f"{len(records)} problems. Set it below that."
        )
    shuffled = list(records)
    random.Random(seed).shuffle(shuffled)
    return shuffled[dev_size:], shuffled[:dev_size]


def with_unique_ids(records: Sequence[tuple[str, Record]]) -> tuple[list[tuple[str, Record]], int]:
    """(records, number renamed): an id that an earlier question has gets -2, -3, ...: a run refuses equal ids."""
    taken = {record.id for _, record in records}
    seen: set[str] = set()
    result: list[tuple[str, Record]] = []
    for key, record in records:
        new_id, count = record.id, 1
        while new_id in seen or (count > 1 and new_id in taken):
            count += 1
            new_id = f"{record.id}-{count}"
        seen.add(new_id)
        result.append((key, record._replace(id=new_id)))
    return result, sum(new.id != old.id for (_, new), (_, old) in zip(result, records, strict=True))
