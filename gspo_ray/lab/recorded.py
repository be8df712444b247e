"""Rollouts as they were sampled: the same sequences, rewards and log-probs for every setting that is compared.

Legend: P groups, G completions a group, B sequences in the order of the groups, T tokens of the longest.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gspo_ray.algo.advantages import group_advantages
from gspo_ray.algo.batch import completion_mask
from gspo_ray.errors import ConfigError, DataError
from gspo_ray.tracking.local import ROLLOUTS_DIR, rollouts_file

SHORTEST, LONGEST = 50, 2000  # tokens of the built-in batch
MEAN_SURPRISAL = 0.3  # nats a token, about what a trained model shows at temperature 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    source: str  # where the rollouts come from, for the reader
    synthetic: bool
    rewards_PG: list[list[float]]
    lens_B: Tensor  # int64
    sampler_logprobs_BT: Tensor  # float64; padding holds 0

    @property
    def mask_BT(self) -> Tensor:
        return completion_mask(self.lens_B, self.sampler_logprobs_BT.shape[1])


def synthetic(*, groups: int, group_size: int, seed: int) -> Recorded:
    """Made up: lengths evenly from 50 to 2000 tokens, rewards 0 or 1, log-probs of an exponential surprisal."""
    generator = torch.Generator().manual_seed(seed)
    count = groups * group_size
    lens_B = torch.randint(SHORTEST, LONGEST + 1, (count,), generator=generator)
    rewards_PG = torch.randint(0, 2, (groups, group_size), generator=generator).tolist()
    uniform_BT = torch.rand(count, int(lens_B.max()), generator=generator, dtype=torch.float64)
    return Recorded(
        source=f"made up from seed {seed}: {groups} groups of {group_size}, {SHORTEST} to {LONGEST} tokens, "
        "no model has sampled them",
        synthetic=True,
        rewards_PG=[[float(reward) for reward in rewards_G] for rewards_G in rewards_PG],
        lens_B=lens_B,
        sampler_logprobs_BT=_padded(MEAN_SURPRISAL * torch.log1p(-uniform_BT), lens_B),
    )


def read_run(path: Path, *, step: int | None = None) -> Recorded:
    """The completions of one step: `path` is a run's folder (its newest step, or `step`) or a rollouts file.

    Completions that the loss did not count (never judged, masked, of a discarded group) are left out. Raises DataError.
    """
    file = _rollouts_file(path, step)
    groups: dict[int, list[float]] = {}
    logprobs: dict[int, list[list[float]]] = {}
    left_out = 0
    for where, row in read_jsonl(file):
        try:
            group, reward, values = row["group"], row["reward"], row["sampler_logprobs"]
        except KeyError as error:
            raise DataError(f"{where}: no {error}; this is not a file of a run's {ROLLOUTS_DIR} folder") from error
        if reward is None or row.get("outcome") == "error" or row.get("discarded") or row.get("counted") is False:
            left_out += 1
            continue
        groups.setdefault(group, []).append(float(reward))
        logprobs.setdefault(group, []).append(_logprobs(values, where))
    if not groups:
        raise DataError(f"{file}: no completion with a reward")
    note = f", {left_out} that the loss did not count left out" if left_out else ""
    rows = [values for group in groups for values in logprobs[group]]
    lens_B = torch.tensor([len(values) for values in rows])
    return Recorded(
        source=f"{file}: {len(groups)} groups, {len(rows)} completions{note}",
        synthetic=False,
        rewards_PG=list(groups.values()),
        lens_B=lens_B,
        sampler_logprobs_BT=_stacked(rows),
    )


def read_current(path: Path, recorded: Recorded) -> Tensor:
    """[B, T]: log-probs of the same completions under other weights, one object with `logprobs` a line."""
    rows = []
    for where, row in read_jsonl(path):
        if "logprobs" not in row:
            raise DataError(f"{where}: no `logprobs`; write one object a line, in the order of the rollouts")
        rows.append(_logprobs(row["logprobs"], where))
    if [len(values) for values in rows] != recorded.lens_B.tolist():
        raise DataError(
            f"{path}: {len(rows)} lines that do not fit the {len(recorded.lens_B)} rollouts token by token "
            "(same order, only those that the loss counted)"
        )
    return _stacked(rows)


def perturbed(recorded: Recorded, *, noise: float, update: float, seed: int) -> Tensor:
    """[B, T]: what the log-probs might be after `update` nats a token along the advantage, plus Gaussian noise."""
    generator = torch.Generator().manual_seed(seed)
    shape = recorded.sampler_logprobs_BT.shape
    advantages_B = torch.tensor(list(chain.from_iterable(group_advantages(recorded.rewards_PG))), dtype=torch.float64)
    noise_BT = noise * torch.randn(shape, generator=generator, dtype=torch.float64)
    return _padded(recorded.sampler_logprobs_BT + noise_BT + update * advantages_B[:, None], recorded.lens_B)


def read_jsonl(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """("file:line", object) of every line. Raises DataError."""
    try:
        lines = path.read_text(encoding="utf-8").rstrip("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from error
    for number, line in enumerate(lines, start=1):
        where = f"{path}:{number}"
        try:
            row = json.loads(line)
        except ValueError as error:
            raise DataError(f"{where}: not valid JSON ({error})") from error
        if not isinstance(row, dict):
            raise DataError(f"{where}: not a JSON object")
        yield where, row


def _rollouts_file(path: Path, step: int | None) -> Path:
    if path.is_file():
        if step is not None:
            raise ConfigError(f"--step picks a step of a run's folder, but {path} is a file")
        return path
    if not path.is_dir():
        raise DataError(f"--run {path}: no such folder or file")
    folder = path / ROLLOUTS_DIR
    files = sorted(folder.glob("step_*.jsonl"))
    if not files:
        raise DataError(f"--run {path}: no {ROLLOUTS_DIR}/step_*.jsonl there; name the folder that holds config.yaml")
    if step is None:
        return files[-1]
    if (file := rollouts_file(folder, step)) not in files:
        raise DataError(f"--step {step}: the run has {files[0].name} to {files[-1].name}")
    return file


def _logprobs(values: Any, where: str) -> list[float]:
    if not isinstance(values, list) or not values:
        raise DataError(f"{where}: no log-probs")
    try:
        tensor = torch.tensor(values, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"{where}: a log-prob is not a number") from error
    if tensor.dim() != 1 or not bool((tensor <= 0).all() & tensor.isfinite().all()):
        raise DataError(f"{where}: log-probs must be finite numbers of at most 0, one a token")
    return tensor.tolist()


def _stacked(rows: Sequence[Sequence[float]]) -> Tensor:
    tensors = [torch.tensor(row, dtype=torch.float64) for row in rows]
    return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True)


def _padded(values_BT: Tensor, lens_B: Tensor) -> Tensor:
    return torch.where(completion_mask(lens_B, values_BT.shape[1]), values_BT, 0.0)
