"""Requests to a registry, and the error for every way in which a registry fails."""

from __future__ import annotations

import pytest

from container_registry import ContainerRegistry, digest_of
from refresh import registry as module
from refresh.registry import Registry
from wheelfactory.core.errors import FactoryError

IMAGE, OTHER = "rocm/pytorch:one", "rocm/dev-ubuntu-22.04:two"


def test_a_list_of_tags_is_read_to_its_last_page(hub: ContainerRegistry) -> None:
    tags = [f"tag{number:02}" for number in range(11)]
    for tag in tags:
        hub.add(f"rocm/pytorch:{tag}")
    hub.page = 3
    assert Registry(hub.url).list_tags("rocm/pytorch") == tags
    assert hub.counts("tags/list") == 1 + 4, "one more for the challenge"


def test_a_token_is_fetched_once_for_each_repository(hub: ContainerRegistry) -> None:
    hub.add(IMAGE), hub.add(OTHER)
    registry = Registry(hub.url + "/")
    for _ in range(3):
        registry.list_tags("rocm/pytorch"), registry.list_tags("rocm/dev-ubuntu-22.04")
    assert hub.counts("/token?") == 2


def test_a_token_that_expired_is_replaced(hub: ContainerRegistry) -> None:
    digest = hub.add(IMAGE)
    registry = Registry(hub.url)
    registry.list_tags("rocm/pytorch")
    hub.issue += 1
    assert registry.find_digest("rocm/pytorch", "one") == digest
    assert hub.counts("/token?") == 2


def test_a_digest_costs_no_pull_and_a_missing_tag_has_none(hub: ContainerRegistry) -> None:
    digest, registry = hub.add(IMAGE), Registry(hub.url)
    assert registry.find_digest("rocm/pytorch", "one") == digest
    assert hub.counts("GET /v2/") == 0
    assert registry.find_digest("rocm/pytorch", "gone") is registry.find_digest("rocm/absent", "one") is None
    hub.head_tells_digest = False
    assert registry.find_digest("rocm/pytorch", "one") == digest, "that of the bytes, if it is not told"


@pytest.mark.parametrize(
    ("stated", "tells", "error"),
    [
        (digest_of(b"something else"), False, "the manifest does not match its digest: rocm/pytorch:one is sha256:"),
        ("md5:abc", True, "not a sha256 digest: 'md5:abc' for rocm/pytorch:one"),
    ],
)
def test_a_wrong_digest_is_refused(hub: ContainerRegistry, stated: str, tells: bool, error: str) -> None:
    hub.add(IMAGE)
    hub.head_tells_digest, hub.stated_digest = tells, stated
    with pytest.raises(FactoryError, match=error):
        Registry(hub.url).find_digest("rocm/pytorch", "one")


@pytest.mark.parametrize(
    ("setting", "value", "error"),
    [
        ("images", {}, "the registry does not have: rocm/pytorch"),
        ("faults", {"tags/list": [(0, {})]}, r"cannot reach the registry: .*tags/list"),  # truncated
        *(("faults", {"tags/list": [(status, {})] * 9}, f"{status}") for status in (403, 500, 502)),
        ("challenge", 'Basic realm="hub"', "the registry requires a login: rocm/pytorch"),
        ("challenge", "Bearer", "the registry requires a login: rocm/pytorch"),
        ("challenge", "Bearer service=hub", "the registry requires a login: rocm/pytorch"),
        ("challenge", "?", "the registry requires a login: rocm/pytorch"),
        ("bodies", {"/token": b'{"access_token": "useless"}'}, "HTTP 401"),
        ("bodies", {"/token": b"{}"}, "the registry issued no token"),
        ("bodies", {"/token": b'{"token": 7}'}, "issued no token: .*: token: Input should be a valid string"),
        ("bodies", {"tags/list": b"<html>a portal</html>"}, "unexpected response of a registry"),
        ("bodies", {"tags/list": b'["tags"]'}, "unexpected response of a registry"),
        ("bodies", {"tags/list": b"[" * 100_000}, "unexpected response of a registry"),
        ("bodies", {"tags/list": b'{"tags": "one"}'}, "unexpected response of a registry: rocm/pytorch: tags: "),
        ("bodies", {"tags/list": b'{"tags": [1]}'}, r"unexpected response of a registry: rocm/pytorch: tags\.0: "),
        ("next_link", "<http://127.0.0.1:9/v2/x/tags/list>", "continues on another host: rocm/pytorch: http://127.0"),
        ("next_link", "<http://[>", r"continues on another host: rocm/pytorch: http://\["),
        ("challenge", 'Bearer realm="http://["', r"cannot reach the registry: http://\["),
        ("next_link", "</v2/rocm/pytorch/tags/list?n=1000>", "the list of tags is endless"),
    ],
)
def test_a_list_that_cannot_be_read_is_an_error_and_not_empty(
    hub: ContainerRegistry, monkeypatch: pytest.MonkeyPatch, setting: str, value: object, error: str
) -> None:
    monkeypatch.setattr(module, "_MAX_PAGES", 3)
    hub.add(IMAGE)
    setattr(hub, setting, value)
    with pytest.raises(FactoryError, match=error):
        Registry(hub.url).list_tags("rocm/pytorch")
    assert hub.counts("/token") <= 1, "a rejected token is not fetched again"
    assert hub.counts("tags/list") <= 4


@pytest.mark.parametrize("page", [b"<html>a portal</html>", b"{}", b"[" * 100_000])
def test_a_page_without_a_digest_that_is_no_manifest_has_none(hub: ContainerRegistry, page: bytes) -> None:
    hub.add(IMAGE)
    hub.bodies = {"/manifests/": page}
    with pytest.raises(FactoryError, match="not a manifest of an image: rocm/pytorch:one: "):
        Registry(hub.url).find_digest("rocm/pytorch", "one")


def test_a_long_pause_is_an_error_at_once(hub: ContainerRegistry) -> None:
    hub.faults["HEAD "] = [(429, {"Retry-After": "21600"})]
    with pytest.raises(FactoryError, match=r"the registry is busy: .* asks for a pause of more than 60 s") as caught:
        Registry(hub.url).find_digest("rocm/pytorch", "one")
    assert "later" in caught.value.hint
    assert hub.counts("HEAD") == 1


def test_an_unreachable_registry_is_an_error() -> None:
    for url in ("http://127.0.0.1:9", "", "hub", "ftp://hub", "http://"):
        with pytest.raises(FactoryError, match="cannot reach the registry: ") as caught:
            Registry(url).list_tags("rocm/pytorch")
        assert caught.value.hint == "check the network; nothing was changed"
