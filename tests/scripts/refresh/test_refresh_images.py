"""The image chore: tags in all their spellings, newer patch releases and digests, and no other character changed."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from container_registry import ContainerRegistry
from refresh.images import (
    ImagePin,
    additional_tags,
    edit_images,
    find_entry,
    newest_patch,
    refresh_images,
    split_reference,
)
from refresh.registry import Registry
from small_matrix import edited
from wheelfactory.core.errors import FactoryError, InputError
from wheelfactory.core.files import MATRIX
from wheelfactory.matrix.load import load_matrix
from wheelfactory.matrix.origins import parse_tag

OLD = "rocm/pytorch:rocm6.4.1_ubuntu22.04_py3.10_pytorch_release_2.6.0"
NEW = OLD.replace("6.4.1", "6.4.3")


def second(tag: str) -> tuple[str, str]:
    """Return the edit that makes the second image one with this tag, with the fields of `OLD`."""
    fields = "{}\n        distribution: ubuntu{}\n        glibc: '{}'\n        python: '{}'"
    return fields.format("rocm/pytorch:python", "24.04", "2.39", "3.12"), fields.format(tag, "22.04", "2.35", "3.10")


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


def test_what_is_pinned_already_is_left_alone_until_its_digest_moves(matrix: Path, full: ContainerRegistry) -> None:
    first = refresh_images(matrix, Registry(full.url)).updates[2].pin.digest
    os.utime(matrix, (1, 1))
    findings = refresh_images(matrix, Registry(full.url))
    assert not any(update.is_changed for update in findings.updates)
    assert matrix.stat().st_mtime == 1
    full.images["rocm/pytorch"]["torch"] = b"pushed again"
    findings = refresh_images(matrix, Registry(full.url))
    moved = findings.updates[2].pin.digest
    assert load_matrix(matrix).rocm["6.4"].images[2].digest == moved
    assert list(findings.lines) == [f"pinned     rocm/pytorch:torch  {moved} (was {first})"]
    assert findings.summary.endswith("1 pinned, 4 unchanged")


def test_an_image_of_another_registry_stays_and_the_others_are_pinned(matrix: Path, full: ContainerRegistry) -> None:
    own = matrix.read_text().replace("rocm/pytorch:python", "ghcr.io/me/rocm:mine")
    matrix.write_text(own)
    refresh_images(matrix, Registry(full.url))
    digests = {image.tag: image.digest for image in load_matrix(matrix).rocm["6.4"].images}
    assert [tag for tag, digest in digests.items() if digest is None] == ["ghcr.io/me/rocm:mine"]
    assert re.sub("\n *digest: .*", "", matrix.read_text()) == own


def test_a_newer_patch_release_takes_the_place_of_the_tag(matrix: Path, full: ContainerRegistry) -> None:
    before = matrix.read_text()
    full.add(NEW)
    full.images["rocm/pytorch"].pop(OLD.partition(":")[2])  # the old tag may be gone then
    refresh_images(matrix, Registry(full.url))
    assert re.sub("\n *digest: .*", "", matrix.read_text()) == before.replace(OLD, NEW)


@pytest.mark.parametrize(("listed", "become"), [("6.4.3", ["6.4.1", "6.4.3"]), ("6.4.2", ["6.4.3", "6.4.2"])])
def test_a_release_is_not_listed_twice(matrix: Path, full: ContainerRegistry, listed: str, become: list[str]) -> None:
    """Of two that would become the same the first does."""
    other = OLD.replace("6.4.1", listed)
    matrix.write_text(edited(("rocm/pytorch:first", OLD), second(other)))
    full.add(other), full.add(NEW)
    refresh_images(matrix, Registry(full.url))
    found = [image.tag for image in load_matrix(matrix).rocm["6.4"].images[:2]]
    assert found == [OLD.replace("6.4.1", version) for version in become]


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
    end = "    source: index of ROCm 6.4\n"
    fields = "distribution: ubuntu22.04, glibc: '2.35', python: '3.10', python-path: /bin/python3"
    slim = f"{{tag: *tag, {fields}, source: the same image}}"
    text = edited(("rocm/pytorch:first", f"&tag {OLD}"), (end, f"    slim: {slim}\n{end}"))
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


TAG = "rocm7.2.4_ubuntu24.04_py3.12_pytorch_release_2.10.0"
ENTRIES = ("7.14", "7.2", "6.2.4", "6.2")


def test_a_tag_is_parsed_to_rocm_and_kind() -> None:
    for text, rocm, kind in (
        (TAG, (7, 2, 4), ("ubuntu24.04", "py3.12", "2.10.0")),
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
    for text in ("latest", "7.2.4", "rocm7.1-py3.11-pytorch-2.6.0-ubuntu22.04", TAG + "-rc1", ""):
        assert parse_tag(text) is None
        assert newest_patch(text, [TAG], "7.2", ENTRIES) == text


def test_every_tag_of_the_matrix_is_understood() -> None:
    entries = load_matrix(MATRIX).rocm
    for entry, rocm in entries.items():
        for image in (*rocm.images, *filter(None, [rocm.slim])):
            tag = parse_tag(split_reference(image.tag)[1])
            assert tag, image.tag
            assert find_entry(tag, entries) == entry


def test_the_newest_patch_release_of_the_same_kind_is_chosen_in_any_spelling_but_one_of_another_entry() -> None:
    old = TAG.replace("7.2.4", "7.2.1")
    listed = [
        old,
        TAG,
        TAG.replace("7.2.4", "7.2.10"),
        TAG.replace("7.2.4", "7.3"),
        TAG.replace("3.12", "3.13"),
    ]
    short, spelled = "rocm6.2_ubuntu22.04_py3.10_pytorch_2.3.0", "rocm6.2.3_ubuntu22.04_py3.10_pytorch_release_2.3.0"
    for tag, known, entry, entries, chosen in (
        (old, listed, "7.2", ENTRIES, TAG.replace("7.2.4", "7.2.10")),
        (TAG, [old, TAG.replace("7.2.4", "7.1.9")], "7.2", ENTRIES, TAG),
        (short, [short, spelled], "6.2", ENTRIES, spelled),
        ("6.2-complete", ["6.2.4-complete", "6.2.3-complete"], "6.2", ENTRIES, "6.2.3-complete"),
        ("6.2.4-complete", ["6.2.5-complete"], "6.2.4", ENTRIES, "6.2.4-complete"),
        ("6.2-complete", ["6.2.4-complete"], "6.2", ("6.2",), "6.2.4-complete"),
    ):
        assert newest_patch(tag, known, entry, entries) == chosen


def test_new_kinds_of_the_newest_release_are_additional() -> None:
    of_older, of_newer = (
        TAG.replace("2.10.0", "2.11.0").replace("7.2.4", "7.2.3"),
        TAG.replace("2.10.0", "2.12.0"),
    )
    listed = [TAG, of_older, of_newer, TAG.replace("7.2.4", "7.14"), TAG.replace("7.2.4", "7.2"), "latest"]
    assert additional_tags([TAG], listed, "7.2", ENTRIES) == [of_newer]
    assert additional_tags(["latest"], listed, "7.2", ENTRIES) == []


def test_a_reference_is_a_repository_and_a_tag_of_docker_hub() -> None:
    assert split_reference(f"rocm/pytorch:{TAG}") == ("rocm/pytorch", TAG)
    assert split_reference("docker.io/rocm/dev-ubuntu-22.04:6.2-complete") == ("rocm/dev-ubuntu-22.04", "6.2-complete")
    for text in ("rocm/pytorch", "ghcr.io/rocm/x:y", "ubuntu:22.04", "localhost:5000/a/b:c", "a/b:c d", ""):
        with pytest.raises(InputError, match="not an image of Docker Hub"):
            split_reference(text)


PLACE, SLIM = ("rocm", "7.2", "images", 0), ("rocm", "7.2", "slim")
PIN = ImagePin("a/b:new", "sha256:" + "1" * 64)

TEXT = """\
# a remark with tag: a/b:old in it
rocm:
  '7.2':
    images:   # two of them
      - tag: a/b:old   # seen in May

        torch: '2.9.1'
      - {tag: "a/b:old", torch: '2.8.0'}
    slim:
      source: where
      tag: 'a/b:old'
      digest: sha256:0
"""


def test_a_new_digest_stands_below_the_tag_and_all_else_stays() -> None:
    assert edit_images(TEXT, {PLACE: PIN}) == TEXT.replace(
        "      - tag: a/b:old   # seen in May\n",
        f"      - tag: a/b:new   # seen in May\n        digest: {PIN.digest}\n",
    )


def test_a_digest_that_is_there_is_replaced_and_quotes_are_kept() -> None:
    assert edit_images(TEXT, {SLIM: PIN}) == TEXT.replace("tag: 'a/b:old'", "tag: 'a/b:new'").replace(
        "sha256:0", PIN.digest
    )


def test_a_mapping_in_braces_stays_on_its_line() -> None:
    edited = edit_images(TEXT, {("rocm", "7.2", "images", 1): PIN})
    assert edited == TEXT.replace('{tag: "a/b:old",', f'{{tag: "a/b:new", digest: {PIN.digest},')


def test_line_ends_marks_and_letters_of_any_kind_stay() -> None:
    for text in (TEXT.replace("\n", "\r\n"), "\ufeff" + TEXT, TEXT.replace("remark", "r\u00e9mark \U0001f600")):
        end = "\r\n" if "\r" in text else "\n"
        edited = edit_images(text, {PLACE: PIN})
        assert f"{end}        digest: {PIN.digest}{end}" in edited
        line = f"        digest: {PIN.digest}{end}"
        assert edited.replace(line, "").replace("a/b:new", "a/b:old") == text
