"""What goes to MLflow, as plain values: flattened params, finite metrics, a short table of completions."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import yaml

from gspo_ray.algo.record import StepRecord
from gspo_ray.tracking.local import rollout_rows

TABLE_COLUMNS = (
    "step",
    "problem_id",
    "question",
    "gold",
    "text",
    "extracted",
    "outcome",
    "reward",
    "advantage",
    "tokens",
    "finish",
    "mean_sampler_logprob",
    "engine_id",
)
MAX_TABLE_ROWS = 32
MAX_TEXT = 4000


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested config to dotted params: {"model": {"lora": {"rank": 16}}} -> {"model.lora.rank": "16"}."""
    params: dict[str, str] = {}
    for key, value in config.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            params |= flatten(value, prefix=f"{name}.")
        elif isinstance(value, (list, tuple)):
            params[name] = json.dumps(value, ensure_ascii=False, default=str)
        else:
            params[name] = str(value)
    return params


def as_yaml(config: Mapping[str, Any]) -> str:
    """The config in the form in which it can be started again."""
    return yaml.safe_dump(_plain(config), sort_keys=False, allow_unicode=True)


def shorten(text: str, limit: int) -> str:
    """`text` with its middle left out when it is too long: a completion's answer is at its end."""
    if len(text) <= limit:
        return text
    head = (limit - 3) * 2 // 3
    tail = limit - 3 - head
    return f"{text[:head]} … {text[-tail:]}"


def finite(values: Mapping[str, float]) -> tuple[dict[str, float], list[str]]:
    """The metrics that MLflow can keep, and the names of those that are NaN or infinite."""
    good = {name: float(value) for name, value in values.items() if math.isfinite(value)}
    return good, [name for name in values if name not in good]


def rollout_table(record: StepRecord) -> str | None:
    """The best and the worst completion of each group, in the JSON that MLflow shows as a table; None if empty."""
    rows = []
    first = 0
    every = rollout_rows(record)
    for group in record.groups_P:
        own = every[first : first + len(group.completions)]
        first += len(own)
        rows += _best_and_worst(own)
    if not rows:
        return None
    data = [[_cell(row[column]) for column in TABLE_COLUMNS] for row in rows[:MAX_TABLE_ROWS]]
    return json.dumps({"columns": list(TABLE_COLUMNS), "data": data})


def _best_and_worst(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if not rows:
        return []
    order = sorted(rows, key=lambda row: row["reward"] or 0.0, reverse=True)
    best, worst = order[0], order[-1]
    return [best, worst] if best["reward"] != worst["reward"] else [best]


def _cell(value: Any) -> Any:
    return shorten(value, MAX_TEXT) if isinstance(value, str) else value


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value if isinstance(value, (bool, int, float, str, type(None))) else str(value)
