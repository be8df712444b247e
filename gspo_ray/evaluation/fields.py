"""JSON lines, read with care: every complaint names the file, the line and the field."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from gspo_ray.errors import DataError

Choice = TypeVar("Choice", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Fields:
    """One JSON object and where it stands. Every getter raises DataError when the field is missing or of another kind.

    Example: Fields("eval.jsonl:3", {"val_n": 12}).whole("val_n") == 12
    """

    where: str  # "eval.jsonl:3"
    data: Mapping[str, Any]
    prefix: str = ""  # of names in messages: "sampling."

    def text(self, name: str) -> str:
        value = self.data.get(name)
        return value if isinstance(value, str) else self._refuse(name, "text")

    def optional_text(self, name: str) -> str | None:
        return None if self.data.get(name) is None else self.text(name)

    def flag(self, name: str) -> bool:
        value = self.data.get(name)
        return value if isinstance(value, bool) else self._refuse(name, "true or false")

    def whole(self, name: str, *, least: int = 0) -> int:
        value = self.data.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value >= least:
            return value
        return self._refuse(name, f"a whole number, at least {least}")

    def optional_whole(self, name: str, *, least: int = 0) -> int | None:
        return None if self.data.get(name) is None else self.whole(name, least=least)

    def number(self, name: str) -> float:
        value = self.data.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            return float(value)
        return self._refuse(name, "a finite number")

    def positive(self, name: str) -> float:
        value = self.number(name)
        return value if value > 0 else self._refuse(name, "above 0")

    def share(self, name: str) -> float:
        value = self.number(name)
        return value if 0.0 <= value <= 1.0 else self._refuse(name, "between 0 and 1")

    def choice(self, name: str, kind: type[Choice]) -> Choice:
        try:
            return kind(self.text(name))
        except ValueError:
            return self._refuse(name, "one of " + ", ".join(kind))

    def inner(self, name: str) -> Fields:
        value = self.data.get(name)
        if not isinstance(value, dict):
            return self._refuse(name, "an object")
        return Fields(self.where, value, f"{self.prefix}{name}.")

    def items(self, name: str) -> list[Fields]:
        values = self.data.get(name)
        if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
            return self._refuse(name, "a list of objects")
        return [Fields(self.where, value, f"{self.prefix}{name}[{index}].") for index, value in enumerate(values)]

    def _refuse(self, name: str, wanted: str) -> NoReturn:
        if name not in self.data:
            raise DataError(f"{self.where}: no field {self.prefix + name!r} (expected {wanted})")
        raise DataError(f"{self.where}: {self.prefix}{name} is {_short(self.data[name])}, expected {wanted}")


def read_objects(path: Path) -> Iterator[Fields]:
    """The objects of a JSON-lines file, blank lines skipped.

    A last line without its line break that does not parse was torn by a kill and is left out; any other line that is
    no JSON object raises DataError.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    return parse_objects(path, content)


def parse_objects(path: Path, content: bytes) -> Iterator[Fields]:
    """The same of a file's bytes; `path` is for messages."""
    for number, line in enumerate(content.split(b"\n"), start=1):  # only \n ends a line, U+2028 in a text does not
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            value = json.loads(line.decode("utf-8"), parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            if content.endswith(line) and not content.endswith(b"\n"):
                return
            raise DataError(f"{where}: not valid JSON ({error})") from None
        if not isinstance(value, dict):
            raise DataError(f"{where}: the line is {_short(value)}, not a JSON object")
        yield Fields(where, value)


def _no_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON number")


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."
