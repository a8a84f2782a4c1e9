"""Expanding a matrix into combinations."""

from __future__ import annotations

from typing import Any

import pytest

from workflows.matrix import LIMIT, MatrixError, expand


def test_the_product_of_the_vectors() -> None:
    assert expand({"a": [1, 2], "b": ["x"]}) == [{"a": 1, "b": "x"}, {"a": 2, "b": "x"}]


def test_exclude_removes_full_matches() -> None:
    assert expand({"a": [1, 2], "b": [3, 4], "exclude": [{"a": 1, "b": 4}, {"a": 2}]}) == [{"a": 1, "b": 3}]


def test_include_extends_combinations_without_changing_them() -> None:
    """The example of GitHub's docs."""
    found = expand({
        "fruit": ["apple", "pear"],
        "animal": ["cat", "dog"],
        "include": [
            {"color": "green"},
            {"color": "pink", "animal": "cat"},
            {"fruit": "apple", "shape": "circle"},
            {"fruit": "banana"},
            {"fruit": "banana", "animal": "cat"},
        ],
    })  # fmt: skip
    assert found == [
        {"fruit": "apple", "animal": "cat", "color": "pink", "shape": "circle"},
        {"fruit": "apple", "animal": "dog", "color": "green", "shape": "circle"},
        {"fruit": "pear", "animal": "cat", "color": "pink"},
        {"fruit": "pear", "animal": "dog", "color": "green"},
        {"fruit": "banana"},
        {"fruit": "banana", "animal": "cat"},
    ]


def test_include_alone_is_a_list_of_combinations() -> None:
    assert expand({"include": [{"id": "a"}, {"id": "b"}]}) == [{"id": "a"}, {"id": "b"}]


def test_the_limit_is_allowed() -> None:
    assert len(expand({"include": [{"id": number} for number in range(LIMIT)]})) == LIMIT


@pytest.mark.parametrize(
    ("matrix", "complaint"),
    [
        ({"include": [{"id": number} for number in range(LIMIT + 1)]}, "257 configurations"),
        ({"a": list(range(17)), "b": list(range(16))}, "272 configurations"),
        ({"include": []}, "at least one vector"),
        ({"a": []}, "does not hold any values"),
        ({"a": [1], "exclude": [{"a": 1}]}, "excludes all"),
        ({"a": "1"}, "does not hold any values"),
        ({"include": "a"}, "list of mappings"),
        ([], "a matrix is a mapping"),
    ],
)
def test_invalid_matrices_are_errors(matrix: Any, complaint: str) -> None:
    with pytest.raises(MatrixError, match=complaint):
        expand(matrix)
