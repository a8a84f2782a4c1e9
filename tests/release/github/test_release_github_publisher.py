"""Publishing to GitHub: the resulting releases, and the files that are kept, replaced or refused."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from fake_github.hub import Hub
from fake_github.outcome import Added, assert_published, content_of, files_of, published_rows, sha256
from fake_github.repository import FakeAsset, FakeRelease
from release_factory import additions, flash_attn_wheel, stub_wheel
from small_matrix import small_matrix
from wheelfactory.core.errors import InputError, PublishError
from wheelfactory.core.published import MANIFEST_NAME
from wheelfactory.release.github import drafts
from wheelfactory.release.manifest import available_cells, next_replacements
from wheelfactory.release.transaction import Asset, held_rows, publish, yank

THIRD_CELL = "fa2.8.3-rocm7.14-torch2.14.1-py3-triton"


def asset(name: str, content: bytes = b"content") -> Asset:
    return Asset(name, sha256(content), content)


def find(release: FakeRelease, name: str) -> FakeAsset:
    (found,) = (one for one in release.assets.values() if one.name == name)
    return found


@pytest.fixture
def later(tmp_path: Path) -> Added:
    """One more wheel, from another run."""
    return additions([flash_attn_wheel(tmp_path / "later", THIRD_CELL)])


def test_a_release_has_wheels_metadata_sums_and_manifest_and_rows_the_addresses_that_github_reports(hub: Hub) -> None:
    rows = hub.publish()
    hub.assert_published()
    (release,) = hub.repository.published()
    assert (release.tag, set(release.files())) == ("v1", {"SHA256SUMS", MANIFEST_NAME, *files_of(rows)})
    rows = hub.publisher(tag=None, token=None).rows()
    assert [row.model_copy(update={"url": None}) for row in rows] == published_rows(hub.repository)
    home = f"{hub.repository.web}/someone/wheels/releases/download/v1"
    assert [row.url for row in rows] == [f"{home}/{row.filename.replace('+', '%2B')}" for row in rows]


def test_a_later_publish_is_a_new_release_whose_manifest_names_every_row(hub: Hub, later: Added) -> None:
    hub.publish()
    hub.publish("v2", later)
    assert hub.tags() == ["v1", "v2"]
    hub.assert_published(later)
    assert {str(row.url).split("/")[-2] for row in hub.publisher(None).rows()} == {"v1", "v2"}


def test_a_published_tag_goes_on_in_a_part_that_starts_no_build(hub: Hub, later: Added) -> None:
    for added in (hub.added[:1], hub.added[1:], later):
        hub.publish(added=added)
    assert hub.tags() == ["v1", "wheels-v1-2", "wheels-v1-3"]
    hub.assert_published(later)


@pytest.mark.parametrize("lost", ["", ".metadata"], ids=["wheel", "metadata"])
def test_half_a_wheel_or_one_with_other_bytes_is_not_held(hub: Hub, lost: str) -> None:
    row = hub.rows[0]
    assert not hub.publisher().has_wheel(row)
    hub.stage()
    assert not hub.publisher().has_wheel(row.model_copy(update={"metadata_sha256": "0" * 64}))
    assert not hub.publisher("v2").has_wheel(row), "staged for another tag"
    (draft,) = hub.repository.drafts()
    del draft.assets[find(draft, f"{row.filename}{lost}").id]
    assert not hub.publisher().has_wheel(row)
    with pytest.raises(PublishError, match=f"file is neither given nor staged: {row.filename.split('+')[0]}"):
        hub.publish_staged(hub.added[:1])
    with pytest.raises(PublishError, match="not staged"):
        hub.publisher().commit(hub.rows)
    assert hub.tags() == []


def test_leftovers_in_a_draft_are_removed_and_identical_files_kept(hub: Hub) -> None:
    hub.stage(hub.added[1:])
    (draft,) = hub.repository.drafts()
    staged = set(draft.assets)
    name = hub.rows[0].filename
    hub.repository.upload(draft.id, name, 0, None, None)
    for other in (f"{name}.metadata", "stale.whl", MANIFEST_NAME):
        hub.repository.upload(draft.id, other, 5, sha256(b"other"), b"other")
    hub.publish()
    hub.assert_published()
    (release,) = hub.repository.published()
    assert release.id == draft.id
    assert staged < set(release.assets)


def test_a_published_file_is_never_replaced(hub: Hub) -> None:
    hub.publish()
    with pytest.raises(PublishError, match=r"already published with different content: .* in v1") as refused:
        hub.publisher().put_asset(asset(hub.rows[0].filename))
    assert "yank it" in refused.value.hint
    hub.assert_published()


def test_a_file_that_github_renames_is_refused_and_removed(hub: Hub) -> None:
    with pytest.raises(PublishError, match=r"GitHub renamed a file: a~b.whl became a.b.whl"):
        hub.publisher().put_asset(asset("a~b.whl"))
    (draft,) = hub.repository.drafts()
    assert draft.files() == {}


def test_two_gigabytes_are_refused_before_anything_is_sent(hub: Hub, tmp_path: Path) -> None:
    large = tmp_path / "large.whl"
    with large.open("wb") as file:
        file.truncate(2 << 30)
    with pytest.raises(PublishError, match=r"too large for a release: large.whl has 2147483648 bytes"):
        hub.publisher().put_asset(Asset("large.whl", "0" * 64, large))
    assert hub.github.calls == []


def test_a_full_release_is_followed_by_another_and_only_the_last_has_the_manifest(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drafts, "MAX_WHEELS", 2)
    hub.publish()
    first, second = hub.repository.published()
    assert (first.tag, second.tag) == ("v1", "wheels-v1-2")
    assert len(drafts.wheel_names(first.files())) == 2
    assert MANIFEST_NAME not in first.files()
    assert (first.was_latest, second.latest) == (False, True)
    assert "wheels-v1-2" in str(first.body)
    hub.assert_published()


def test_a_second_draft_of_a_tag_becomes_a_part_if_it_has_wheels(hub: Hub) -> None:
    hub.stage(hub.added[:1])
    (draft,) = hub.repository.drafts()
    draft.tag = "v2"
    hub.stage(hub.added[1:])
    draft.tag = "v1"
    hub.publish_staged()
    hub.assert_published()
    assert hub.tags() == ["v1", "wheels-v1-2"]


def test_of_several_drafts_of_a_tag_the_one_with_wheels_keeps_it(hub: Hub) -> None:
    empty = hub.repository.create({"tag_name": "other", "draft": True})
    hub.stage()
    empty.tag = "v1"
    hub.repository.create({"tag_name": "v1", "draft": True})
    hub.publish()
    hub.assert_published()
    assert hub.tags() == ["v1"]
    assert sum(call.startswith("PATCH") for call in hub.github.calls) == 1, "no draft is renamed"


def test_the_first_part_has_the_tag_although_an_earlier_one_was_not_needed(
    hub: Hub, later: Added, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drafts, "MAX_WHEELS", 1)
    hub.added = hub.added[:2]
    hub.stage(later)
    hub.stage()
    assert {draft.tag for draft in hub.repository.drafts()} == {"v1", "wheels-v1-2", "wheels-v1-3"}
    hub.publish()
    hub.assert_published()
    assert set(hub.tags()) == {"v1", "wheels-v1-3"}


def test_a_draft_whose_tag_was_published_manually_becomes_a_part(hub: Hub) -> None:
    hub.stage()
    (draft,) = hub.repository.drafts()
    draft.tag = "other"
    notes_of_a_person = hub.repository.create({"tag_name": "v1", "draft": False})
    draft.tag = "v1"
    hub.publish_staged()
    assert set(hub.tags()) == {"v1", "wheels-v1-2"}
    assert notes_of_a_person.files() == {}


def test_a_release_hidden_by_another_of_the_same_second_is_followed_by_a_manifest_of_both(
    hub: Hub, later: Added
) -> None:
    hub.repository.a_second = 10
    hub.stage()
    hub.publish("v2", later)
    hub.publish()
    hub.assert_published(later)
    assert hub.tags() == ["v1", "v2", "wheels-v1-2"]


def test_an_incomplete_published_draft_is_a_clear_error(hub: Hub) -> None:
    hub.stage()
    (draft,) = hub.repository.drafts()
    del draft.assets[find(draft, f"{hub.rows[0].filename}.metadata").id]
    hub.repository.edit(draft.id, {"draft": False})
    with pytest.raises(PublishError, match=r"published incompletely: .* in v1") as refused:
        hub.publish()
    assert "delete that release" in refused.value.hint


def test_files_without_a_digest_are_downloaded_and_hashed(hub: Hub) -> None:
    hub.repository.with_digests = False
    hub.stage()
    (draft,) = hub.repository.drafts()
    damaged = next(iter(draft.assets.values()))
    damaged.content = b"damaged"
    rows = hub.publish()
    (release,) = hub.repository.published()
    assert content_of(release, damaged.name) != b"damaged"
    assert hub.publisher().has_wheel(rows[0])


def test_a_manifest_damaged_on_the_way_is_not_taken(hub: Hub) -> None:
    hub.publish()
    manifest = find(hub.repository.published()[0], MANIFEST_NAME)
    manifest.content = (manifest.content or b"")[:-5]
    with pytest.raises(PublishError, match=r"damaged during the download: manifest.jsonl"):
        hub.publisher().rows()


def test_a_yank_is_a_small_release_of_its_own(hub: Hub) -> None:
    hub.publish()
    yanked = yank(hub.publisher("yank-1"), hub.rows[0].filename, "wrong kernels")
    assert_published(hub.repository, [row.model_copy(update={"url": None}) for row in yanked])
    assert set(hub.repository.published()[-1].files()) == {MANIFEST_NAME, "SHA256SUMS"}
    before = hub.changes()
    yank(hub.publisher("yank-1"), hub.rows[0].filename, "wrong kernels")
    assert hub.changes() == before


@pytest.mark.parametrize("is_yanked", [False, True], ids=["its release deleted", "yanked"])
def test_a_cell_whose_release_was_deleted_or_wheel_yanked_gets_a_replacement(
    hub: Hub, later: Added, tmp_path: Path, is_yanked: bool
) -> None:
    matrix, (gone, _) = small_matrix(), later[0]
    hub.publish(added=later)
    hub.publish("v2")
    if is_yanked:
        yank(hub.publisher("v3"), gone.filename, "wrong numbers")
    else:
        hub.repository.delete(hub.repository.published()[0].id)

    def available() -> bool:
        return THIRD_CELL in available_cells(held_rows(hub.publisher(None)), matrix)

    assert not available()
    assert next_replacements(hub.publisher(None).rows(), matrix)[THIRD_CELL] == 1
    hub.publish("v4", additions([flash_attn_wheel(tmp_path / "again", THIRD_CELL, "other bytes", replacement=1)]))
    assert available()
    names = {row.filename for row in hub.publisher(None).rows() if row.cell == THIRD_CELL}
    assert names == {gone.filename, gone.filename.replace("-1-", "-1a-")}


def test_a_lost_file_of_an_old_row_does_not_stop_a_new_one(hub: Hub, later: Added) -> None:
    hub.publish(added=later)
    hub.publish("v2", hub.added[:1])
    hub.repository.delete(hub.repository.published()[0].id)
    assert len(hub.publish("v3")) == 4
    assert hub.publisher().has_wheel(hub.rows[2])


def test_releases_of_kernels_and_drafts_of_other_tags_stay_apart(hub: Hub) -> None:
    kernel_release = hub.repository.create({"tag_name": "kernels-a", "prerelease": True, "draft": True})
    hub.repository.upload(kernel_release.id, MANIFEST_NAME, 3, sha256(b"{}\n"), b"{}\n")
    hub.repository.edit(kernel_release.id, {"draft": False})
    others = [hub.repository.create({"tag_name": tag, "draft": True}) for tag in ("v10", "wheels-v1-1", "notes")]
    assert hub.publisher().rows() == ()
    assert hub.publish()
    assert hub.repository.drafts() == others


def test_the_notes_get_the_rows_before_and_after(hub: Hub) -> None:
    hub.publish(added=hub.added[:1])
    writing = hub.publisher("v2")
    writing._notes = lambda before, after: f"{len(before)} before, {len(after)} after"
    publish(writing, hub.added[1:])
    assert hub.repository.published()[-1].body == "1 before, 3 after"


def test_releases_that_can_be_changed_are_warned_of(hub: Hub, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "wheelfactory"):
        hub.publish()
        assert caplog.messages == []
        hub.repository.immutable = False
        hub.publish(added=hub.added[:1])
        hub.publish("v2", additions([stub_wheel(hub.added[0][1].parent, "torch", "1")]))
    assert caplog.messages == ["v2 is not immutable: enable immutable releases in its settings"]


def test_without_a_tag_it_can_only_be_read(hub: Hub) -> None:
    with pytest.raises(InputError, match="no release tag") as refused:
        publish(hub.publisher(None), hub.added)
    assert "--tag" in refused.value.hint
    assert hub.changes() == []


@pytest.mark.parametrize(
    ("tags", "error"),
    [
        (("", "-v", "a/b", "a..b", "v1.lock", "v1.", "a b"), "not a tag"),
        (("wheels-v1-2", "kernels-a", "untagged-1"), "the tag has a reserved prefix"),
    ],
)
def test_tags_that_git_refuses_or_that_mean_something_else_are_refused(
    hub: Hub, tags: tuple[str, ...], error: str
) -> None:
    for tag in tags:
        with pytest.raises(InputError, match=error):
            hub.publisher(tag)
