"""The difference of two kernel sets is named, in few words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kernel_archive_factory import PARTS
from wheelfactory.core.errors import InputError
from wheelfactory.kernels.archive_format import archive_set_id, parse_archive_manifest
from wheelfactory.kernels.compiler.key import diff_key_parts


@pytest.mark.parametrize(
    ("one", "other", "found"),
    [
        ("HIP 6.3", "HIP 6.4", "HIP 6.3, other HIP 6.4"),
        ("HIP 6.3", None, "HIP 6.3, other nothing"),
        ("12" * 32, "34" * 32, "121212121212..., other 343434343434..."),
        (["-O3", "-g"], ["-O3"], "with -g, other without"),
        (["-O3", "-g"], ["-O3", "-h"], "with -g, other with -h"),
        (["-a", "-b"], ["-b", "-a"], "-a -b, other -b -a"),
        ([], ["gfx942"], "nothing, other gfx942"),
        (1, True, "1, other true"),
        ("z" * 60, "b", "z" * 45 + "..., other b"),
    ],
)
def test_a_different_part_is_listed_with_both_values(one: Any, other: Any, found: str) -> None:
    assert diff_key_parts({"part": one, "same": 1}, {"part": other, "same": 1}) == [f"part: {found}"]


def test_only_different_subparts_are_listed() -> None:
    assert diff_key_parts(PARTS, dict(reversed(list(PARTS.items())))) == []
    assert diff_key_parts({"targets": ("gfx942",)}, {"targets": ["gfx942"]}) == []
    one = {"environment": {"A": "1", "B": "2"}}
    other = {"environment": {"B": "3", "C": "4"}}

    assert diff_key_parts(one, other) == [
        "environment.A: 1, other nothing",
        "environment.B: 2, other 3",
        "environment.C: nothing, other 4",
    ]


def test_parts_that_are_nested_deeply_are_refused() -> None:
    parts: dict[str, Any] = {}
    for _ in range(20):
        parts = {"a": parts}
    key = {"parts": parts, "sources": []}
    document = json.dumps({"set_id": "x", "set_key": key, "shard": None, "expected": [], "objects": {}})

    with pytest.raises(InputError, match="damaged kernel manifest: here: its key parts are nested too deeply"):
        parse_archive_manifest(document.encode(), "here")


@pytest.mark.parametrize(
    ("file_name", "set_id"),
    [
        ("ck-62327233-rocm6.4-gfx942-0123456789abcdef.tar.zst", "ck-62327233-rocm6.4-gfx942"),
        ("ck-62327233-rocm6.4-gfx942-0123456789abcdef.shard-1-of-2.tar.zst", ""),
        ("flash_attn-2.8.3-py3-none-any.whl", ""),
    ],
    ids=["a set", "a shard", "a wheel"],
)
def test_the_name_of_a_complete_archive_has_the_id_of_its_set(file_name: str, set_id: str) -> None:
    assert archive_set_id(file_name) == set_id
