"""The image chore on a whole matrix: it adds newer patch releases and digests, or changes nothing."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from container_registry import ContainerRegistry
from refresh.images import refresh_images
from refresh.registry import Registry
from small_matrix import edited
from wheelfactory.core.errors import FactoryError
from wheelfactory.core.files import MATRIX
from wheelfactory.matrix.load import load_matrix

OLD = "rocm/pytorch:rocm6.4.1_ubuntu22.04_py3.10_pytorch_release_2.6.0"
NEW = OLD.replace("6.4.1", "6.4.3")


def images_of(path: Path) -> list[str]:
    rocms = load_matrix(path).rocm.values()
    return [image.tag for rocm in rocms for image in (*rocm.images, *filter(None, [rocm.slim]))]


@pytest.fixture
def matrix(tmp_path: Path) -> Path:
    """A small matrix with one tag that has successors."""
    path = tmp_path / "matrix.yaml"
    path.write_text(edited(("rocm/pytorch:first", OLD)))
    return path


@pytest.fixture
def full(matrix: Path, hub: ContainerRegistry) -> ContainerRegistry:
    """A registry that has every image of the small matrix."""
    for image in images_of(matrix):
        hub.add(image)
    return hub


def test_each_image_of_the_matrix_is_pinned_and_no_other_line_changes(tmp_path: Path, hub: ContainerRegistry) -> None:
    path = tmp_path / "matrix.yaml"
    before = re.sub(b"\n *digest: sha256:.*", b"", MATRIX.read_bytes())
    path.write_bytes(before)
    digests = [hub.add(image) for image in images_of(path)]
    findings = refresh_images(path, Registry(hub.url))
    assert [update.pin.digest for update in findings.updates] == digests
    written = [image for rocm in load_matrix(path).rocm.values() for image in (*rocm.images, rocm.slim) if image]
    assert [image.digest for image in written] == digests
    assert re.sub(b"\n *digest: sha256:.*", b"", path.read_bytes()) == before


def test_what_is_pinned_already_is_left_alone(matrix: Path, full: ContainerRegistry) -> None:
    refresh_images(matrix, Registry(full.url))
    os.utime(matrix, (1, 1))
    findings = refresh_images(matrix, Registry(full.url))
    assert not any(update.is_changed for update in findings.updates)
    assert matrix.stat().st_mtime == 1


def test_a_newer_patch_release_takes_the_place_of_the_tag(matrix: Path, full: ContainerRegistry) -> None:
    before = matrix.read_text()
    full.add(NEW)
    full.images["rocm/pytorch"].pop(OLD.partition(":")[2])  # the old tag may be gone then
    refresh_images(matrix, Registry(full.url))
    assert re.sub("\n *digest: .*", "", matrix.read_text()) == before.replace(OLD, NEW)


def test_a_release_that_the_entry_lists_already_is_not_listed_twice(matrix: Path, full: ContainerRegistry) -> None:
    matrix.write_text(edited(("rocm/pytorch:first", OLD), ("rocm/pytorch:python", NEW)))
    full.add(NEW)
    refresh_images(matrix, Registry(full.url))
    assert [image.tag for image in load_matrix(matrix).rocm["6.4"].images[:2]] == [OLD, NEW]


def test_of_two_that_would_become_the_same_the_first_does(matrix: Path, full: ContainerRegistry) -> None:
    between = OLD.replace("6.4.1", "6.4.2")
    matrix.write_text(edited(("rocm/pytorch:first", OLD), ("rocm/pytorch:python", between)))
    full.add(between), full.add(NEW)
    refresh_images(matrix, Registry(full.url))
    assert [image.tag for image in load_matrix(matrix).rocm["6.4"].images[:2]] == [NEW, between]


def test_images_that_the_matrix_could_have_are_suggested_and_not_added(matrix: Path, full: ContainerRegistry) -> None:
    other = OLD.replace("2.6.0", "2.7.1")
    full.add(other), full.add(OLD.replace("6.4.1", "6.5")), full.add(other.replace("6.4.1", "6.4"))
    findings = refresh_images(matrix, Registry(full.url))
    assert findings.suggestions == (("6.4", other),)
    assert other not in matrix.read_text()
    assert f"suggested  for ROCm 6.4: {other}" in findings.lines


def test_tags_that_are_gone_are_suggestions_and_stay(matrix: Path, full: ContainerRegistry) -> None:
    del full.images["rocm/pytorch"]["python"], full.images["rocm/pytorch"]["6.2"]
    found = refresh_images(matrix, Registry(full.url))
    assert found.missing == ("rocm/pytorch:python", "rocm/pytorch:6.2")
    gone = [line for line in found.lines if "does not have" in line]
    assert gone[0] == "suggested  another image for rocm/pytorch:python, which the registry does not have"
    assert len(found.updates) == 3
    assert {"rocm/pytorch:python", "rocm/pytorch:6.2"} < {*images_of(matrix)}


def test_a_failure_half_way_changes_nothing(matrix: Path, full: ContainerRegistry) -> None:
    full.head_tells_digest = False
    before = matrix.read_bytes()
    for status, part in (
        (0, "/manifests/6.2"),
        (403, "/manifests/torch-and-python"),
        (404, "/tags/list"),
        (500, "/tags/list"),
    ):
        full.faults.clear()
        full.faults[f"GET /v2/rocm/pytorch{part}"] = [(status, {})] * 9
        with pytest.raises(FactoryError):
            refresh_images(matrix, Registry(full.url))
        assert matrix.read_bytes() == before, (status, part)
        assert [*matrix.parent.iterdir()] == [matrix], (status, part)


def test_an_edit_with_another_meaning_is_not_written(matrix: Path, full: ContainerRegistry) -> None:
    """Two images that share their text cannot move apart."""
    text = edited(("rocm/pytorch:first", f"&tag {OLD}"), ("tag: rocm/pytorch:6.2", "tag: *tag"))
    matrix.write_text(text)
    full.add(NEW)
    with pytest.raises(FactoryError, match="cannot edit the images of"):
        refresh_images(matrix, Registry(full.url))
    assert matrix.read_text() == text


def test_a_concurrent_change_is_kept(matrix: Path, full: ContainerRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry(full.url)
    find: Callable[[str, str], str | None] = registry.find_digest

    def find_digest(repository: str, tag: str) -> str | None:
        matrix.write_text(edited(("rocm/pytorch:first", "rocm/pytorch:theirs")))
        return find(repository, tag)

    monkeypatch.setattr(registry, "find_digest", find_digest)
    with pytest.raises(FactoryError, match="another program changed the file in the meantime"):
        refresh_images(matrix, registry)
    assert "rocm/pytorch:theirs" in matrix.read_text()


def test_a_digest_that_moved_is_pinned_anew_and_told_with_what_it_was(matrix: Path, full: ContainerRegistry) -> None:
    first = refresh_images(matrix, Registry(full.url)).updates[2].pin.digest
    full.images["rocm/pytorch"]["torch"] = b"pushed again"
    findings = refresh_images(matrix, Registry(full.url))
    assert load_matrix(matrix).rocm["6.4"].images[2].digest == findings.updates[2].pin.digest
    (line,) = findings.lines
    assert line == f"pinned     rocm/pytorch:torch  {findings.updates[2].pin.digest} (was {first})"
    assert findings.summary.endswith("1 pinned, 4 unchanged")
