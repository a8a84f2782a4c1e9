"""Expand ``strategy.matrix`` into the combinations of a job."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

LIMIT = 256
"""Limit of combinations; GitHub's error is "exceeds the maximum of 256 configurations"."""


class MatrixError(Exception):
    """A matrix that GitHub rejects."""


def expand(matrix: Any) -> list[dict[str, Any]]:
    """Return the combinations in GitHub's order. Raises `MatrixError` for none or too many.

    As documented: the product of the vectors without the `exclude` entries; then each `include` entry extends every
    combination whose vector values it does not change, or becomes its own combination if there is none.
    """
    if not isinstance(matrix, Mapping):
        raise MatrixError(f"a matrix is a mapping, not {matrix!r}")
    vectors = {name: values for name, values in matrix.items() if name not in ("include", "exclude")}
    include, exclude = (_entries(matrix, name) for name in ("include", "exclude"))
    for name, values in vectors.items():
        if not isinstance(values, list) or not values:
            raise MatrixError(f"the matrix vector {name} does not hold any values")
    if not vectors and not include:
        raise MatrixError("the matrix must define at least one vector")
    product = [dict(zip(vectors, values, strict=True)) for values in itertools.product(*vectors.values())]
    kept = [one for one in product if vectors and not any(_fits(one, entry) for entry in exclude)]
    found = _included(kept, include)
    if len(found) > LIMIT:
        raise MatrixError(f"{len(found)} configurations exceed the maximum of {LIMIT}")
    if not found:
        raise MatrixError("the matrix excludes all of its combinations")
    return found


def _included(kept: list[dict[str, Any]], include: list[dict[str, Any]]) -> list[dict[str, Any]]:
    given = [dict(one) for one in kept]
    added: list[dict[str, Any]] = []
    for entry in include:
        extended = False
        for one, grown in zip(kept, given, strict=True):
            if all(one.get(name, value) == value for name, value in entry.items()):
                grown.update(entry)
                extended = True
        if not extended:
            added.append(dict(entry))
    return given + added


def _entries(matrix: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    entries = matrix.get(name) or []
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise MatrixError(f"{name} of a matrix is a list of mappings, not {entries!r}")
    return entries


def _fits(one: Mapping[str, Any], entry: Mapping[str, Any]) -> bool:
    return all(one.get(name) == value for name, value in entry.items())
