"""Tags of AMD's images, in all their spellings, and which tag replaces which."""

from __future__ import annotations

import pytest

from refresh.images import additional_tags, find_entry, newest_patch, split_reference
from wheelfactory.core.errors import InputError
from wheelfactory.core.files import MATRIX
from wheelfactory.matrix.images import parse_tag
from wheelfactory.matrix.load import load_matrix

NEW = "rocm7.2.4_ubuntu24.04_py3.12_pytorch_release_2.10.0"
ENTRIES = ("7.14", "7.2", "6.2.4", "6.2")


def test_a_tag_is_parsed_to_rocm_and_kind() -> None:
    for text, rocm, kind in (
        (NEW, (7, 2, 4), ("ubuntu24.04", "py3.12", "2.10.0")),
        ("rocm7.2_ubuntu22.04_py3.10_pytorch_release_2.9.1", (7, 2, 0), ("ubuntu22.04", "py3.10", "2.9.1")),
        ("rocm6.1.3_ubuntu22.04_py3.10_pytorch_release-2.1.2", (6, 1, 3), ("ubuntu22.04", "py3.10", "2.1.2")),
        ("rocm6.1_ubuntu20.04_py3.9_pytorch_2.1.2", (6, 1, 0), ("ubuntu20.04", "py3.9", "2.1.2")),
        ("7.2.4-complete", (7, 2, 4), ("complete",)),
        ("6.2-complete", (6, 2, 0), ("complete",)),
        ("7.14.0-full", (7, 14, 0), ("full",)),
    ):
        tag = parse_tag(text)
        assert tag
        assert (tag.rocm, tag.kind) == (rocm, kind)


def test_other_tags_do_not_parse() -> None:
    for text in ("latest", "7.2.4", "rocm7.1-py3.11-pytorch-2.6.0-ubuntu22.04", NEW + "-rc1", ""):
        assert parse_tag(text) is None
        assert newest_patch(text, [NEW], "7.2", ENTRIES) == text


def test_every_tag_of_the_matrix_is_understood() -> None:
    entries = load_matrix(MATRIX).rocm
    for entry, rocm in entries.items():
        for image in (*rocm.images, *filter(None, [rocm.slim])):
            tag = parse_tag(split_reference(image.tag)[1])
            assert tag, image.tag
            assert find_entry(tag, entries) == entry


def test_the_newest_patch_release_of_the_same_kind_is_chosen_in_any_spelling() -> None:
    old = NEW.replace("7.2.4", "7.2.1")
    listed = [old, NEW, NEW.replace("7.2.4", "7.2.10"), NEW.replace("7.2.4", "7.3"), NEW.replace("3.12", "3.13")]
    assert newest_patch(old, listed, "7.2", ENTRIES) == NEW.replace("7.2.4", "7.2.10")
    assert newest_patch(NEW, [old, NEW.replace("7.2.4", "7.1.9")], "7.2", ENTRIES) == NEW
    old, new = "rocm6.2_ubuntu22.04_py3.10_pytorch_2.3.0", "rocm6.2.3_ubuntu22.04_py3.10_pytorch_release_2.3.0"
    assert newest_patch(old, [old, new], "6.2", ENTRIES) == new


def test_a_release_with_an_entry_of_its_own_stays_there() -> None:
    assert newest_patch("6.2-complete", ["6.2.4-complete", "6.2.3-complete"], "6.2", ENTRIES) == "6.2.3-complete"
    assert newest_patch("6.2.4-complete", ["6.2.5-complete"], "6.2.4", ENTRIES) == "6.2.4-complete"
    assert newest_patch("6.2-complete", ["6.2.4-complete"], "6.2", ("6.2",)) == "6.2.4-complete"


def test_new_kinds_of_the_newest_release_are_additional() -> None:
    of_older, of_newer = NEW.replace("2.10.0", "2.11.0").replace("7.2.4", "7.2.3"), NEW.replace("2.10.0", "2.12.0")
    listed = [NEW, of_older, of_newer, NEW.replace("7.2.4", "7.14"), NEW.replace("7.2.4", "7.2"), "latest"]
    assert additional_tags([NEW], listed, "7.2", ENTRIES) == [of_newer]
    assert additional_tags(["latest"], listed, "7.2", ENTRIES) == []


def test_a_reference_is_a_repository_and_a_tag() -> None:
    assert split_reference(f"rocm/pytorch:{NEW}") == ("rocm/pytorch", NEW)
    assert split_reference("docker.io/rocm/dev-ubuntu-22.04:6.2-complete") == ("rocm/dev-ubuntu-22.04", "6.2-complete")


def test_an_image_of_another_registry_is_refused() -> None:
    for text in ("rocm/pytorch", "ghcr.io/rocm/x:y", "ubuntu:22.04", "localhost:5000/a/b:c", "a/b:c d", ""):
        with pytest.raises(InputError, match="not an image of Docker Hub"):
            split_reference(text)
