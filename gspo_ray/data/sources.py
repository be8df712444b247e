"""From `data.source` and `data.path` to a list of problems."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from gspo_ray.config import DataConfig
from gspo_ray.data.formats import READERS, Located, additions
from gspo_ray.errors import DataError
from gspo_ray.types import Problem

logger = logging.getLogger(__name__)


def load_problems(config: DataConfig) -> list[Problem]:
    """The problems in file order, ids unique, question and answer stripped and not empty.

    A row that repeats an earlier one's id, question and answer counts once (the official DAPO file holds each
    row 100 times), also against `max_problems`; reading stops when that many are found.
    Raises DataError, naming file, line and fix, for anything that cannot be read.
    """
    if config.source == "additions":
        return [problem for problem, _ in islice(additions(), config.max_problems)]
    if not config.path:
        raise DataError(f"data.source is {config.source!r}, which reads a file: set data.path.")
    path = Path(config.path).expanduser()
    problems = list(islice(_unique(READERS[config.source](config, path)), config.max_problems))
    if not problems:
        raise DataError(f"{path} has no rows. Set data.path to a file with at least one problem.")
    repeated = len(problems) - len({problem.question for problem in problems})
    if repeated:
        logger.warning("%s: %d of %d problems repeat the question of another one", path, repeated, len(problems))
    return problems


def _unique(located: Iterable[Located]) -> Iterator[Problem]:
    seen: dict[str, Located] = {}
    repeats = 0
    for problem, where in located:
        first = seen.setdefault(problem.problem_id, (problem, where))
        if first[1] == where:
            yield problem
        elif (first[0].question, first[0].answer) == (problem.question, problem.answer):
            repeats += 1
        else:
            raise DataError(
                f"{where}: id {problem.problem_id!r} is already that of another problem at {first[1]}. "
                "Give every problem an id of its own, or set data.id_column to a column that does."
            )
    if repeats:
        logger.warning("%d rows repeat an earlier row word for word; %d distinct problems are kept", repeats, len(seen))
