"""Releases, drafts and assets by GitHub's rules, in memory. Large contents are kept only as digests."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any
from urllib.parse import quote

OWNER_REPO = "someone/wheels"
_FIRST = datetime(2026, 11, 1, tzinfo=timezone.utc)
_LINKS = (
    *("avatar", "html", "followers", "following", "gists", "starred", "subscriptions", "organizations", "repos"),
    *("events", "received_events"),
)
_USER: dict[str, Any] = {
    **{f"{name}_url": "https://github.com/someone" for name in _LINKS},
    "url": "https://github.com/someone",
    "login": "someone",
    "id": 1,
    "node_id": "u",
    "gravatar_id": "",
    "type": "User",
    "site_admin": False,
}


class RuleError(Exception):
    """GitHub would respond with this status and message."""

    def __init__(self, status: int, message: str, code: str = "", which: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.body: dict[str, Any] = {"message": message, "documentation_url": "https://docs.github.com/rest"}
        if code:
            self.body["errors"] = [{"resource": which, "code": code, "field": "name"}]


def sanitized(name: str) -> str:
    """The name that GitHub gives an asset: special characters become dots (its documentation of uploads)."""
    return re.sub(r"[^A-Za-z0-9._+@-]", ".", name)


@dataclass
class FakeAsset:
    """One asset; `content` is None if it is too large to keep."""

    id: int
    name: str
    size: int
    sha256: str | None
    content: bytes | None
    state: str = "uploaded"


@dataclass
class FakeRelease:
    """One release, a draft until `published_at` is set."""

    id: int
    tag: str
    name: str | None
    prerelease: bool
    target: str = "main"
    """The commit or branch that a new tag is created at."""
    body: str | None = None
    published_at: datetime | None = None
    latest: bool = False
    was_latest: bool = False
    assets: dict[int, FakeAsset] = field(default_factory=dict)

    @property
    def draft(self) -> bool:
        """Whether other users cannot see it."""
        return self.published_at is None

    def files(self) -> dict[str, str | None]:
        """The sha256 of each complete asset; None for an incomplete one."""
        return {asset.name: asset.sha256 if asset.state == "uploaded" else None for asset in self.assets.values()}


@dataclass
class Repository:
    """Releases by id. The server sets the addresses of its three hosts."""

    api: str = ""
    uploads: str = ""
    web: str = ""
    immutable: bool = True
    is_private: bool = False
    with_digests: bool = True
    a_second: int = 2
    """Whether all releases get the same publish second, so that only the id shows the order."""
    releases: dict[int, FakeRelease] = field(default_factory=dict)
    runs: dict[int, dict[str, Any]] = field(default_factory=dict)
    """The API's JSON of each workflow run."""
    settings: dict[str, Any] = field(default_factory=dict)
    """The API's JSON of each setting, by its path below the repository."""
    jobs: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    """The API's JSON of the jobs of each run."""
    burned: set[str] = field(default_factory=set)
    """Tags of deleted immutable releases, which cannot be reused."""
    default_branch: str = "main"
    tags: dict[str, str] = field(default_factory=dict)
    """The commit of each tag that somebody pushed."""
    protected: set[str] = field(default_factory=set)
    """Commits whose workflow files differ from the default branch: tagging them needs the permission `workflows`."""
    _ids: int = 0

    def published(self) -> list[FakeRelease]:
        """The published releases in order of publishing."""
        found = [release for release in self.releases.values() if not release.draft]
        return sorted(found, key=lambda release: (str(release.published_at), release.id))

    def drafts(self) -> list[FakeRelease]:
        return [release for release in self.releases.values() if release.draft]

    def create(self, asked: dict[str, Any]) -> FakeRelease:
        self._require_free(asked["tag_name"])
        target = self._target(asked, self.default_branch)
        release = FakeRelease(
            self._next(), asked["tag_name"], asked.get("name"), asked.get("prerelease", False), target
        )
        self.releases[release.id] = release
        if not asked.get("draft", False):
            self._publish(release, asked)
        return release

    def edit(self, number: int, asked: dict[str, Any]) -> FakeRelease:
        release = self.release(number)
        tag = asked.get("tag_name", release.tag)
        if tag != release.tag and not release.draft and self.immutable:
            raise RuleError(422, "The tag of an immutable release cannot be changed", "custom", "Release")
        if tag != release.tag or (release.draft and asked.get("draft") is False):
            self._require_free(tag)
        release.tag, release.target = tag, self._target(asked, release.target)
        release.name, release.body = asked.get("name", release.name), asked.get("body", release.body)
        if release.draft and asked.get("draft") is False:
            self._publish(release, asked)
        return release

    def _publish(self, release: FakeRelease, asked: dict[str, Any]) -> None:
        release.published_at = _FIRST + timedelta(seconds=len(self.published()) // self.a_second)
        if asked.get("make_latest", "true") == "true" and not release.prerelease:
            for other in self.releases.values():
                other.latest = other is release
            release.was_latest = True

    def _target(self, asked: dict[str, Any], held: str) -> str:
        """What a request sets as target; 404 for a commit that the token must not tag (GitHub's documentation)."""
        target = str(asked.get("target_commitish", held))
        if target in self.protected:
            raise RuleError(404, "Not Found")
        return target

    def _require_free(self, tag: str) -> None:
        if tag in self.burned:
            raise RuleError(422, "tag_name was used by an immutable release", "custom", "Release")
        if any(release.tag == tag and not release.draft for release in self.releases.values()):
            raise RuleError(422, "Validation Failed", "already_exists", "Release")

    def delete(self, number: int) -> None:
        """DELETE a release, including a published one."""
        release = self.releases.pop(self.release(number).id)
        if not release.draft and self.immutable:
            self.burned.add(release.tag)

    def release(self, number: int) -> FakeRelease:
        if number not in self.releases:
            raise RuleError(404, "Not Found")
        return self.releases[number]

    def upload(self, number: int, name: str, size: int, sha256: str | None, content: bytes | None) -> FakeAsset:
        """POST an asset; without a digest, an empty asset of an interrupted upload."""
        release = self.release(number)
        self._require_open(release)
        stored = sanitized(name)
        if stored in release.files():
            raise RuleError(422, "Validation Failed", "already_exists", "ReleaseAsset")
        if len(release.assets) >= 1000:
            raise RuleError(422, "A release can have up to 1000 assets", "custom", "ReleaseAsset")
        state = "uploaded" if sha256 else "starter"
        asset = FakeAsset(self._next(), stored, size, sha256, content, state)
        release.assets[asset.id] = asset
        return asset

    def asset(self, number: int) -> tuple[FakeRelease, FakeAsset]:
        for release in self.releases.values():
            if number in release.assets:
                return release, release.assets[number]
        raise RuleError(404, "Not Found")

    def remove(self, number: int) -> None:
        release, asset = self.asset(number)
        self._require_open(release)
        del release.assets[asset.id]

    def _require_open(self, release: FakeRelease) -> None:
        if self.immutable and not release.draft:
            raise RuleError(422, "Cannot upload assets to an immutable release.", "custom", "ReleaseAsset")

    def _next(self) -> int:
        self._ids += 1
        return self._ids

    def release_json(self, release: FakeRelease) -> dict[str, Any]:
        url = f"{self.api}/repos/{OWNER_REPO}/releases/{release.id}"
        published = release.published_at
        return {
            "id": release.id,
            "node_id": "r",
            "url": url,
            "html_url": f"{self.web}/{OWNER_REPO}/releases/tag/{_web_tag(release)}",
            "assets_url": f"{url}/assets",
            "upload_url": f"{self.uploads}/repos/{OWNER_REPO}/releases/{release.id}/assets{{?name,label}}",
            "tarball_url": None,
            "zipball_url": None,
            "tag_name": release.tag,
            "target_commitish": release.target,
            "name": release.name,
            "body": release.body,
            "draft": release.draft,
            "prerelease": release.prerelease,
            "immutable": self.immutable and not release.draft,
            "created_at": "2026-11-01T00:00:00Z",
            "published_at": f"{published:%Y-%m-%dT%H:%M:%SZ}" if published else None,
            "author": _USER,
            "assets": [self.asset_json(release, asset) for asset in release.assets.values()],
        }

    def asset_json(self, release: FakeRelease, asset: FakeAsset) -> dict[str, Any]:
        """The API's JSON. The public address of a draft's asset changes when it is published."""
        home = f"{self.web}/{OWNER_REPO}/releases/download"
        return {
            "id": asset.id,
            "node_id": "a",
            "url": f"{self.api}/repos/{OWNER_REPO}/releases/assets/{asset.id}",
            "browser_download_url": f"{home}/{_web_tag(release)}/{quote(asset.name)}",
            "name": asset.name,
            "label": "",
            "state": asset.state,
            "content_type": "application/octet-stream",
            "size": asset.size,
            "digest": f"sha256:{asset.sha256}" if asset.sha256 and self.with_digests else None,
            "download_count": 0,
            "created_at": "2026-11-01T00:00:00Z",
            "updated_at": "2026-11-01T00:00:00Z",
            "uploader": _USER,
        }

    def at(self, web_tag: str, name: str) -> bytes:
        """The content at the public address of a published asset; a private repository has none."""
        for release in self.published():
            for asset in release.assets.values():
                if (release.tag, asset.name) == (web_tag, name) and asset.content is not None and not self.is_private:
                    return asset.content
        raise RuleError(404, "Not Found")


def _web_tag(release: FakeRelease) -> str:
    return f"untagged-{hashlib.sha256(str(release.id).encode()).hexdigest()[:20]}" if release.draft else release.tag
