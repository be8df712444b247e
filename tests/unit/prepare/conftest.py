import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.progress import Progress

from gspo_ray.prepare.catalogue import DATASETS, any_file
from gspo_ray.prepare.pipeline import Prepared, prepare
from gspo_ray.prepare.records import Record
from gspo_ray.prepare.request import Request

SHARED_DATA = Path(__file__).parents[4] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    if not SHARED_DATA.is_dir():
        pytest.skip(f"the real data sets are not at {SHARED_DATA}")
    return SHARED_DATA


def words_as_tokens(model: str) -> Callable[[Record], int]:
    """Stands for a tokenizer."""
    return lambda record: len(record.question.split())


def run(name: str, raw: Path | None, out: Path, **options: Any) -> Prepared:
    """`prepare` as the command line calls it; `name` "jsonl" reads columns question and answer."""
    split = options.pop("split", None)
    dataset = DATASETS.get(name) or any_file(
        out.name, question="question", answer="answer", id_column=None, split=split or "train", licence="not stated"
    )
    request = Request(dataset=dataset, entry=name, split=split or dataset.split, out=out, raw=raw, **options)
    with Progress(disable=True) as progress:
        return prepare(request, progress, token_counter=words_as_tokens)


def write_lines(path: Path, *items: Any) -> Path:
    path.write_text("".join((item if isinstance(item, str) else json.dumps(item)) + "\n" for item in items))
    return path


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().split(b"\n") if line]


def sums(count: int) -> list[dict[str, Any]]:
    """`count` distinct problems."""
    return [{"question": f"What is {number} + 1?", "answer": number + 1} for number in range(count)]


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())} if folder.exists() else {}
