"""Text without secrets: what is known to be one, what looks like one, and where people live on a disk."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from urllib.parse import quote

HIDDEN = "[hidden]"
SHORTEST = 6  # characters of a secret that is looked for by itself: shorter ones would be found everywhere

# Environment variables whose values help and are no secrets; of the others at most the name is shown.
SHOWN = frozenset(
    """
    CUDA_DEVICE_ORDER CUDA_HOME CUDA_VISIBLE_DEVICES GSPO_RAY_CACHE HF_HOME HF_HUB_CACHE HF_HUB_OFFLINE LD_LIBRARY_PATH
    MLFLOW_TRACKING_URI NCCL_DEBUG NCCL_IB_DISABLE NCCL_IB_HCA NCCL_NET_GDR_LEVEL NCCL_P2P_DISABLE NCCL_SHM_DISABLE
    NCCL_SOCKET_IFNAME NVIDIA_VISIBLE_DEVICES OMP_NUM_THREADS OMP_WAIT_POLICY PYTHONPATH PYTORCH_CUDA_ALLOC_CONF
    RAY_ADDRESS RAY_AUTH_MODE RAY_TMPDIR TOKENIZERS_PARALLELISM TRANSFORMERS_OFFLINE VIRTUAL_ENV VLLM_ATTENTION_BACKEND
    VLLM_CPU_KVCACHE_SPACE VLLM_LOGGING_LEVEL VLLM_USE_MODELSCOPE
    """.split()  # noqa: SIM905 - one a line would fill the screen
)
NAMED = ("CUDA", "GSPO_RAY_", "HF_", "MLFLOW_", "NCCL_", "NVIDIA_", "OMP_", "RAY_", "VLLM_")

_SECRET_NAME = re.compile(
    r"token|secret|passw|passphrase|pass$|_pwd|credential|api_?key|access_?key|private_?key|auth|_key$|dsn$|webhook"
    r"|connection_string",
    re.I,
)
_NO_SECRET = frozenset({"true", "false", "null", "none", "token"})  # RAY_AUTH_MODE=token is a mode
# A name and its value, as in YAML, JSON, shells and headers. Plurals (max_tokens) and ids (eos_token_id) are no names.
_NAMED_VALUE = re.compile(
    r"""(?ix) (?P<head> (?: token | secret | passw(?:or)?d | passphrase | [_-]pass | [_-]pwd | credentials? | apikey |
        [_-]key(?:[_-]id)? | accesskey(?:id)? | authorization | cookie | signature )
        ["']? \s* (?: => | = | : ) \s* )
        (?P<value> "(?:[^"\\]|\\.){3,}" | '(?:[^'\\]|\\.){3,}' | (?: (?:bearer|basic) \s+ )? [^\s"',;&}\])]{3,} )"""
)
_URL_USER = re.compile(r"(?<=://)[^\s/'\"<>]+(?=@)")  # user:password
_HOMES = re.compile(r"(?:/home|/Users)/[^/\s\"':,;]+")  # of other nodes too
_PATTERNS = (
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.S),
    _URL_USER,
    re.compile(r"\b(?:bearer|basic)\s+[\w.~+/=-]{8,}", re.I),
    re.compile(r"\bhf_[A-Za-z0-9]{8,}|\bapi_org_[A-Za-z0-9]{8,}"),  # Hugging Face
    re.compile(r"\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{12,}"),  # AWS
    re.compile(r"\bgh[a-z]_[A-Za-z0-9]{16,}|\bgithub_pat_\w{16,}|\bglpat-[\w-]{16,}"),
    re.compile(r"\b(?:sk|pk|rk)-[\w-]{16,}|\bxox[a-z]-[\w-]{10,}|\bAIza[\w-]{30,}|\bdapi[0-9a-f]{24,}"),
    re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"),  # JSON web tokens
)


def redactor(environment: Mapping[str, str] | None = None, home: Path | None = None) -> Callable[[str], str]:
    """`text -> text`. Secrets of this environment and of the usual token files are found wherever they stand."""
    environment = os.environ if environment is None else environment
    home = Path.home() if home is None else home
    known = _known_secrets(environment, home)

    def redact(text: str) -> str:
        for secret in known:
            text = text.replace(secret, HIDDEN)
        for pattern in _PATTERNS:
            text = pattern.sub(HIDDEN, text)
        text = _NAMED_VALUE.sub(_hide_value, text)
        return _HOMES.sub("~", text.replace(str(home), "~") if len(str(home)) > 1 else text)

    return redact


def shown_environment(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Values of SHOWN, "(set)" for other variables that this package or its libraries read, nothing of the rest."""
    environment = os.environ if environment is None else environment
    shown = {name: value for name, value in environment.items() if name in SHOWN}
    return dict(sorted((dict.fromkeys((n for n in environment if n.startswith(NAMED)), "(set)") | shown).items()))


def without_credentials(url: str) -> str:
    """For messages that name a server."""
    return _URL_USER.sub(HIDDEN, url)


def _hide_value(match: re.Match[str]) -> str:
    value = match["value"]
    mark = value[0] if value[0] in "\"'" else ""
    if value.strip("\"'").lower() in _NO_SECRET:
        return match[0]
    return f"{match['head']}{mark}{HIDDEN}{mark}"


def _known_secrets(environment: Mapping[str, str], home: Path) -> list[str]:
    values = [value for name, value in environment.items() if _SECRET_NAME.search(name) and name not in SHOWN]
    for value in environment.values():  # a password in any URL of the environment
        values += re.findall(r"://[^\s/@:]*:([^\s/@]+)@", value)
    hub = Path(environment.get("HF_HOME") or home / ".cache" / "huggingface")
    values += map(_content, (home / ".ray" / "auth_token", hub / "token"))
    return _spellings(value.strip() for value in values)


def _spellings(values: Iterable[str]) -> list[str]:
    """Longest first, each as it is, as JSON writes it, and as a URL does."""
    found = set()
    for value in values:
        if len(value) >= SHORTEST and value.lower() not in _NO_SECRET and not os.path.isdir(value):
            found |= {value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], quote(value, "")}
    return sorted(found, key=len, reverse=True)


def _content(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
