"""Documents that a model describes: what is read, and what is said of one that is none."""

from __future__ import annotations

import pytest
from pydantic import field_validator

from wheelfactory.core.errors import FactoryError, InputError, PublishError
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


REFUSAL = InputError("not a wheel", "wheel.json", "build it again")


@pytest.mark.parametrize("document", [b'{"name": "a", "sizes": [1, 2]}', {"name": "a", "sizes": [1, 2]}])
def test_json_is_read_from_bytes_and_from_values(document: object) -> None:
    assert parse_model(Wheel, document, REFUSAL) == Wheel(name="a", sizes=(1, 2))


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        pytest.param({}, "name: Field required", id="missing"),
        pytest.param({"name": "a", "colour": "red"}, "colour: Extra inputs are not permitted", id="unknown key"),
        pytest.param({"name": "a", "sizes": [1, "big"]}, "sizes.1: Input should be a valid integer", id="inside"),
        pytest.param({"name": ""}, "name: must not be empty", id="words of a validator"),
        pytest.param(b"[]", "Input should be an object", id="another kind"),
        pytest.param(b"{", "Invalid JSON: EOF while parsing an object", id="no JSON"),
        pytest.param(b"[" * 100_000, "Invalid JSON: recursion limit exceeded", id="deep"),
        pytest.param(b'{"name": "\xff"}', "Invalid JSON: invalid unicode", id="not UTF-8"),
    ],
)
def test_a_damaged_document_is_refused_with_its_field_and_the_reason(document: object, reason: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_model(Wheel, document, REFUSAL)
    assert (refused.value.what, refused.value.hint) == ("not a wheel", "build it again")
    assert refused.value.which.startswith(f"wheel.json: {reason}")


@pytest.mark.parametrize("kind", [InputError, PublishError])
def test_the_error_is_of_the_kind_that_was_given(kind: type[FactoryError]) -> None:
    with pytest.raises(kind, match=r"^not an answer: Wheel: name: Field required$"):
        parse_model(Wheel, {}, kind("not an answer", "Wheel", "check the address"))


def test_a_value_is_never_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Wheel(name="a").name = "b"  # type: ignore[misc]
