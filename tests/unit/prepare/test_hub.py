"""The way to the hub, with a stand-in for its library: nothing here touches the network."""

import shutil
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from gspo_ray.errors import DataError
from tests.unit.prepare.conftest import run, sums, write_lines

REVISION = "6f71d77b0b89b9dabe07ab466c51df33f514df7f"


class FakeHub:
    """Holds files of one repository; `fails` times a download breaks off after the first bytes."""

    def __init__(self, store: Path, cache: Path) -> None:
        self.store, self.cache = store, cache
        self.calls: list[dict[str, Any]] = []
        self.fails = 0

    def snapshot_download(self, repo_id: str, **options: Any) -> str:
        self.calls.append({"repo_id": repo_id, **options})
        if self.fails:
            self.fails -= 1
            raise OSError("Name or service not known\nCheck your connection.")
        shutil.copytree(self.store, self.cache, dirs_exist_ok=True)
        return str(self.cache)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHub:
    fake = FakeHub(tmp_path / "store", tmp_path / "cache")
    (fake.store / "main").mkdir(parents=True)
    write_lines(fake.store / "main" / "train-00000-of-00001.parquet", *gsm8k(60))
    module = types.ModuleType("huggingface_hub")
    module.snapshot_download = fake.snapshot_download  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)
    return fake


def gsm8k(count: int) -> list[dict[str, str]]:
    return [{"question": item["question"], "answer": f"So.\n#### {item['answer']}"} for item in sums(count)]


def test_a_pinned_revision_is_loaded(tmp_path: Path, hub: FakeHub) -> None:
    done = run("gsm8k", None, tmp_path / "out")
    pinned = "e53f048856ff4f594e959d75785d2c2d37b678ee"
    assert hub.calls == [
        {
            "repo_id": "openai/gsm8k",
            "repo_type": "dataset",
            "revision": pinned,
            "allow_patterns": ["main/train-*.parquet"],
        }
    ]
    source = done.manifest.source
    assert (source.repo, source.revision, source.file) == ("openai/gsm8k", pinned, "train-00000-of-00001.parquet")
    assert source.bytes == (hub.store / "main" / source.file).stat().st_size
    assert done.manifest.counts["train"] == 10
    assert run("gsm8k", None, tmp_path / "out").was_done
    assert len(hub.calls) == 1  # nothing is loaded to find that out
    with pytest.raises(DataError, match=r"raw openai/gsm8k@e53f.* -> openai/gsm8k@0123"):
        run("gsm8k", None, tmp_path / "out", revision="0123")


def test_a_broken_download_is_one_line_and_leaves_nothing(tmp_path: Path, hub: FakeHub) -> None:
    hub.fails = 1
    with pytest.raises(DataError) as caught:
        run("gsm8k", None, tmp_path / "out")
    assert str(caught.value) == (
        "openai/gsm8k at e53f048856ff cannot be loaded from the Hugging Face hub: Name or service not known Check your "
        "connection. The same command goes on where it stopped; or name a local copy: --raw FILE"
    )
    assert not (tmp_path / "out").exists()
    assert run("gsm8k", None, tmp_path / "out").manifest.counts["rows"] == 60


def test_without_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(DataError, match=r"pip install huggingface_hub.*--raw FILE"):
        run("aime25", None, tmp_path / "out")


def test_places_that_are_not_known(tmp_path: Path, hub: FakeHub) -> None:
    with pytest.raises(DataError, match="mawps: no place on the hub is known for its train rows"):
        run("mawps", None, tmp_path / "out")
    with pytest.raises(DataError, match=r"has 0 files main/test-\*\.parquet, not one"):
        run("gsm8k", None, tmp_path / "out", split="test")
