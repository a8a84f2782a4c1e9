"""Parts of a release: their names, and the part that a file belongs to."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from wheelfactory.release.github.parts import (
    MAX_ASSETS,
    MAX_WHEELS,
    WRITTEN_LAST,
    find_part_number,
    find_part_with_room,
    part_tag,
    wheel_names,
)


@given(tag=st.sampled_from(["v1", "v1.2.0", "yank-2"]), number=st.integers(1, 1000))
def test_a_tag_of_a_part_reads_back(tag: str, number: int) -> None:
    assert find_part_number(tag, part_tag(tag, number)) == number


def test_later_parts_do_not_begin_as_tags_that_start_a_build() -> None:
    assert [part_tag("v1", number) for number in (1, 2, 3)] == ["v1", "wheels-v1-2", "wheels-v1-3"]


def test_other_tags_are_no_part() -> None:
    cases: list[str] = [
        "v11",
        "wheels-v1",
        "wheels-v1-1",
        "wheels-v1-02",
        "wheels-v1x2-2",
        "xwheels-v1-2",
    ]
    for found in cases:
        assert find_part_number("v1", found) is None
        assert find_part_number("v1.2", found) is None


def files(number: int) -> list[str]:
    return [f"{number}.whl", f"{number}.whl.metadata", f"{number}.whl.sigstore.json"]


def filled(count: int) -> list[str]:
    return [name for number in range(count) for name in files(number)]


def test_a_full_part_has_no_more_assets_than_github_takes() -> None:
    full = [*filled(MAX_WHEELS), *WRITTEN_LAST]
    assert MAX_ASSETS - 3 < len(full) <= MAX_ASSETS == 1000
    assert find_part_with_room({1: full}, "new.whl") is None
    assert find_part_with_room({1: full[3:]}, "new.whl") == 1


def test_metadata_and_attestation_go_where_their_wheel_is_though_another_part_has_room() -> None:
    assert find_part_with_room({1: [], 2: ["a.whl.sigstore.json"]}, "a.whl") == 2
    assert find_part_with_room({1: [], 2: ["a.whl"]}, "a.whl") == 2
    assert find_part_with_room({1: filled(MAX_WHEELS - 1), 2: [], 3: ["a.whl.metadata"]}, "a.whl") == 3


def test_half_a_wheel_keeps_the_room_of_the_other_half() -> None:
    halves = [f"{number}.whl" for number in range(MAX_WHEELS)]
    assert find_part_with_room({1: halves}, "new.whl") is None
    assert find_part_with_room({1: halves}, "0.whl") == 1


def test_the_first_part_with_room_is_filled_first() -> None:
    assert find_part_with_room({3: [], 2: filled(3), 1: filled(MAX_WHEELS)}, "new.whl") == 2


def test_manifest_and_sums_are_not_wheels() -> None:
    assert wheel_names(["SHA256SUMS", "manifest.jsonl", *files(1)]) == {"1.whl"}
