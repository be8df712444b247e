"""From `data.source` and `data.path` to a list of problems."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from gspo_ray.config import NO_FILE, ProblemSource
from gspo_ray.data.formats import READERS, Located, additions
from gspo_ray.errors import DataError
from gspo_ray.types import Problem

logger = logging.getLogger(__name__)


def load_problems(config: ProblemSource, *, section: str = "data") -> list[Problem]:
    """The problems in file order, ids unique, question and answer stripped and not empty.

    `section` is the part of the config that messages name.

    A row that repeats an earlier one's id, question and answer counts once (the official DAPO file holds each
    row 100 times), also against `max_problems`; reading stops when that many are found. Where the file gives no
    ids, question and answer alone decide.
    Raises DataError, naming file, line and fix, for anything that cannot be read.
    """
    if config.source in NO_FILE:
        made = additions(held_out=config.source == "additions_heldout")
        return [located.problem for located in islice(made, config.max_problems)]
    if not config.path:
        raise DataError(f"{section}.source is {config.source!r}, which reads a file: set {section}.path.")
    path = Path(config.path).expanduser()
    problems = list(islice(_unique(READERS[config.source](config, path)), config.max_problems))
    if not problems:
        raise DataError(f"{path} has no rows. Set {section}.path to a file with at least one problem.")
    repeated = len(problems) - len({problem.question for problem in problems})
    if repeated:
        logger.warning("%s: %d of %d problems repeat the question of another one", path, repeated, len(problems))
    return problems


def _unique(located: Iterable[Located]) -> Iterator[Problem]:
    seen: dict[object, Located] = {}
    rows = 0
    for item in located:
        rows += 1
        problem = item.problem
        first = seen.setdefault(problem.problem_id if item.named else (problem.question, problem.answer), item)
        if first is item:
            yield problem
        elif (first.problem.question, first.problem.answer) != (problem.question, problem.answer):
            raise DataError(
                f"{item.where}: id {problem.problem_id!r} is already that of another problem at {first.where}. "
                "Give every problem an id of its own, or set data.id_column to a column that does."
            )
    if rows > len(seen):
        repeats = rows - len(seen)
        logger.warning("%d rows repeat an earlier row word for word; %d distinct problems are kept", repeats, len(seen))
