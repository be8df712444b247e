"""The data sets that `gspo-ray prepare` knows: how their rows are read, where they come from, under which licence."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gspo_ray.prepare.records import Reader, Split, column_reader, dapo_record, gsm8k_record

JSONL = "jsonl"  # any file, its columns named on the command line


@dataclass(frozen=True, slots=True)
class HubSource:
    """A data set on the Hugging Face hub at one commit."""

    repo: str
    revision: str
    files: Mapping[Split, str]  # glob of the one file of each split


@dataclass(frozen=True, slots=True)
class Dataset:
    name: str
    split: Split  # train: divided into train and dev; test: one file to be judged on, kept in the order of the source
    read: Reader
    columns: tuple[str, ...]  # all that is read of a Parquet file
    licence: str
    hub: HubSource | None = None
    problems: Mapping[Split, int] = field(default_factory=dict)  # distinct ones; another number is not this set
    test_answers: str | None = None  # answers_digest of the test split; other answers are not this set


_PROBLEM_COLUMNS = ("problem", "question")
_DAPO_COLUMNS = ("prompt", "reward_model.ground_truth", "label", "extra_info.index", "data_source")


def answers_digest(answers: Iterable[str]) -> str:
    """sha256 of the answers in sorted order: the same for every copy of a set, whatever its order and wording."""
    return hashlib.sha256(" ".join(sorted(answers)).encode()).hexdigest()


def _competition(name: str, licence: str, problems: int, hub: HubSource, test_answers: str | None = None) -> Dataset:
    return Dataset(
        name=name,
        split="test",
        read=column_reader(name, question=_PROBLEM_COLUMNS, answer=("answer",), number="integer"),
        columns=(*_PROBLEM_COLUMNS, "answer"),
        licence=licence,
        hub=hub,
        problems={"test": problems},
        test_answers=test_answers,
    )


# Where a set is on the hub, the commit is the one that public work on it pins.
_ALL = (
    Dataset(
        name="dapo-math-17k",
        split="train",
        read=dapo_record,
        columns=_DAPO_COLUMNS,
        licence="Apache-2.0 (dataset card)",
        hub=HubSource(
            "BytedTsinghua-SIA/DAPO-Math-17k",
            "65877096c24ffa7abc4e4fa5edb95cf3413a5674",
            {"train": "data/dapo-math-17k.parquet"},
        ),
    ),
    Dataset(
        name="gsm8k",
        split="train",
        read=gsm8k_record,
        columns=("question", "answer"),
        licence="MIT",
        hub=HubSource(
            "openai/gsm8k",
            "e53f048856ff4f594e959d75785d2c2d37b678ee",
            {"train": "main/train-*.parquet", "test": "main/test-*.parquet"},
        ),
        problems={"test": 1319},
    ),
    _competition(
        "aime25",
        "not stated on the dataset card; the problems belong to the MAA",
        30,
        HubSource("yentinglin/aime_2025", "6f71d77b0b89b9dabe07ab466c51df33f514df7f", {"test": "data/train-*.parquet"}),
    ),
    _competition(
        "aime24",
        "not stated on the dataset card; the problems belong to the MAA",
        30,
        HubSource(
            "HuggingFaceH4/aime_2024", "2fe88a2f1091d5048c0f36abc874fb997b3dd99a", {"test": "data/train-*.parquet"}
        ),
        "a680499ab2ba80df185ceb0537ac185cf17037de81424fc08c293b56b88096b2",
    ),
    Dataset(
        name="math500",
        split="test",
        read=column_reader("math500", question=_PROBLEM_COLUMNS, answer=("answer",)),
        columns=(*_PROBLEM_COLUMNS, "answer"),
        licence="MIT (MATH)",
        hub=HubSource("HuggingFaceH4/MATH-500", "ff5b20257d8185524591543f8ff5993951537bb8", {"test": "test.jsonl"}),
        problems={"test": 500},
    ),
    _competition(
        "amc23",
        "Apache-2.0 (dataset card); the problems belong to the MAA",
        40,
        HubSource("math-ai/amc23", "80815d37005feb82cd7f8fbc6901d5d3eff43057", {"test": "test-*.parquet"}),
    ),
    Dataset(
        name="mawps",
        split="train",
        read=column_reader("mawps", question=("input",), answer=("target",), number="plain"),
        columns=("input", "target"),
        licence="MIT",
    ),
)
DATASETS = {dataset.name: dataset for dataset in _ALL}


def any_file(name: str, *, question: str, answer: str, id_column: str | None, split: Split, licence: str) -> Dataset:
    """The data set `jsonl`: a JSONL or Parquet file with columns of the user's naming."""
    return Dataset(
        name=name,
        split=split,
        read=column_reader(name, question=(question,), answer=(answer,), id_column=id_column),
        columns=tuple(filter(None, (question, answer, id_column))),
        licence=licence,
    )
