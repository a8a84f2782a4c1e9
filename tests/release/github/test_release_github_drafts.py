"""One draft: compared with its expected files, and never deleted once it is published."""

from __future__ import annotations

import pytest

from fake_github import FakeGitHub
from fake_github.outcome import sha256
from wheelfactory.core.errors import PublishError
from wheelfactory.release.github.drafts import (
    MAX_ASSETS,
    MAX_WHEELS,
    WRITTEN_LAST,
    Draft,
    find_part_number,
    find_part_with_room,
    part_tag,
)
from wheelfactory.release.github.releases import Releases
from wheelfactory.release.github.responses import RefusedError
from wheelfactory.release.transaction import Asset

CONTENT = b"content"


@pytest.fixture
def draft(releases: Releases) -> Draft:
    """A draft with one asset, ``a.whl``."""
    made = Draft(releases, releases.create("v1"))
    made.put_asset(Asset("a.whl", sha256(CONTENT), CONTENT))
    return made


def test_an_incomplete_draft_is_an_error_without_waiting(github: FakeGitHub, draft: Draft) -> None:
    """It is listed again before comparing."""
    (release,) = github.repository.drafts()
    github.repository.upload(release.id, "late.whl", 1, sha256(b"x"), b"x")
    late = {"late.whl": sha256(b"x")}
    for expected, message in (
        (late, "a.whl"),
        ({"a.whl": sha256(CONTENT)}, "late.whl"),
        ({**late, "a.whl": sha256(CONTENT), "b.whl": sha256(CONTENT)}, "b.whl"),
        ({**late, "a.whl": sha256(b"other")}, "a.whl"),
    ):
        with pytest.raises(PublishError, match=f"has missing, damaged or unexpected files: v1: {message}$"):
            draft.require_assets(expected)
    assert github.clock.pauses == []


def test_a_list_that_lags_behind_an_upload_is_read_again(github: FakeGitHub, draft: Draft) -> None:
    github.lag(5)
    draft.put_asset(Asset("b.whl", sha256(CONTENT), CONTENT))
    draft.remove("a.whl")
    draft.require_assets({"b.whl": sha256(CONTENT)})
    assert github.clock.pauses == [1, 2, 4]


def test_an_upload_that_github_refuses_is_not_tried_again(
    github: FakeGitHub, draft: Draft, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise RefusedError(422, "GitHub refused the request", "b.whl: name is too long", "rename it")

    monkeypatch.setattr(draft._releases, "upload", refuse)
    with pytest.raises(RefusedError):
        draft.put_asset(Asset("b.whl", sha256(CONTENT), CONTENT))
    assert github.clock.pauses == []


def test_a_list_that_never_shows_an_upload_is_believed_after_a_minute(github: FakeGitHub, draft: Draft) -> None:
    (release,) = github.repository.drafts()
    release.assets.clear()
    for _ in range(2):
        with pytest.raises(PublishError, match=r"has missing, damaged or unexpected files: v1: a\.whl"):
            draft.require_assets({"a.whl": sha256(CONTENT)})
    assert github.clock.pauses == [1, 2, 4, 8, 16, 32], "once"


def test_a_draft_that_was_published_meanwhile_is_not_deleted_and_a_missing_one_is_no_error(
    github: FakeGitHub, releases: Releases, draft: Draft
) -> None:
    github.repository.edit(draft.release.id, {"draft": False})
    with pytest.raises(PublishError, match="published in the meantime: v1"):
        releases.delete_draft(draft.release)
    assert len(github.repository.published()) == 1
    github.repository.delete(draft.release.id)
    releases.delete_draft(draft.release)


@pytest.mark.parametrize(("answer", "found"), [({}, "a draft"), ({"draft": False, "tag_name": "v2"}, "v2")])
def test_what_github_publishes_must_be_what_was_asked_for(
    releases: Releases, draft: Draft, monkeypatch: pytest.MonkeyPatch, answer: dict[str, object], found: str
) -> None:
    monkeypatch.setattr(releases, "_edit", lambda *_: draft.release.model_copy(update=answer))
    with pytest.raises(PublishError, match=f"did not publish the release as requested: v1 is {found}"):
        releases.publish(draft.release, "", latest=True)


def test_a_half_uploaded_asset_is_not_there_and_not_downloaded_to_be_sure(github: FakeGitHub, draft: Draft) -> None:
    github.repository.upload(draft.release.id, "half.whl", 0, None, None)
    before = len(github.calls)
    again = Draft(Releases(draft._releases.client), draft.release)
    assert not again.has_assets({"half.whl": sha256(b"")})
    assert github.calls[before:] == [f"GET /repos/someone/wheels/releases/{draft.release.id}"]


def test_later_parts_do_not_begin_as_tags_that_start_a_build_and_other_tags_are_no_part() -> None:
    for number, tag in enumerate(("v1", "wheels-v1-2", "wheels-v1-3"), 1):
        assert (part_tag("v1", number), find_part_number("v1", tag)) == (tag, number)
    for found in ("v11", "wheels-v1", "wheels-v1-1", "wheels-v1-02", "wheels-v1x2-2", "xwheels-v1-2"):
        assert find_part_number("v1", found) is None
        assert find_part_number("v1.2", found) is None


def filled(count: int, suffixes: tuple[str, ...] = ("", ".metadata", ".sigstore.json")) -> list[str]:
    return [f"{number}.whl{suffix}" for number in range(count) for suffix in suffixes]


def test_a_part_takes_as_many_wheels_as_github_takes_assets() -> None:
    full, halves = [*filled(MAX_WHEELS), *WRITTEN_LAST], filled(MAX_WHEELS, ("",))
    assert MAX_ASSETS - 3 < len(full) <= MAX_ASSETS == 1000
    for parts, wheel, number in (
        ({1: full}, "new.whl", None),
        ({1: full[3:]}, "new.whl", 1),
        ({1: halves}, "new.whl", None),  # half a wheel keeps the room of the other half
        ({1: halves}, "0.whl", 1),
        ({3: [], 2: filled(3), 1: filled(MAX_WHEELS)}, "new.whl", 2),  # the first with room
        # metadata and attestation go where their wheel is, though another part has room
        ({1: [], 2: ["a.whl.sigstore.json"]}, "a.whl", 2),
        ({1: [], 2: ["a.whl"]}, "a.whl", 2),
        ({1: filled(MAX_WHEELS - 1), 2: [], 3: ["a.whl.metadata"]}, "a.whl", 3),
    ):
        assert find_part_with_room(parts, wheel) == number
