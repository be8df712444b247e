"""Columns by (dotted) name, and what their values may be: a question is text, an answer becomes a string."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from difflib import SequenceMatcher
from typing import Any

from gspo_ray.errors import DataError

# What other data sets call these two; a plain spelling distance would offer "solution" for "question".
_SYNONYMS = {
    "question": ("problem", "prompt", "input", "query"),
    "answer": ("target", "label", "ground_truth", "final_answer"),
}
_MAX_EXPONENT = 400  # a float64 reaches 308; beyond this a short text such as 1e999999999 would fill the memory


def lookup(fields: Mapping[str, Any], name: str, *, where: str) -> Any:
    """The value of column `name`; "a.b" is a column of that name or b within a. Raises DataError when it is absent."""
    if name in fields:
        return fields[name]
    node: Any = fields
    for part in name.split("."):
        if not isinstance(node, Mapping) or part not in node:
            raise missing_column(name, _field_names(fields), where=where)
        node = node[part]
    return node


def missing_column(name: str, names: Iterable[str], *, where: str) -> DataError:
    leaf = name.rpartition(".")[2]

    def distance(other: str) -> tuple[bool, float]:
        return other.rpartition(".")[2] not in _SYNONYMS.get(leaf, ()), -SequenceMatcher(None, name, other).ratio()

    found = ", ".join(sorted(dict.fromkeys(names), key=distance)) or "none"
    return DataError(
        f"{where}: no column {name!r}. Columns there, nearest first: {found}. "
        "Name the right one in data.question_column, data.answer_column or data.id_column "
        "(they are read when data.source is jsonl or parquet)."
    )


def schema_names(schema: Any) -> list[str]:
    """Column names of an Arrow schema; the fields of a struct also as "struct.field"."""

    def walk(prefix: str, fields: Iterable[Any]) -> Iterable[str]:
        for field in fields:
            name = prefix + field.name
            yield name
            if hasattr(field.type, "fields") and str(field.type).startswith("struct"):
                yield from walk(f"{name}.", field.type.fields)

    return list(walk("", schema))


def question_text(value: Any, column: str, *, where: str) -> str:
    """Stripped. Raises DataError unless it is text that a tokenizer can encode."""
    if type(value) is not str:
        raise DataError(
            f"{where}: {column} is {_kind(value)}, not text. Put the question there as a string"
            + (", or set data.source=dapo for rows whose prompt is a list of messages." if _is_nested(value) else ".")
        )
    text = value.strip()
    if not text:
        raise DataError(f"{where}: {column} is empty. Fill it in or remove the row.")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise DataError(f"{where}: {column} has an escape that is half a character (\\ud8..). Mend it.") from None
    return text


def answer_text(value: Any, column: str, *, where: str) -> str:
    """The answer as a string, numbers as they were written (27.0, 22099999999999998951424), without an exponent.

    Raises DataError for null, true/false, lists, records, NaN and empty text.
    """
    if type(value) is str:
        text = value.strip()
    elif isinstance(value, str | int | float | Decimal) and not isinstance(value, bool):
        text = _plain_number(str(value), column, where)
    else:
        raise DataError(f"{where}: {column} is {_kind(value)}. An answer is a string or a number: mend the row.")
    if not text:
        raise DataError(f"{where}: {column} is empty. Fill it in or remove the row.")
    return text


def id_text(value: Any, column: str, *, where: str) -> str:
    """A problem id as a string; 0 is one, null and "" are not."""
    text = str(value).strip() if isinstance(value, str | int) and not isinstance(value, bool) else ""
    if not text:
        raise DataError(
            f"{where}: {column} is {_kind(value)}. An id is a non-empty string or an integer; "
            "set data.id_column to another column, or to null to use row numbers."
        )
    return text


def _plain_number(text: str, column: str, where: str) -> str:
    """1e5 -> 100000: the verifier's parser reads the e as Euler's number."""
    exponent = re.search(r"[eE]([+-]?\d+)$", text)
    if exponent and abs(int(exponent[1])) <= _MAX_EXPONENT:
        return format(Decimal(text), "f")
    if exponent or not Decimal(text).is_finite():
        raise DataError(f"{where}: {column} is {text}, which cannot be an answer. Mend the row.")
    return text


def _field_names(fields: Mapping[str, Any], prefix: str = "") -> Iterable[str]:
    for key, value in fields.items():
        yield prefix + key
        if isinstance(value, Mapping):
            yield from _field_names(value, f"{prefix}{key}.")


def _is_nested(value: Any) -> bool:
    return isinstance(value, list | tuple | Mapping)


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "a record"
    if isinstance(value, str):
        return "empty" if not value.strip() else f"the number {value}"
    return f"a {type(value).__name__}"
