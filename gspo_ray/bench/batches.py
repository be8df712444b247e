"""The batches that learners are measured on: recorded lengths with made-up token ids, or a file of rollouts."""

from __future__ import annotations

import json
import random
from importlib.resources import files
from pathlib import Path

from gspo_ray.errors import ConfigError, DataError
from gspo_ray.seeding import derive_seed

Group = tuple[list[int], list[list[int]]]
"""Token ids of a prompt, and of each of its completions."""

_LENGTHS = json.loads(files("gspo_ray.bench").joinpath("lengths.json").read_text(encoding="utf-8"))
NAMES: dict[str, str] = {name: entry["text"] for name, entry in _LENGTHS.items()}
"""Batches that come with the package, and what they are."""


def load_batch(name: str, *, vocabulary: int, seed: int) -> list[Group]:
    """One of NAMES with ids drawn from `seed`, or a file. Raises ConfigError and DataError."""
    if name in NAMES:
        rng = random.Random(derive_seed(seed, "bench", name))
        # The first ids are often special tokens.
        low = min(3, vocabulary - 1)

        def ids(count: int) -> list[int]:
            return [rng.randrange(low, vocabulary) for _ in range(count)]

        return [(ids(prompt), [ids(length) for length in lengths]) for prompt, lengths in _LENGTHS[name]["groups"]]
    path = Path(name).expanduser()
    if not path.is_file():
        raise ConfigError(f"--batch {name!r} is neither a file nor one of {', '.join(NAMES)}")
    groups = _read_rollouts(path)
    if any(token >= vocabulary for prompt, completions in groups for ids in (prompt, *completions) for token in ids):
        raise DataError(f"{path} has token ids beyond the model's vocabulary of {vocabulary}: name its own model")
    return groups


def useful_tokens(groups: list[Group]) -> int:
    """Prompt and completion of every sequence, the prompt counted each time: what a trainer is asked to learn from."""
    return sum(len(prompt) + len(ids) for prompt, completions in groups for ids in completions)


def _read_rollouts(path: Path) -> list[Group]:
    """A file of rollouts/ in a run folder: its groups in their order. Raises DataError."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror})") from None
    groups: dict[int, Group] = {}
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
            prompt, ids = list(row["prompt_ids"]), list(row["token_ids"])
            group = groups.setdefault(row["group"], (prompt, []))
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"{path}:{number} has not group, prompt_ids and token_ids of a rollout: {error!r}"
            ) from None
        if not prompt or not ids:
            raise DataError(f"{path}:{number} has an empty prompt or completion")
        group[1].append(ids)
    if not groups:
        raise DataError(f"{path} is empty")
    return list(groups.values())
