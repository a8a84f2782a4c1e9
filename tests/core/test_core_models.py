"""Documents with a model: valid ones are parsed, invalid ones are refused with each mistake."""

from __future__ import annotations

import pytest
from pydantic import field_validator

from wheelfactory.core.errors import PublishError
from wheelfactory.core.models import FrozenModel, parse_model


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
