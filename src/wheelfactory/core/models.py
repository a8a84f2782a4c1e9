"""Documents that a model describes: JSON of files and answers, and one way to say what is wrong with one."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from wheelfactory.core.errors import FactoryError


class FrozenModel(BaseModel):
    """A mapping with the named keys and no other; never changed."""

    model_config = ConfigDict(frozen=True, extra="forbid")


_Model = TypeVar("_Model", bound=BaseModel)


def parse_model(kind: type[_Model], document: object, refusal: FactoryError) -> _Model:
    """The value that a document holds: JSON as bytes, or what JSON was parsed to.

    If it holds none, raises an error of the type of `refusal` with its `what` and `hint`; its `which` is followed by
    the field and what is wrong with it. Only the first mistake is reported.
    """
    try:
        return kind.model_validate_json(document) if isinstance(document, bytes) else kind.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"]))
        reason = first["msg"].removeprefix("Value error, ")  # what pydantic puts before the words of our validators
        which = ": ".join(filter(None, (refusal.which, field, reason)))
        raise type(refusal)(refusal.what, which, refusal.hint) from None
