"""Result files on disk to `Result`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from gspo_ray.errors import DataError
from gspo_ray.evaluation.fields import read_objects
from gspo_ray.evaluation.lab_files import read_lab_result
from gspo_ray.evaluation.log import LogContent, read_log
from gspo_ray.evaluation.per_problem import sample_rates
from gspo_ray.evaluation.records import EvalProtocol, ProblemRecord, flat
from gspo_ray.evaluation.result import Result, with_rates

# Of the protocol, what may differ between results that are compared. Problems are matched one by one.
_FREE = (
    "adapter_sha256",
    "adapter_step",
    "seed",
    "engine",
    "code_version",
    "data.name",
    "data.sha256",
    "data.problems",
)


def read_result(path: Path) -> Result:
    """Raises DataError with file and line when it is neither kind, unfinished, or has numbers that cannot be."""
    first = next(read_objects(path), None)
    if first is None:
        raise DataError(f"{path}: no records. Name a result file of `gspo-ray eval`.")
    if first.data.get("type") == "header":
        return result_of_log(read_log(path))
    return read_lab_result(path)


def result_of_log(content: LogContent) -> Result:
    """Of the records, not of the stored summary."""
    if content.missing:
        total = content.protocol.data.problems
        raise DataError(
            f"{content.where}: unfinished, {content.missing} of {total} problems have no record. "
            "Start the same evaluation again to complete it."
        )
    return result_of(content.protocol, content.problems.values(), content.failed, where=f"{content.where}:1")


def result_of(
    protocol: EvalProtocol, problems: Iterable[ProblemRecord], failed: Iterable[str], *, where: str
) -> Result:
    """The same for any order of `problems`."""
    judged = list(problems)
    if not judged:
        raise DataError(f"{where}: no problem was evaluated, so there is nothing to report")
    settings = flat(json.loads(json.dumps(protocol.to_json())))  # as read from a file: tuples are lists
    blank = Result(
        where=where,
        is_base=protocol.adapter_sha256 is None,
        step=protocol.adapter_step,
        adapter=protocol.adapter_sha256,
        seed=protocol.seed,
        samples_per_problem=protocol.samples_per_problem,
        max_tokens=protocol.sampling.max_tokens,
        settings={key: value for key, value in settings.items() if key not in _FREE},
        means={},
        num_problems=0,
        failed=tuple(sorted(failed)),
    )
    return with_rates(
        blank,
        {problem.problem_id: sample_rates(problem.samples) for problem in judged},
        {problem.problem_id: problem.gold for problem in judged},
    )
