"""The result file while it grows: one line a problem, on disk at once, continued where a kill left it."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from gspo_ray.errors import DataError
from gspo_ray.evaluation.fields import Fields, parse_objects, read_objects
from gspo_ray.evaluation.records import FORMAT, EvalProtocol, FailedRecord, ProblemRecord, flat

_HEADER_START = b'{"type": "header"'


@dataclass(slots=True)
class Attempt:
    """One start of the evaluation; `seconds` is known up to the last line that it wrote."""

    gpus: int
    seconds: float = 0.0


@dataclass(slots=True)
class LogContent:
    """What a result file holds. `problems` and `failed` share no id."""

    where: str
    protocol: EvalProtocol
    problems: dict[str, ProblemRecord] = field(default_factory=dict)
    failed: dict[str, FailedRecord] = field(default_factory=dict)
    attempts: list[Attempt] = field(default_factory=list)
    summary: Mapping[str, Any] | None = None  # the last one

    @property
    def missing(self) -> int:
        """Problems without any record."""
        return self.protocol.data.problems - len(self.problems) - len(self.failed)

    @property
    def is_complete(self) -> bool:
        """Nothing is left to do but to read `summary`."""
        return self.missing == 0 and self.summary is not None


def read_log(path: Path) -> LogContent:
    """Raises DataError with file and line for anything that is no result file of this format."""
    return _content(path, read_objects(path))


class EvalLog:
    """Writer of a result file. Create it before the engines start: GPU-seconds count from there.

    A file of the same protocol is continued; one of another protocol, or in use, raises DataError and stays as it is.
    `retry_failed` forgets failed problems, so that they are tried again.
    """

    def __init__(
        self,
        path: Path,
        protocol: EvalProtocol,
        *,
        device: str,
        gpus: int,
        retry_failed: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock, self._started = clock, clock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a+b")
        except OSError as error:
            raise DataError(f"{path}: cannot be written ({error.strerror})") from error
        try:
            self.content = self._open(path, protocol)
        except BaseException:
            self._file.close()
            raise
        if retry_failed:
            self.content.failed.clear()
        self.content.attempts.append(Attempt(gpus))
        self._attempt: dict[str, Any] | None = {"type": "attempt", "started_at": _now(), "device": device, "gpus": gpus}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def is_done(self, problem_id: str) -> bool:
        return problem_id in self.content.problems or problem_id in self.content.failed

    def add(self, record: ProblemRecord | FailedRecord) -> None:
        """On disk when this returns. A problem is added once."""
        if self.is_done(record.problem_id):
            raise ValueError(f"problem {record.problem_id!r} has a record already")
        attempt = self.content.attempts[-1]
        attempt.seconds = self._clock() - self._started
        clock = {"attempt": len(self.content.attempts), "elapsed_s": round(attempt.seconds, 3)}
        self._write_in_attempt({**record.to_json(), "clock": clock})
        if isinstance(record, ProblemRecord):
            self.content.problems[record.problem_id] = record
        else:
            self.content.failed[record.problem_id] = record

    def finish(self, summary: Mapping[str, Any]) -> dict[str, Any]:
        """Write the last line: `summary` and, apart from it, date and cost over all attempts. Returns the whole."""
        attempts = self.content.attempts
        attempts[-1].seconds = self._clock() - self._started
        clock = {
            "finished_at": _now(),
            "attempts": len(attempts),
            "wall_seconds": round(sum(attempt.seconds for attempt in attempts), 3),
            "gpu_seconds": round(sum(attempt.seconds * attempt.gpus for attempt in attempts), 3),
        }
        record = {**summary, "clock": clock}
        self._write_in_attempt(record)
        self.content.summary = record
        return record

    def close(self) -> None:
        self._file.close()

    def _open(self, path: Path, protocol: EvalProtocol) -> LogContent:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # gone with the process, however it ends
        except BlockingIOError:
            raise DataError(f"{path} is being written by another evaluation. Name another file.") from None
        self._file.seek(0)
        text = self._file.read()
        whole = text.rfind(b"\n") + 1
        if whole == 0 and text[: len(_HEADER_START)] == _HEADER_START[: len(text)]:  # empty, or torn in the header
            self._file.truncate(0)
            self._write({"type": "header", "format": FORMAT, "protocol": protocol.to_json()})
            return LogContent(str(path), protocol)
        content = _content(path, parse_objects(path, text[:whole]))
        _refuse_other_protocol(content, protocol)
        self._file.truncate(whole)
        return content

    def _write_in_attempt(self, record: Mapping[str, Any]) -> None:
        """The attempt's own line comes with its first record: looking at a finished file leaves it as it is."""
        if self._attempt is not None:
            self._write(self._attempt)
            self._attempt = None
        self._write(record)

    def _write(self, record: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(record, ensure_ascii=False, allow_nan=False).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())


def _content(path: Path, lines: Iterator[Fields]) -> LogContent:
    header = next(lines, None)
    if header is None:
        raise DataError(f"{path}: no records. It is empty, or was torn in its first line.")
    if header.data.get("type") != "header" or header.data.get("format") != FORMAT:
        raise DataError(f"{header.where}: not the header of a result file ({FORMAT})")
    content = LogContent(str(path), EvalProtocol.from_fields(header.inner("protocol")))
    for fields in lines:
        _take(content, fields)
    if content.missing < 0:
        raise DataError(
            f"{path}: {-content.missing} problems more than the {content.protocol.data.problems} of its set"
        )
    return content


def _take(content: LogContent, fields: Fields) -> None:
    match fields.text("type"):
        case "attempt":
            content.attempts.append(Attempt(fields.whole("gpus")))
        case "problem":
            problem = ProblemRecord.from_fields(fields, samples_per_problem=content.protocol.samples_per_problem)
            if problem.problem_id in content.problems:
                raise DataError(f"{fields.where}: problem {problem.problem_id!r} is there a second time")
            content.problems[problem.problem_id] = problem
            content.failed.pop(problem.problem_id, None)
            _take_clock(content, fields)
        case "failed":
            failed = FailedRecord.from_fields(fields)
            if failed.problem_id not in content.problems:
                content.failed[failed.problem_id] = failed
            _take_clock(content, fields)
        case "summary":
            content.summary = fields.data
        case other:
            raise DataError(f"{fields.where}: unknown type {other!r}")


def _take_clock(content: LogContent, fields: Fields) -> None:
    clock = fields.inner("clock")
    number = clock.whole("attempt", least=1)
    if number > len(content.attempts):
        raise DataError(f"{fields.where}: clock.attempt is {number}, after {len(content.attempts)} attempt lines")
    attempt = content.attempts[number - 1]
    attempt.seconds = max(attempt.seconds, clock.number("elapsed_s"))


def _refuse_other_protocol(content: LogContent, wanted: EvalProtocol) -> None:
    old = flat(content.protocol.to_json())
    new = flat(json.loads(json.dumps(wanted.to_json())))  # as a file would hold it: tuples are lists
    for key in sorted(old.keys() | new.keys()):
        if old.get(key) != new.get(key):
            raise DataError(
                f"{content.where}: was made with {key} = {old.get(key)!r}, not {new.get(key)!r}, so it cannot be "
                "continued. Name another file, or remove this one."
            )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
