"""Releases and their assets on GitHub: list them, and change them with requests that are safe to repeat."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias, TypeVar
from urllib.parse import quote

import requests

from wheelfactory.core.errors import PublishError
from wheelfactory.core.files import file_sha256
from wheelfactory.core.models import FrozenModel
from wheelfactory.core.progress import ProgressCallback, ignore_progress, logger
from wheelfactory.release.github.client import ApiCall, Client
from wheelfactory.release.github.responses import RefusedError, none_if_missing, read_response
from wheelfactory.release.transaction import Asset


class StoredAsset(FrozenModel, extra="ignore"):
    """An asset as the API returns it."""

    id: int
    name: str
    size: int
    state: str
    """``uploaded``, or ``starter`` for an empty asset of a failed upload (GitHub's documentation)."""
    digest: str | None = None
    """``sha256:...``; None for assets from before June 2025, when GitHub began to compute digests."""
    url: str
    """The API address, which works for drafts too."""
    browser_download_url: str
    """The public address. It changes when a draft is published."""


class Release(FrozenModel, extra="ignore"):
    """A release as the API returns it; a draft until it is published."""

    id: int
    tag_name: str
    draft: bool
    prerelease: bool
    immutable: bool = False
    published_at: datetime | None = None
    url: str
    upload_url: str
    """A URI template that ends in ``{?name,label}``."""
    assets: tuple[StoredAsset, ...] = ()
    """As of the response; see `Releases.read_assets`."""


class _Commit(FrozenModel, extra="ignore"):
    """A commit as the API returns it."""

    sha: str


# of a tag that does not exist: 404, or 422 for a name that is no commit (GitHub's description of "get a commit")
_NO_TAG = (requests.codes.not_found, requests.codes.unprocessable_entity)
_COMMIT_REFUSED = (requests.codes.forbidden, requests.codes.not_found, requests.codes.unprocessable_entity)

_Value = TypeVar("_Value", Release, StoredAsset)

Acknowledged: TypeAlias = dict[str, object]
"""The acknowledged state of the changed entries of a list, by API address; None for a deleted entry."""


class Releases:
    """The releases of one repository. Every method raises `PublishError` if GitHub refuses or stays unreachable."""

    def __init__(self, client: Client, commit: str | None = None) -> None:
        """`commit` is where new tags are created; None for the head of the default branch."""
        self.client = client
        self._commit = commit
        self._releases_url = f"{client.url}/releases"
        self._hashed: dict[int, str] = {}
        self._acknowledged: dict[str, Acknowledged] = {self._releases_url: {}}

    def list_releases(self) -> tuple[Release, ...]:
        """Every release, with the changes of this process. Drafts need a token with `contents: write`."""
        return tuple(self._list(self._releases_url, Release))

    def find_published(self, tag: str) -> Release | None:
        """The published release of a tag, or None."""
        return none_if_missing(lambda: self.client.get(f"{self._releases_url}/tags/{tag}", Release))

    def require_unmoved(self, tag: str) -> None:
        """Raise `PublishError` if the tag exists, and is not at the commit of the run: somebody moved it since.

        GitHub ignores `target_commitish` for a tag that exists, so its release would name other sources.
        """
        if self._commit is None:
            return
        url = f"{self.client.url}/commits/{quote(f'tags/{tag}', safe='')}"
        try:
            found = self.client.get(url, _Commit).sha
        except RefusedError as refused:
            if refused.status in _NO_TAG:
                return
            raise
        if found != self._commit:
            hint = "start a run of the tag as it is now; the draft of this run can be deleted"
            raise PublishError("the tag moved since the build", f"{tag}: built {self._commit}, now {found}", hint)

    def list_assets(self, release: Release) -> dict[str, StoredAsset]:
        """The assets of a release by name, with the changes of this process, including incomplete uploads."""
        return {asset.name: asset for asset in self._list(f"{release.url}/assets", StoredAsset)}

    def _list(self, url: str, kind: type[_Value]) -> list[_Value]:
        """Read a list until it shows every change that GitHub acknowledged; believe it after a minute."""
        acknowledged = self._acknowledged.setdefault(url, {})

        def is_current(found: list[_Value]) -> bool:
            shown = {entry.url: _state(entry) for entry in found}
            return all(shown.get(address) == state for address, state in acknowledged.items())

        found = self.client.poll(lambda: list(self.client.list_entries(url, kind)), is_current)
        if not is_current(found):
            acknowledged.clear()  # someone else changed it since
        return found

    def read_assets(self, release: Release) -> dict[str, StoredAsset]:
        """The assets of a listed release by name: of a draft as it is now, else from that list, if it has them all."""
        if release.draft:  # another process may have filled it seconds ago, and a list can be older
            release = self._get(release)
        # GitHub documents no limit for them; if there is one, it is a round number
        if len(release.assets) % 10 == 0 or self._acknowledged.get(f"{release.url}/assets"):
            return self.list_assets(release)
        return {asset.name: asset for asset in release.assets}

    def find_sha256(self, stored: StoredAsset) -> str | None:
        """The sha256 of an asset; None if it is not fully uploaded. Downloads and hashes it if GitHub has no digest."""
        if stored.state != "uploaded":
            return None
        if stored.digest is not None:
            return stored.digest.removeprefix("sha256:")
        if stored.id not in self._hashed:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder, "asset")
                self.client.download(stored.url, path)
                self._hashed[stored.id] = file_sha256(path)
        return self._hashed[stored.id]

    def download(self, stored: StoredAsset, path: Path) -> None:
        """Download an asset to `path`. Raises `PublishError` if its digest differs."""
        self.client.download(stored.url, path, stored.browser_download_url)
        if stored.digest not in (None, f"sha256:{file_sha256(path)}"):
            raise PublishError("damaged during the download", stored.name, "run the same command again")

    def read(self, stored: StoredAsset) -> bytes:
        """The content of a small asset. Raises `PublishError` if its digest differs."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "asset")
            self.download(stored, path)
            return path.read_bytes()

    def create(self, tag: str, *, prerelease: bool = False) -> Release:
        """Create a draft. If the response is lost, an existing draft of this tag counts as the result."""
        body = {"tag_name": tag, "name": tag, "draft": True, "prerelease": prerelease}
        created = self.client.retry(
            lambda: read_response(Release, self._send(ApiCall("POST", self._releases_url, body)), self._releases_url),
            lambda: next((one for one in self.list_releases() if one.draft and one.tag_name == tag), None),
        )
        self._acknowledged[self._releases_url][created.url] = _state(created)
        return created

    def rename(self, draft: Release, tag: str) -> Release:
        """Change the tag of a draft."""
        return self._edit(draft, {"tag_name": tag, "name": tag}, lambda found: found.tag_name == tag)

    def publish(self, draft: Release, notes: str, *, latest: bool) -> Release:
        """Publish a draft with the text `notes`. `latest` marks it as the repository's latest release.

        A new tag is created at the commit, or at the default branch if GitHub refuses the commit. Raises
        `PublishError` if GitHub returns a different tag, or the release is still a draft.
        """
        body = {"tag_name": draft.tag_name, "draft": False, "body": notes, "make_latest": str(latest).lower()}
        target = {"target_commitish": self._commit} if self._commit else {}
        try:
            published = self._edit(draft, {**body, **target}, _is_published)
        except RefusedError as refused:
            # a token of Actions must not tag a commit with other workflow files than the default branch, which may have
            # changed since (GitHub's documentation of "update a release"); the wheels are published all the same
            if not target or refused.status not in _COMMIT_REFUSED:
                raise
            published = self._edit(draft, body, _is_published)
            what = "%s: if this tag is new, it is not at commit %s but at the default branch: %s"
            logger.warning(what, draft.tag_name, self._commit, refused)
        if published.draft or published.tag_name != draft.tag_name:
            found = f"{draft.tag_name} is {'a draft' if published.draft else published.tag_name}"
            raise PublishError("GitHub did not publish the release as requested", found, "check the release on GitHub")
        return published

    def _edit(self, release: Release, body: dict[str, object], done: Callable[[Release], bool]) -> Release:
        def find_edited() -> Release | None:
            found = self._get(release)
            return found if done(found) else None

        call = ApiCall("PATCH", release.url, body)
        edited = self.client.retry(lambda: read_response(Release, self._send(call), call.url), find_edited)
        self._acknowledged[self._releases_url][edited.url] = _state(edited)
        return edited

    def upload(self, draft: Release, asset: Asset, report_progress: ProgressCallback) -> StoredAsset:
        """Upload an asset, once. Raises `RetryableError` if the outcome is unknown."""
        address = draft.upload_url.partition("{")[0]
        stored = read_response(StoredAsset, self._send(ApiCall("POST", address, file=asset), report_progress), address)
        self._acknowledged.setdefault(f"{draft.url}/assets", {})[stored.url] = _state(stored)
        return stored

    def delete_asset(self, draft: Release, stored: StoredAsset) -> None:
        """Delete an asset of a draft, if it still exists."""
        self._delete(stored.url)
        self._acknowledged.setdefault(f"{draft.url}/assets", {})[stored.url] = None

    def delete_draft(self, draft: Release) -> None:
        """Delete a draft, if it still exists. Raises `PublishError` if it was published in the meantime."""
        now = none_if_missing(lambda: self._get(draft))
        if now is not None and not now.draft:
            raise PublishError("the draft was published in the meantime", now.tag_name, "run the same command again")
        if now is not None:
            self._delete(draft.url)
        self._acknowledged[self._releases_url][draft.url] = None

    def _get(self, release: Release) -> Release:
        return self.client.get(release.url, Release)

    def _delete(self, url: str) -> None:
        self.client.retry(lambda: none_if_missing(lambda: self._send(ApiCall("DELETE", url))))

    def _send(self, call: ApiCall, report_progress: ProgressCallback = ignore_progress) -> Any:
        return self.client.send(call, report_progress)


class ReleaseFiles:
    """One release, with a cached list of its assets."""

    def __init__(self, releases: Releases, release: Release) -> None:
        self._releases = releases
        self.release = release

    @cached_property
    def assets(self) -> dict[str, StoredAsset]:
        """The assets by name, including incomplete uploads."""
        return self._releases.read_assets(self.release)

    def find_digests(self, names: Iterable[str]) -> dict[str, str]:
        """The sha256 of each of these assets that is complete, by name."""
        found = {name: self._releases.find_sha256(self.assets[name]) for name in names if name in self.assets}
        return {name: sha256 for name, sha256 in found.items() if sha256 is not None}

    def has_assets(self, digests: Mapping[str, str]) -> bool:
        """Whether all these assets are complete, with these sha256."""
        return self.find_digests(digests) == digests


def _is_published(release: Release) -> bool:
    return not release.draft


def _state(entry: Release | StoredAsset) -> object:
    """What a current list shows of an entry."""
    return (entry.tag_name, entry.draft) if isinstance(entry, Release) else entry.state
