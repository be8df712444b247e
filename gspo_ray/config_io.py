"""From a YAML file and dotted flags to a checked `RunConfig`, with messages that name the key and the fix."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from gspo_ray.config import RunConfig
from gspo_ray.errors import ConfigError


def load_config(path: str | Path | None, overrides: Sequence[str] = ()) -> RunConfig:
    """`overrides` are command-line words: ["--rollout.max_tokens", "64", "--seed=1"]. Raises ConfigError."""
    tree = _read_yaml(Path(path)) if path is not None else {}
    for key, value in parse_overrides(overrides):
        _set(tree, key, value)
    return parse_config(tree, where=str(path) if path is not None else "the command line")


def parse_config(tree: dict[str, Any], *, where: str) -> RunConfig:
    try:
        return RunConfig.model_validate(tree)
    except ValidationError as error:
        lines = [_explain(item) for item in error.errors()]
        raise ConfigError(f"{where}: " + "; ".join(lines)) from None


def dump_config(config: RunConfig) -> str:
    """The resolved tree as YAML; `load_config` of it gives the same config."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def flatten(config: RunConfig) -> dict[str, Any]:
    """{"rollout.max_tokens": 64, ...} for trackers."""

    def walk(prefix: str, node: Any) -> Iterable[tuple[str, Any]]:
        if isinstance(node, dict):
            for key, value in node.items():
                yield from walk(f"{prefix}.{key}" if prefix else key, value)
        else:
            yield prefix, node

    return dict(walk("", config.model_dump(mode="json")))


def parse_overrides(words: Sequence[str]) -> list[tuple[str, Any]]:
    """Values are read as YAML, so 4e-5, true, null and [q_proj, v_proj] mean what they look like."""
    pairs: list[tuple[str, Any]] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--") or word == "--":
            raise ConfigError(f"unexpected argument {word!r}: overrides look like --rollout.max_tokens 64")
        key, equals, value = word[2:].partition("=")
        if not equals:
            if not rest or rest[0].startswith("--"):
                raise ConfigError(f"--{key} needs a value, e.g. --{key} 64")
            value = rest.pop(0)
        pairs.append((key, _yaml_value(value)))
    return pairs


def _yaml_value(text: str) -> Any:
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        return text
    if isinstance(value, str):  # YAML 1.1 reads 4e-5 (no dot) as a string
        try:
            return float(value)
        except ValueError:
            return value
    return value


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"config file {path} does not exist") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"config file {path} cannot be read: {error}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"config file {path} is not valid YAML: {error}") from None
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise ConfigError(f"config file {path} must hold `section:` keys, got {type(tree).__name__}")
    return tree


def _set(tree: dict[str, Any], dotted: str, value: Any) -> None:
    *parents, leaf = dotted.split(".")
    node = tree
    for depth, key in enumerate(parents):
        child = node.setdefault(key, {})
        if not isinstance(child, dict):
            raise ConfigError(f"--{dotted}: {'.'.join(parents[: depth + 1])} is a value, not a section")
        node = child
    node[leaf] = value


def _explain(item: Any) -> str:
    location = ".".join(str(part) for part in item["loc"])
    if item["type"] == "extra_forbidden":
        nearest = difflib.get_close_matches(location, _all_keys(), n=1, cutoff=0.0)
        return f"unknown key {location!r}, did you mean {nearest[0]!r}?"
    message = item["msg"].removeprefix("Value error, ")
    if item["type"] == "value_error":
        return message
    return f"{location}: {message}, got {item['input']!r}"


def _all_keys(model: type[BaseModel] = RunConfig, prefix: str = "") -> list[str]:
    keys = []
    for name, info in model.model_fields.items():
        keys.append(prefix + name)
        for kind in (info.annotation, *get_args(info.annotation)):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                keys += _all_keys(kind, f"{prefix}{name}.")
    return keys
