"""Parse JSON into pydantic models, with errors in the form of all others."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from wheelfactory.core.errors import FactoryError


class FrozenModel(BaseModel):
    """An immutable mapping that rejects unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


_Model = TypeVar("_Model", bound=BaseModel)


def parse_model(kind: type[_Model], document: object, template: FactoryError) -> _Model:
    """Validate a document, given as JSON bytes or as parsed JSON.

    Raises a copy of `template`, with the first invalid field and the reason appended to its `which`.
    """
    try:
        return kind.model_validate_json(document) if isinstance(document, bytes) else kind.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"]))
        reason = first["msg"].removeprefix("Value error, ")  # pydantic's prefix for messages of our validators
        which = ": ".join(filter(None, (template.which, field, reason)))
        raise type(template)(template.what, which, template.hint) from None
