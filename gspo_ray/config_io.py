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

_FLAGS = ("config", "dry-run", "resume")  # of the command line itself, to be offered for `--dryrun`


def load_config(path: str | Path | None, overrides: Sequence[str] = ()) -> RunConfig:
    """`overrides` are command-line words: ["--rollout.max_tokens", "64", "--seed=1"]. Raises ConfigError."""
    tree = _read_yaml(Path(path).expanduser()) if path is not None else {}
    for key, value in parse_overrides(overrides):
        _set(tree, key, value)
    sources = [str(path)] * (path is not None) + ["the command line"] * (path is None or bool(overrides))
    return parse_config(tree, where=" with ".join(sources))


def parse_config(tree: dict[str, Any], *, where: str) -> RunConfig:
    try:
        return RunConfig.model_validate(tree)
    except ValidationError as error:
        faults = dict.fromkeys(_explain(item) for item in error.errors())
        raise ConfigError(f"{where}: " + "; ".join(fault.rstrip(".") for fault in faults)) from None


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
    """Values are read as YAML, so 4e-5, true, null and [q_proj, v_proj] mean what they look like.

    Keys that hold text take the words as they are: `--name 001`, `--data.prompt.system "Note: ..."`.
    """
    kinds = _all_keys()
    pairs: list[tuple[str, Any]] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        key, equals, value = word[2:].partition("=")
        if not word.startswith("--") or not key:
            raise ConfigError(f"unexpected argument {word!r}: overrides look like --rollout.max_tokens 64")
        if key not in kinds:
            raise ConfigError(f"unknown flag --{key}, did you mean --{_nearest(key, also=_FLAGS)}?")
        if not equals:
            if not rest or rest[0].startswith("--"):
                raise ConfigError(f"--{key} needs a value: --{key}=VALUE")
            value = rest.pop(0)
        pairs.append((key, _text_value(value, kinds[key]) if _is_text(kinds[key]) else _yaml_value(value)))
    return pairs


def _is_text(kind: Any) -> bool:
    return kind is str or kind == str | None


def _text_value(text: str, kind: Any) -> str | None:
    """As typed; YAML would read 001, yes, `Note: x` or `a # b` as something else. In quotes it is a YAML string."""
    if kind != str and text in ("null", "~"):  # noqa: E721
        return None
    value = _yaml_value(text) if text[:1] in ("'", '"') else text
    return value if isinstance(value, str) else text


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


class _Loader(yaml.SafeLoader):
    """Refuses a key that comes twice: plain YAML keeps the last one, and a section would be lost in silence."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        first: dict[Any, int] = {}
        for key_node, _ in node.value:
            key, line = key_node.value, key_node.start_mark.line + 1
            if isinstance(key, str) and first.setdefault(key, line) != line:
                raise ConfigError(f"{key!r} is there twice, in lines {first[key]} and {line}. Merge or remove one.")
        return super().construct_mapping(node, deep)


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        tree = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)  # a SafeLoader
    except FileNotFoundError:
        raise ConfigError(f"config file {path} does not exist (relative to {Path.cwd()})") from None
    except OSError as error:
        raise ConfigError(f"config file {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"config file {path} is not UTF-8 text. Check that --config names the right file.") from None
    except ConfigError as error:
        raise ConfigError(f"config file {path}: {error}") from None
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise ConfigError(f"config file {path} is not valid YAML: {line}{error.problem}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a date such as 2026-13-01
        reason = " ".join(str(error).split())
        raise ConfigError(f"config file {path} is not valid YAML: {reason}") from None
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise ConfigError(f"config file {path} must hold `section:` keys, got a {type(tree).__name__}")
    return tree


def _set(tree: dict[str, Any], dotted: str, value: Any) -> None:
    *parents, leaf = dotted.split(".")
    node = tree
    for depth, key in enumerate(parents):
        if node.get(key) is None:  # absent, or a section whose keys are all commented out
            node[key] = {}
        child = node[key]
        if not isinstance(child, dict):
            raise ConfigError(f"--{dotted}: {'.'.join(parents[: depth + 1])} is a section, but is set to {child!r}")
        node = child
    node[leaf] = value


def _explain(item: Any) -> str:
    """One line for one pydantic error; always names the key."""
    kinds = _all_keys()
    parts = [str(part) for part in item["loc"]]
    location = ".".join(parts)
    if item["type"] == "extra_forbidden":
        if location in kinds:
            return f"unknown key {location!r}: in a file, nest it (`{parts[-1].replace('.', ': {')}: ...{'}'}`)"
        return f"unknown key {location!r}, did you mean {_nearest(location)!r}?"
    while parts and ".".join(parts) not in kinds:  # pydantic appends the arm of a union and the place in a list
        parts.pop()
    key = ".".join(parts) or location
    message = item["msg"].removeprefix("Value error, ")
    if item["type"] == "value_error" and (key in message or not location):
        return message
    if item["type"] == "model_type":
        inside = ", ".join(name.rpartition(".")[2] for name in kinds if name.rpartition(".")[0] == key)
        return f"{key} is a section with keys of its own ({inside}), got {item['input']!r}. Set those, or remove it"
    hint = ". Put it in quotes" if item["type"] == "string_type" else ""
    return f"{key}: {message}, got {item['input']!r}{hint}"


def _nearest(wrong: str, *, also: Sequence[str] = ()) -> str:
    """By the whole name and by its last part, so that the right name in a wrong section is found."""

    def likeness(key: str) -> float:
        pairs = (wrong, key), (wrong.rpartition(".")[2], key.rpartition(".")[2])
        return sum(difflib.SequenceMatcher(None, *pair).ratio() for pair in pairs)

    return max((*_all_keys(), *also), key=likeness)


def _all_keys(model: type[BaseModel] = RunConfig, prefix: str = "") -> dict[str, Any]:
    """Dotted names of all sections and keys, with their types."""
    kinds: dict[str, Any] = {}
    for name, info in model.model_fields.items():
        kinds[prefix + name] = info.annotation
        for kind in (info.annotation, *get_args(info.annotation)):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                kinds |= _all_keys(kind, f"{prefix}{name}.")
    return kinds
