"""Fill frozen dataclasses from JSON: a wrong type, a missing key or an unknown key is an error that names the field.

For the parts that have only the standard library of Python 3.9: doctor.py, and what runs beside the compiler. Others
use `core.models`.
"""

from __future__ import annotations

import ast
import json
import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

_Record = TypeVar("_Record")

_ATOMS: Mapping[str, type | tuple[type, ...]] = {"str": str, "bool": bool, "int": int, "float": (int, float)}
SHA256 = "[0-9a-f]{64}"
"""A regular expression for a sha256 in hex."""

LARGEST_INTEGER = (1 << 63) - 1
"""The largest accepted integer and its negative; file offsets are signed 64-bit numbers."""


def parse_json(text: str | bytes) -> Any:
    """Parse JSON in UTF-8. Raises `ValueError` if it is none, if parsers read it differently, or if it is too deep."""
    try:
        return _DECODER.decode(text.decode() if isinstance(text, bytes) else text)
    except RecursionError:
        raise ValueError("nested too deep") from None


def _parse_unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object has a key twice")
    return found


def _parse_integer(text: str) -> int:
    if len(text) > len(str(LARGEST_INTEGER)):
        raise ValueError("a number is too long")
    return int(text)


def _parse_float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number is too large")
    return number


def _reject_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_parse_unique_keys,
    parse_int=_parse_integer,
    parse_float=_parse_float,
    parse_constant=_reject_constant,
)


def parse_record(kind: type[_Record], text: str | bytes) -> _Record:
    """Fill a dataclass from the text of a JSON object. Raises `ValueError`."""
    return read_record(kind, parse_json(text))


def read_lines(kind: type[_Record], path: Path) -> Iterator[_Record]:
    """Yield the dataclasses in a file with a JSON object a line, without truncated and other lines.

    Nothing if there is no file. Raises `OSError` if it cannot be read.
    """
    if path.is_file():
        with path.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                with suppress(ValueError):
                    yield parse_record(kind, line)


def read_record(kind: type[_Record], document: object, path: str = "") -> _Record:
    """Fill a dataclass from a parsed JSON object, or from a list of its values in order. Raises `ValueError`.

    Its fields are texts, numbers, booleans, enums, `Any`, other dataclasses, and tuples and mappings of these, each
    also ``| None``. `path` names the document in errors.
    """
    known = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]  # a dataclass, as every kind is
    if isinstance(document, list) and len(document) == len(known):
        document = {name: document[at] for at, name in enumerate(known)}
    if not isinstance(document, dict):
        raise ValueError(f"{path or kind.__name__}: not a JSON object")
    place = f"{path}." if path else ""
    for name in document:
        if name not in known:
            raise ValueError(f"{place}{name[:80]!a}: unknown key")
    values = {}
    for name, known_field in known.items():
        if name in document:
            names = vars(sys.modules[kind.__module__])
            values[name] = _read_value(_annotation(str(known_field.type)), document[name], f"{place}{name}", names)
        elif known_field.default is MISSING and known_field.default_factory is MISSING:
            raise ValueError(f"{place}{name}: missing")
    return kind(**values)


@cache
def _annotation(text: str) -> ast.expr:
    # not typing.get_type_hints: on Python 3.9, it cannot evaluate ``str | None``
    return ast.parse(text, mode="eval").body


def _read_value(kind: ast.expr, value: Any, path: str, names: Mapping[str, Any]) -> Any:
    if isinstance(kind, ast.BinOp):
        return None if value is None else _read_value(kind.left, value, path, names)
    if isinstance(kind, ast.Subscript):
        parts = kind.slice.elts if isinstance(kind.slice, ast.Tuple) else [kind.slice]
        return (_read_mapping if ast.unparse(kind.value) == "Mapping" else _read_tuple)(parts, value, path, names)
    name = ast.unparse(kind)
    if name in _ATOMS:
        _require(isinstance(value, _ATOMS[name]) and (name == "bool") == isinstance(value, bool), value, path, name)
        in_range = not isinstance(value, (int, float)) or -LARGEST_INTEGER <= value <= LARGEST_INTEGER
        _require(in_range, value, path, "number in range")
        return value
    known = names[name]
    if is_dataclass(known):
        return read_record(known, value, path)  # type: ignore[arg-type]  # a class, by is_dataclass
    if isinstance(known, type) and issubclass(known, Enum):
        _require(value in [member.value for member in known], value, path, name)
        return known(value)
    return value


def _read_tuple(parts: list[ast.expr], value: Any, path: str, names: Mapping[str, Any]) -> tuple[Any, ...]:
    _require(isinstance(value, list), value, path, "list")
    if isinstance(parts[-1], ast.Constant):  # an ellipsis
        parts = parts[:1] * len(value)
    _require(len(value) == len(parts), value, path, f"list of {len(parts)}")
    return tuple(_read_value(parts[at], item, f"{path}[{at}]", names) for at, item in enumerate(value))


def _read_mapping(parts: list[ast.expr], value: Any, path: str, names: Mapping[str, Any]) -> dict[str, Any]:
    _require(isinstance(value, dict), value, path, "object")
    return {key: _read_value(parts[1], item, f"{path}.{key[:80]}", names) for key, item in value.items()}


def _require(right: bool, value: object, path: str, what: str) -> None:
    if not right:
        raise ValueError(f"{path}: expected {what}, found {ascii(value)[:80]}")
