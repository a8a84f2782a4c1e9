"""The body of a wheel request, as GitHub makes it of the form -> the text of each field; any text may come in."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

MOST_CHARACTERS = 300_000
"""Of a body that are read; GitHub keeps 65,536 of an issue."""
_MOST_OF_A_FIELD = 200

_NOT_ANSWERED = ("_no response_", "none")
"""What GitHub writes for a field that was left empty; the second for a dropdown, in the form's first years."""


class Field(str, Enum):
    """The fields of .github/ISSUE_TEMPLATE/wheel-request.yml by their labels, in its order."""

    TORCH = "torch"
    ROCM = "ROCm"
    PYTHON = "Python"
    GPU = "GPU"
    FLASH_ATTN = "flash-attn"
    BACKEND = "Backend"

    def __str__(self) -> str:
        return self.value


def read_request(body: str) -> Mapping[Field, str]:
    """The text of each field that was filled in, on one line; of a field that is there twice, the first.

    GitHub writes ``### Field``, an empty line and the value. A value is one line there, so what follows is not read.
    """
    found: dict[Field, str] = {}
    field: Field | None = None
    for line in body[:MOST_CHARACTERS].splitlines():
        text = line.strip()
        if text.startswith("### "):
            field = next((known for known in Field if text[4:].strip() == known.value), None)
            field = None if field in found else field
        elif field and text:
            found[field] = text[:_MOST_OF_A_FIELD]
            field = None
    return {field: text for field, text in found.items() if text.lower() not in _NOT_ANSWERED}
