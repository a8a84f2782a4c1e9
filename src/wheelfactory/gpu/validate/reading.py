"""A file -> the report of a validation that it holds; whatever the bytes are, an `InputError` at worst."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import ValidationError

from wheelfactory.core.errors import InputError
from wheelfactory.gpu.validate.report import FORMAT, Validation

_HINT = "name a file with what `wheelfactory validate WHEEL --json` printed"


def read_validation(path: Path) -> Validation:
    """A report as `wheelfactory validate --json` prints it.

    Raises `InputError` with the place for a file that cannot be read, is no report, or is one of another form.
    """
    try:
        found = json.loads(path.read_bytes())
    except OSError as error:
        raise InputError("cannot read the report", f"{path} ({error.strerror})", _HINT) from None
    except (ValueError, RecursionError):
        raise InputError("not a report", f"{path}: not JSON", _HINT) from None
    form = found.get("format") if isinstance(found, dict) else None
    if form is None:
        raise InputError("not a report", f"{path}: it names no format", _HINT)
    if form != FORMAT:
        raise InputError("a report of another form", f"{path}: {form!r}", f"this factory reads {FORMAT}")
    try:
        return Validation.model_validate(found)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise InputError("not a report", f"{path}: {place}: {first['msg']}", _HINT) from None
