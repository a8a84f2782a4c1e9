"""Expand ``strategy.matrix`` into the combinations of a job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LIMIT = 256
"""Limit of combinations; GitHub's error is "exceeds the maximum of 256 configurations"."""


class MatrixError(Exception):
    """A matrix that GitHub rejects, or that our workflows do not have."""


def expand(matrix: Any) -> list[dict[str, Any]]:
    """Return the entries of ``include``, which is all that a matrix of our workflows has.

    Raises `MatrixError` for none, too many, or another matrix.
    """
    if not isinstance(matrix, Mapping) or set(matrix) != {"include"}:
        raise MatrixError(f"a matrix of anything but include is not supported: {matrix!r}")
    entries = matrix["include"]
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise MatrixError(f"include of a matrix is a list of mappings, not {entries!r}")
    if not entries:
        raise MatrixError("the matrix must define at least one vector")
    if len(entries) > LIMIT:
        raise MatrixError(f"{len(entries)} configurations exceed the maximum of {LIMIT}")
    return entries
