"""Dataclasses and models are filled from JSON only if every key and type is right."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from pydantic import field_validator

from wheelfactory.core.errors import PublishError
from wheelfactory.core.files import PACKAGE_DIR
from wheelfactory.core.models import FrozenModel, parse_model
from wheelfactory.core.strict import parse_record, read_record

READERS = {"json.loads", "json.load", "json.JSONDecoder"}

WITHOUT_THE_PACKAGE = {
    # programs that another Python runs as files, without wheelfactory on its path: they read what the factory wrote
    "gpu/bench/programs/implementations.py",
    "kernels/compiler/generator_filter.py",
    "kernels/compiler/record_calls.py",
}


class Color(str, Enum):
    RED = "red"


@dataclass(frozen=True)
class Inner:
    name: str
    pair: tuple[int, int] | None = None


@dataclass(frozen=True)
class Outer:
    text: str
    ratio: float
    is_on: bool
    color: Color
    inner: tuple[Inner, ...]
    sizes: Mapping[str, int] = field(default_factory=dict)
    anything: Any = None


GOOD: Mapping[str, Any] = {
    "text": "a",
    "ratio": 1,
    "is_on": True,
    "color": "red",
    "inner": [{"name": "x", "pair": [1, 2]}, ["y", None]],
    "sizes": {"k": 1},
    "anything": [{}],
}


def test_a_document_fills_a_dataclass_and_what_it_contains() -> None:
    assert parse_record(Outer, json.dumps(GOOD)) == Outer(
        *("a", 1, True, Color.RED, (Inner("x", (1, 2)), Inner("y"))), {"k": 1}, [{}]
    )
    assert read_record(Inner, {"name": "x"}) == read_record(Inner, ["x", None]) == Inner("x")


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"text": 1}, "text: expected str, found 1"),
        ({"ratio": True}, "ratio: expected float, found True"),
        ({"ratio": "1"}, "ratio: expected float, found '1'"),
        ({"ratio": 1 << 70}, "ratio: expected number in range, found 1180591620717411303424"),
        ({"ratio": float("nan")}, "ratio: expected number in range, found nan"),
        ({"is_on": 1}, "is_on: expected bool, found 1"),
        ({"color": "blue"}, "color: expected Color, found 'blue'"),
        ({"color": ["red"]}, "color: expected Color, found ['red']"),
        ({"inner": {}}, "inner: expected list, found {}"),
        ({"inner": [{"name": "x"}, {"name": None}]}, "inner[1].name: expected str, found None"),
        ({"inner": [{"name": "x", "pair": [1]}]}, "inner[0].pair: expected list of 2, found [1]"),
        ({"inner": [{"name": "x", "pair": [1, 2.0]}]}, "inner[0].pair[1]: expected int, found 2.0"),
        ({"inner": [3]}, "inner[0]: not a JSON object"),
        ({"sizes": {"k": "1"}}, "sizes.k: expected int, found '1'"),
        ({"more\x1b": 1}, r"'more\x1b': unknown key"),
    ],
)
def test_the_first_mistake_is_named(change: Mapping[str, Any], error: str) -> None:
    with pytest.raises(ValueError) as caught:
        read_record(Outer, {**GOOD, **change})
    assert str(caught.value) == error


def test_a_missing_key_is_named() -> None:
    with pytest.raises(ValueError, match=r"^inner\[0\]\.name: missing$"):
        read_record(Outer, {**GOOD, "inner": [{}]})


@pytest.mark.parametrize("text", ["", "1", "null", "{", "[" * 100_000, '"' + "x" * 10])
def test_other_text_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_record(Inner, text)


def test_no_other_module_parses_json_with_the_standard_library() -> None:
    assert {
        path.relative_to(PACKAGE_DIR).as_posix() for path in PACKAGE_DIR.rglob("*.py") if _calls_a_reader(path)
    } == {"core/strict.py", *WITHOUT_THE_PACKAGE}


def _calls_a_reader(path: Path) -> bool:
    called = (ast.unparse(node.func) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
    return not READERS.isdisjoint(called)


class Wheel(FrozenModel):
    name: str
    sizes: tuple[int, ...] = ()

    @field_validator("name")
    @classmethod
    def _is_named(cls, name: str) -> str:
        if not name:
            raise ValueError("must not be empty")
        return name


REFUSAL = PublishError("not a wheel", "wheel.json", "build it again")


def test_json_is_read_from_bytes_and_from_values() -> None:
    for document in (b'{"name": "a", "sizes": [1, 2]}', {"name": "a", "sizes": [1, 2]}):
        assert parse_model(Wheel, document, REFUSAL) == Wheel(name="a", sizes=(1, 2))


def test_a_damaged_document_is_refused_with_its_field_and_the_reason() -> None:
    for document, reason in (
        ({}, "name: Field required"),
        ({"name": "a", "colour": "red"}, "colour: Extra inputs are not permitted"),
        ({"name": "a", "sizes": [1, "big"]}, "sizes.1: Input should be a valid integer"),
        ({"name": ""}, "name: must not be empty"),
        (b"[]", "Input should be an object"),
        (b"{", "Invalid JSON: EOF while parsing an object"),
        (b"[" * 100_000, "Invalid JSON: recursion limit exceeded"),
        (b'{"name": "\xff"}', "Invalid JSON: invalid unicode"),
    ):
        with pytest.raises(PublishError) as refused:
            parse_model(Wheel, document, REFUSAL)
        assert (refused.value.what, refused.value.hint) == ("not a wheel", "build it again")
        assert refused.value.which.startswith(f"wheel.json: {reason}")
