"""Releases and their assets on GitHub: what is there, and the few calls that change it, each safe to make again."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import requests

from wheelfactory.core.digest import file_sha256
from wheelfactory.core.errors import PublishError
from wheelfactory.core.models import FrozenModel, parse_model
from wheelfactory.core.progress import ProgressPart, ignore_progress
from wheelfactory.release.github.client import ApiCall, Client
from wheelfactory.release.github.responses import RefusedError
from wheelfactory.release.transaction import Asset


class StoredAsset(FrozenModel, extra="ignore"):
    """An asset as GitHub has it."""

    id: int
    name: str
    size: int
    state: str
    """``uploaded``; an upload that failed may leave an empty one that is ``starter`` (GitHub's documentation)."""
    digest: str | None = None
    """``sha256:...``; None for an asset from before GitHub made them (June 2025)."""
    url: str
    """In the API, for drafts too."""
    browser_download_url: str
    """For everyone; that of a draft's asset is another one than when it is published."""


class Release(FrozenModel, extra="ignore"):
    """A release as GitHub has it, a draft until it is published."""

    id: int
    tag_name: str
    draft: bool
    prerelease: bool
    immutable: bool = False
    published_at: datetime | None = None
    url: str
    upload_url: str
    """Followed by ``{?name,label}``."""


_T = TypeVar("_T")
_Value = TypeVar("_Value", bound=FrozenModel)


class Releases:
    """The releases of one repository. Everything raises `PublishError` for what GitHub refuses or does not do."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._home = f"{client.url}/releases"
        self._hashed: dict[int, str] = {}

    def list_releases(self) -> tuple[Release, ...]:
        """Every release; drafts only if the token may write contents."""
        return tuple(_read(Release, found) for found in self.client.list_entries(self._home))

    def find_published(self, tag: str) -> Release | None:
        """The published release of a tag."""
        return _unless_gone(lambda: _read(Release, self.client.get(f"{self._home}/tags/{tag}")))

    def list_assets(self, release: Release) -> dict[str, StoredAsset]:
        """All assets of a release by name, those that are half there too."""
        found = (_read(StoredAsset, entry) for entry in self.client.list_entries(f"{release.url}/assets"))
        return {asset.name: asset for asset in found}

    def has_digest(self, stored: StoredAsset, sha256: str) -> bool:
        """Whether an asset is whole and has this sha256; one without a digest is downloaded to be hashed."""
        if stored.state != "uploaded":
            return False
        if stored.digest is not None:
            return stored.digest == f"sha256:{sha256}"
        if stored.id not in self._hashed:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder, "asset")
                self.client.download(stored.url, path)
                self._hashed[stored.id] = file_sha256(path)
        return self._hashed[stored.id] == sha256

    def download(self, stored: StoredAsset, path: Path) -> None:
        """The content of an asset into a file. Raises `PublishError` if it does not have the asset's digest."""
        self.client.download(stored.url, path)
        if stored.digest not in (None, f"sha256:{file_sha256(path)}"):
            raise PublishError("damaged on the way", stored.name, "run the same command again")

    def create(self, tag: str, *, prerelease: bool = False) -> Release:
        """A new draft. If the answer is lost and a draft of that tag is there, that is it."""
        body = {"tag_name": tag, "name": tag, "draft": True, "prerelease": prerelease}
        return self.client.retry(
            lambda: _read(Release, self._send(ApiCall("POST", self._home, body))),
            lambda: next((one for one in self.list_releases() if one.draft and one.tag_name == tag), None),
        )

    def rename(self, draft: Release, tag: str) -> Release:
        """Give a draft another tag."""
        return self._edit(draft, {"tag_name": tag, "name": tag}, lambda found: found.tag_name == tag)

    def publish(self, draft: Release, notes: str, *, latest: bool) -> Release:
        """Publish a draft with a text; `latest` makes it the one that the repository shows first."""
        body = {"tag_name": draft.tag_name, "draft": False, "body": notes, "make_latest": str(latest).lower()}
        published = self._edit(draft, body, lambda found: not found.draft)
        if published.draft or published.tag_name != draft.tag_name:
            found = f"{draft.tag_name} is {'a draft' if published.draft else published.tag_name}"
            raise PublishError("GitHub did not publish as it was asked", found, "look at the release on GitHub")
        return published

    def _edit(self, release: Release, body: dict[str, object], done: Callable[[Release], bool]) -> Release:
        def look() -> Release | None:
            found = self._look(release)
            return found if done(found) else None

        call = ApiCall("PATCH", release.url, body)
        return self.client.retry(lambda: _read(Release, self._send(call)), look)

    def upload(self, draft: Release, asset: Asset, part: ProgressPart) -> StoredAsset:
        """Send an asset, once; raises `RetryableError` if that must be looked after."""
        address = draft.upload_url.partition("{")[0]
        return _read(StoredAsset, self._send(ApiCall("POST", address, file=asset), part))

    def delete_asset(self, stored: StoredAsset) -> None:
        """Delete an asset of a draft; one that is gone is no error."""
        self._delete(stored.url)

    def delete_draft(self, draft: Release) -> None:
        """Delete a draft; one that is gone is no error, one that was published meanwhile is a `PublishError`."""
        now = _unless_gone(lambda: self._look(draft))
        if now is None:
            return
        if not now.draft:
            raise PublishError("published meanwhile", now.tag_name, "run the same command again")
        self._delete(draft.url)

    def _look(self, release: Release) -> Release:
        return _read(Release, self.client.get(release.url))

    def _delete(self, url: str) -> None:
        def attempt() -> bool:
            _unless_gone(lambda: self._send(ApiCall("DELETE", url)))
            return True

        self.client.retry(attempt, lambda: None)

    def _send(self, call: ApiCall, part: ProgressPart = ignore_progress) -> Any:
        return self.client.send(call, part)


def _unless_gone(call: Callable[[], _T]) -> _T | None:
    """What a call gives; None if GitHub does not have what it is about."""
    try:
        return call()
    except RefusedError as refused:
        if refused.status == requests.codes.not_found:
            return None
        raise


def _read(kind: type[_Value], found: object) -> _Value:
    return parse_model(kind, found, PublishError("not what GitHub answers", kind.__name__, "check GITHUB_API_URL"))
