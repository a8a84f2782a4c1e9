"""Publishing to GitHub: the resulting releases, and the files that are kept, replaced or refused."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from fake_github import FakeGitHub
from fake_github.outcome import Added, assert_published, content_of, files_of, published_rows, sha256
from release_factory import additions, flash_attn_wheel, stub_wheel
from small_matrix import small_matrix
from wheelfactory.core.errors import InputError, PublishError
from wheelfactory.core.published import MANIFEST_NAME
from wheelfactory.release.github import drafts
from wheelfactory.release.github.publisher import GitHubPublisher
from wheelfactory.release.manifest import available_cells, next_replacements
from wheelfactory.release.transaction import Asset, held_rows, publish, stage, yank

NewPublisher: TypeAlias = Callable[..., GitHubPublisher]

CELL = "fa2.8.3-rocm6.4-torch2.9.1-py3-triton"
THIRD_CELL = "fa2.8.3-rocm7.14-torch2.14.1-py3-triton"


def asset(name: str, content: bytes = b"content") -> Asset:
    return Asset(name, sha256(content), content)


def tags(github: FakeGitHub) -> list[str]:
    return [release.tag for release in github.repository.published()]


@pytest.fixture
def later(tmp_path: Path) -> Added:
    """One more wheel, from another run."""
    return additions([flash_attn_wheel(tmp_path / "later", THIRD_CELL)])


def test_a_release_has_wheels_metadata_sums_and_manifest_and_rows_the_addresses_that_github_reports(
    github: FakeGitHub, publisher: NewPublisher, added: Added
) -> None:
    rows = publish(publisher(), added)
    assert_published(github.repository, rows)
    assert tags(github) == ["v1"]
    (release,) = github.repository.published()
    assert set(release.files()) == {"SHA256SUMS", MANIFEST_NAME, *files_of(rows)}
    rows = publisher(tag=None, token=None).rows()
    assert [row.model_copy(update={"url": None}) for row in rows] == published_rows(github.repository)
    home = f"{github.repository.web}/someone/wheels/releases/download/v1"
    assert [row.url for row in rows] == [f"{home}/{row.filename.replace('+', '%2B')}" for row in rows]


def test_a_later_publish_is_a_new_release_whose_manifest_names_every_row(
    github: FakeGitHub, publisher: NewPublisher, added: Added, later: Added
) -> None:
    publish(publisher(), added)
    publish(publisher("v2"), later)
    assert tags(github) == ["v1", "v2"]
    assert_published(github.repository, [row for row, _ in (*added, *later)])
    urls = {str(row.url).split("/")[-2] for row in publisher(None).rows()}
    assert urls == {"v1", "v2"}


def test_a_published_tag_goes_on_in_a_part_that_starts_no_build(
    github: FakeGitHub, publisher: NewPublisher, added: Added, later: Added
) -> None:
    publish(publisher(), added[:1])
    publish(publisher(), added[1:])
    publish(publisher(), later)
    assert tags(github) == ["v1", "wheels-v1-2", "wheels-v1-3"]
    assert_published(github.repository, [row for row, _ in (*added, *later)])


@pytest.mark.parametrize("lost", ["", ".metadata"], ids=["wheel", "metadata"])
def test_half_a_wheel_is_not_held(github: FakeGitHub, publisher: NewPublisher, added: Added, lost: str) -> None:
    row = added[0][0]
    assert not publisher().has_wheel(row)
    stage(publisher(), added)
    (draft,) = github.repository.drafts()
    (gone,) = (one.id for one in draft.assets.values() if one.name == f"{row.filename}{lost}")
    del draft.assets[gone]
    assert not publisher().has_wheel(row)
    with pytest.raises(PublishError, match=f"file is neither given nor staged: {row.filename.split('+')[0]}"):
        publish(publisher(), [(row, None)])
    assert github.repository.published() == []


def test_a_staged_file_with_other_bytes_does_not_count(publisher: NewPublisher, added: Added) -> None:
    stage(publisher(), added)
    assert not publisher().has_wheel(added[0][0].model_copy(update={"metadata_sha256": "0" * 64}))
    assert not publisher("v2").has_wheel(added[0][0]), "staged for another tag"


def test_leftovers_in_a_draft_are_removed(github: FakeGitHub, publisher: NewPublisher, added: Added) -> None:
    draft = github.repository.create({"tag_name": "v1", "draft": True})
    name = added[0][0].filename
    github.repository.upload(draft.id, name, 0, None, None)
    github.repository.upload(draft.id, f"{name}.metadata", 5, sha256(b"other"), b"other")
    github.repository.upload(draft.id, "stale.whl", 5, sha256(b"other"), b"other")
    github.repository.upload(draft.id, MANIFEST_NAME, 5, sha256(b"other"), b"other")
    rows = publish(publisher(), added)
    assert_published(github.repository, rows)
    assert [release.id for release in github.repository.published()] == [draft.id]


def test_an_identical_file_in_the_draft_is_kept(github: FakeGitHub, publisher: NewPublisher, added: Added) -> None:
    stage(publisher(), added)
    (draft,) = github.repository.drafts()
    staged = set(draft.assets)
    publish(publisher(), added)
    assert staged < set(draft.assets)


def test_a_published_file_is_never_replaced(
    github: FakeGitHub, publisher: NewPublisher, added: Added, tmp_path: Path
) -> None:
    rows = publish(publisher(), added)
    other = additions([flash_attn_wheel(tmp_path / "other", CELL, content="changed = True")])
    with pytest.raises(PublishError, match="already published with different content"):
        publish(publisher(), other)
    with pytest.raises(PublishError, match=r"already published with different content: .* in v1") as refused:
        publisher().put_asset(asset(added[0][0].filename))
    assert "yank it" in refused.value.hint
    assert_published(github.repository, rows)


def test_a_file_that_github_renames_is_refused_and_removed(github: FakeGitHub, publisher: NewPublisher) -> None:
    with pytest.raises(PublishError, match=r"GitHub renamed a file: a~b.whl became a.b.whl"):
        publisher().put_asset(asset("a~b.whl"))
    (draft,) = github.repository.drafts()
    assert draft.files() == {}


def test_two_gigabytes_are_refused_before_anything_is_sent(
    github: FakeGitHub, publisher: NewPublisher, tmp_path: Path
) -> None:
    large = tmp_path / "large.whl"
    with large.open("wb") as file:
        file.truncate(2 << 30)
    with pytest.raises(PublishError, match=r"too large for a release: large.whl has 2147483648 bytes"):
        publisher().put_asset(Asset("large.whl", "0" * 64, large))
    assert github.calls == []


def test_a_full_release_is_followed_by_another_and_only_the_last_has_the_manifest(
    github: FakeGitHub, publisher: NewPublisher, added: Added, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drafts, "MAX_WHEELS", 2)
    publish(publisher(), added)
    first, second = github.repository.published()
    assert (first.tag, second.tag) == ("v1", "wheels-v1-2")
    assert len(drafts.wheel_names(first.files())) == 2
    assert MANIFEST_NAME not in first.files()
    assert (first.was_latest, second.latest) == (False, True)
    assert "wheels-v1-2" in str(first.body)
    assert_published(github.repository, [row for row, _ in added])


def test_a_second_draft_of_a_tag_becomes_a_part_if_it_has_wheels(
    github: FakeGitHub, publisher: NewPublisher, added: Added
) -> None:
    stage(publisher(), added[:1])
    (draft,) = github.repository.drafts()
    draft.tag = "v2"
    stage(publisher(), added[1:])
    draft.tag = "v1"
    publish(publisher(), [(row, None) for row, _ in added])
    assert_published(github.repository, [row for row, _ in added])
    assert tags(github) == ["v1", "wheels-v1-2"]


def test_of_several_drafts_of_a_tag_the_one_with_wheels_keeps_it(
    github: FakeGitHub, publisher: NewPublisher, added: Added
) -> None:
    empty = github.repository.create({"tag_name": "other", "draft": True})
    stage(publisher(), added)
    empty.tag = "v1"
    github.repository.create({"tag_name": "v1", "draft": True})
    publish(publisher(), added)
    assert_published(github.repository, [row for row, _ in added])
    assert tags(github) == ["v1"]
    assert sum(call.startswith("PATCH") for call in github.calls) == 1, "no draft is renamed"


def test_the_first_part_has_the_tag_although_an_earlier_one_was_not_needed(
    github: FakeGitHub, publisher: NewPublisher, added: Added, later: Added, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drafts, "MAX_WHEELS", 1)
    stage(publisher(), later)
    stage(publisher(), added[:2])
    assert {draft.tag for draft in github.repository.drafts()} == {"v1", "wheels-v1-2", "wheels-v1-3"}
    publish(publisher(), added[:2])
    assert_published(github.repository, [row for row, _ in added[:2]])
    assert set(tags(github)) == {"v1", "wheels-v1-3"}


def test_a_draft_whose_tag_was_published_manually_becomes_a_part(
    github: FakeGitHub, publisher: NewPublisher, added: Added
) -> None:
    stage(publisher(), added)
    (draft,) = github.repository.drafts()
    draft.tag = "other"
    notes_of_a_person = github.repository.create({"tag_name": "v1", "draft": False})
    draft.tag = "v1"
    publish(publisher(), [(row, None) for row, _ in added])
    assert set(tags(github)) == {"v1", "wheels-v1-2"}
    assert notes_of_a_person.files() == {}


def test_a_release_hidden_by_another_of_the_same_second_is_followed_by_a_manifest_of_both(
    github: FakeGitHub, publisher: NewPublisher, added: Added, later: Added
) -> None:
    github.repository.a_second = 10
    stage(publisher(), added)
    publish(publisher("v2"), later)
    publish(publisher(), added)
    assert_published(github.repository, [row for row, _ in (*added, *later)])
    assert tags(github) == ["v1", "v2", "wheels-v1-2"]


def test_an_incomplete_published_draft_is_a_clear_error(
    github: FakeGitHub, publisher: NewPublisher, added: Added
) -> None:
    stage(publisher(), added)
    (draft,) = github.repository.drafts()
    row = added[0][0]
    (gone,) = (one.id for one in draft.assets.values() if one.name == f"{row.filename}.metadata")
    del draft.assets[gone]
    github.repository.edit(draft.id, {"draft": False})
    with pytest.raises(PublishError, match=r"published incompletely: .* in v1") as refused:
        publish(publisher(), added)
    assert "delete that release" in refused.value.hint


def test_files_without_a_digest_are_downloaded_and_hashed(
    github: FakeGitHub, publisher: NewPublisher, added: Added
) -> None:
    github.repository.with_digests = False
    stage(publisher(), added)
    (draft,) = github.repository.drafts()
    damaged = next(iter(draft.assets.values()))
    damaged.content = b"damaged"
    rows = publish(publisher(), added)
    (release,) = github.repository.published()
    assert content_of(release, damaged.name) != b"damaged"
    assert publisher().has_wheel(rows[0])


def test_a_manifest_damaged_on_the_way_is_not_taken(github: FakeGitHub, publisher: NewPublisher, added: Added) -> None:
    publish(publisher(), added)
    (release,) = github.repository.published()
    (manifest,) = (one for one in release.assets.values() if one.name == MANIFEST_NAME)
    manifest.content = (manifest.content or b"")[:-5]
    with pytest.raises(PublishError, match=r"damaged during the download: manifest.jsonl"):
        publisher().rows()


def test_a_yank_is_a_small_release_of_its_own(github: FakeGitHub, publisher: NewPublisher, added: Added) -> None:
    publish(publisher(), added)
    yanked = yank(publisher("yank-1"), added[0][0].filename, "wrong kernels")
    assert_published(github.repository, [row.model_copy(update={"url": None}) for row in yanked])
    assert set(github.repository.published()[-1].files()) == {MANIFEST_NAME, "SHA256SUMS"}
    before = len(github.calls)
    yank(publisher("yank-1"), added[0][0].filename, "wrong kernels")
    assert all(call.startswith("GET") for call in github.calls[before:])


@pytest.mark.parametrize("is_yanked", [False, True], ids=["its release deleted", "yanked"])
def test_a_cell_whose_release_was_deleted_or_wheel_yanked_gets_a_replacement(
    github: FakeGitHub, publisher: NewPublisher, added: Added, later: Added, tmp_path: Path, is_yanked: bool
) -> None:
    matrix, (gone, _) = small_matrix(), later[0]
    publish(publisher(), later)
    publish(publisher("v2"), added)
    if is_yanked:
        yank(publisher("v3"), gone.filename, "wrong numbers")
    else:
        github.repository.delete(github.repository.published()[0].id)

    def available() -> bool:
        return THIRD_CELL in available_cells(held_rows(publisher(None)), matrix)

    assert not available()
    assert next_replacements(publisher(None).rows(), matrix)[THIRD_CELL] == 1
    replacement = additions([flash_attn_wheel(tmp_path / "again", THIRD_CELL, "other bytes", replacement=1)])
    publish(publisher("v4"), replacement)
    assert available()
    assert {row.filename for row in publisher(None).rows() if row.cell == THIRD_CELL} == {
        gone.filename,
        gone.filename.replace("-1-", "-1a-"),
    }


def test_a_lost_file_of_an_old_row_does_not_stop_a_new_one(
    github: FakeGitHub, publisher: NewPublisher, added: Added, later: Added
) -> None:
    publish(publisher(), later)
    publish(publisher("v2"), added[:1])
    github.repository.delete(github.repository.published()[0].id)
    rows = publish(publisher("v3"), added)
    assert len(rows) == 4
    assert publisher().has_wheel(added[2][0])


def test_a_new_row_whose_file_is_nowhere_is_not_committed(
    github: FakeGitHub, publisher: NewPublisher, added: Added
) -> None:
    stage(publisher(), added[:1])
    with pytest.raises(PublishError, match="not staged"):
        publisher().commit([row for row, _ in added])
    assert github.repository.published() == []


def test_kernels_are_no_release_of_wheels(github: FakeGitHub, publisher: NewPublisher, added: Added) -> None:
    kernel_release = github.repository.create({"tag_name": "kernels-a", "prerelease": True, "draft": True})
    github.repository.upload(kernel_release.id, MANIFEST_NAME, 3, sha256(b"{}\n"), b"{}\n")
    github.repository.edit(kernel_release.id, {"draft": False})
    assert publisher().rows() == ()
    assert publish(publisher(), added)


def test_drafts_of_other_tags_stay(github: FakeGitHub, publisher: NewPublisher, added: Added) -> None:
    others = [github.repository.create({"tag_name": tag, "draft": True}) for tag in ("v10", "wheels-v1-1", "notes")]
    publish(publisher(), added)
    assert github.repository.drafts() == others


def test_the_notes_get_the_rows_before_and_after(github: FakeGitHub, publisher: NewPublisher, added: Added) -> None:
    publish(publisher(), added[:1])
    writing = publisher("v2")
    writing._notes = lambda before, after: f"{len(before)} before, {len(after)} after"
    publish(writing, added[1:])
    assert github.repository.published()[-1].body == "1 before, 3 after"


def test_releases_that_can_be_changed_are_warned_of(
    github: FakeGitHub, publisher: NewPublisher, added: Added, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "wheelfactory"):
        publish(publisher(), added)
        assert caplog.messages == []
        github.repository.immutable = False
        publish(publisher(), added[:1])
        publish(publisher("v2"), additions([stub_wheel(added[0][1].parent, "torch", "1")]))
    assert caplog.messages == ["v2 is not immutable: enable immutable releases in its settings"]


def test_without_a_tag_it_can_only_be_read(github: FakeGitHub, publisher: NewPublisher, added: Added) -> None:
    with pytest.raises(InputError, match="no release tag") as refused:
        publish(publisher(None), added)
    assert "--tag" in refused.value.hint
    assert all(call.startswith("GET") for call in github.calls)


@pytest.mark.parametrize(
    ("tags", "error"),
    [
        (("", "-v", "a/b", "a..b", "v1.lock", "v1.", "a b"), "not a tag"),
        (("wheels-v1-2", "kernels-a", "untagged-1"), "the tag has a reserved prefix"),
    ],
)
def test_tags_that_git_refuses_or_that_mean_something_else_are_refused(
    publisher: NewPublisher, tags: tuple[str, ...], error: str
) -> None:
    for tag in tags:
        with pytest.raises(InputError, match=error):
            publisher(tag)
