"""A publish that changes nothing: show each request that would change something, and simulate its result."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path
from typing import Any

from wheelfactory.core.progress import ProgressCallback, ignore_progress
from wheelfactory.release.github.client import ApiCall, Client
from wheelfactory.release.github.releases import Release, Releases, StoredAsset
from wheelfactory.release.transaction import Asset


class DryRunReleases(Releases):
    """Releases read from GitHub once and changed only in memory."""

    def __init__(self, client: Client, show: Callable[[str], None], commit: str | None = None) -> None:
        """`show` receives each request as one line of text."""
        super().__init__(client, commit)
        self._show = show
        self._stored: dict[str, dict[str, StoredAsset]] = {}
        self._contents: dict[str, Path | bytes] = {}
        self._created = 0

    def list_releases(self) -> tuple[Release, ...]:
        """See `Releases.list_releases`."""
        return tuple(self._known.values())

    def list_assets(self, release: Release) -> dict[str, StoredAsset]:
        """See `Releases.list_assets`."""
        if release.url not in self._stored:
            self._stored[release.url] = super().list_assets(release)
        return dict(self._stored[release.url])

    def download(self, stored: StoredAsset, path: Path) -> None:
        """See `Releases.download`."""
        content = self._contents.get(stored.url)
        if content is None:
            super().download(stored, path)
        else:
            path.write_bytes(content if isinstance(content, bytes) else content.read_bytes())

    @cached_property
    def _known(self) -> dict[str, Release]:
        """The releases by API address."""
        # without assets, which `list_assets` keeps up to date
        return {release.url: release.model_copy(update={"assets": ()}) for release in super().list_releases()}

    def _get(self, release: Release) -> Release:
        return self._known[release.url]

    def _send(self, call: ApiCall, _report_progress: ProgressCallback = ignore_progress) -> Any:
        self._show(str(call))
        if call.file is not None:
            return self._upload(call, call.file)
        if call.method == "DELETE":
            self._known.pop(call.url, None)
            for assets in self._stored.values():
                for name in [name for name, stored in assets.items() if stored.url == call.url]:
                    del assets[name]
            return None
        return self._release(call)

    def _release(self, call: ApiCall) -> dict[str, Any]:
        """GitHub's response to a created or edited release, with placeholders for a new one's id and host."""
        if call.method == "POST":
            self._created += 1
            url = f"{call.url}/NEW{self._created}"
            found: dict[str, Any] = {"id": -self._created, "url": url, "upload_url": f"{url}/assets{{?name,label}}"}
            self._stored[url] = {}
        else:
            found = self._known[call.url].model_dump()
        # as published and immutable, so that no warning about either appears
        known = {"published_at": datetime.now(timezone.utc), "immutable": True}
        release = Release.model_validate({**found, **(call.body or {}), **known})
        self._known[release.url] = release
        return release.model_dump()

    def _upload(self, call: ApiCall, asset: Asset) -> dict[str, Any]:
        """GitHub's response to an upload."""
        self._created += 1
        home = next(one.url for one in self.list_releases() if one.upload_url.partition("{")[0] == call.url)
        url = f"{home.rpartition('/')[0]}/assets/NEW{self._created}"
        self._contents[url] = asset.content
        stored = StoredAsset(
            id=-self._created,
            name=asset.name,
            size=asset.size,
            state="uploaded",
            digest=f"sha256:{Asset.from_content(asset.name, asset.content).sha256}",
            url=url,
            browser_download_url=url,
        )
        self._stored.setdefault(home, {})[asset.name] = stored
        return stored.model_dump()
