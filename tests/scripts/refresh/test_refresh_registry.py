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
    assert registry.find_digest("rocm/pytorch", "gone") is None
    assert registry.find_digest("rocm/absent", "one") is None


def test_a_digest_that_is_not_told_is_that_of_the_bytes(hub: ContainerRegistry) -> None:
    digest = hub.add(IMAGE)
    hub.head_tells_digest = False
    assert Registry(hub.url).find_digest("rocm/pytorch", "one") == digest


def test_a_manifest_that_does_not_match_its_digest_is_refused(hub: ContainerRegistry) -> None:
    hub.add(IMAGE)
    hub.head_tells_digest, hub.stated_digest = False, digest_of(b"something else")
    with pytest.raises(FactoryError, match="the manifest does not match its digest: rocm/pytorch:one is sha256:"):
        Registry(hub.url).find_digest("rocm/pytorch", "one")


def test_a_digest_of_another_form_is_refused(hub: ContainerRegistry) -> None:
    hub.add(IMAGE)
    hub.stated_digest = "md5:abc"
    with pytest.raises(FactoryError, match="not a sha256 digest: 'md5:abc' for rocm/pytorch:one"):
        Registry(hub.url).find_digest("rocm/pytorch", "one")


def test_a_missing_repository_is_an_error(hub: ContainerRegistry) -> None:
    with pytest.raises(FactoryError, match="the registry does not have: rocm/absent"):
        Registry(hub.url).list_tags("rocm/absent")


def test_a_long_pause_is_an_error_at_once(hub: ContainerRegistry) -> None:
    hub.faults["HEAD "] = [(429, {"Retry-After": "21600"})]
    with pytest.raises(FactoryError, match=r"the registry is busy: .* asks for a pause of more than 60 s") as caught:
        Registry(hub.url).find_digest("rocm/pytorch", "one")
    assert "later" in caught.value.hint
    assert hub.counts("HEAD") == 1


def test_a_truncated_response_is_an_error(hub: ContainerRegistry) -> None:
    hub.add(IMAGE)
    hub.faults["tags/list"] = [(0, {})]
    with pytest.raises(FactoryError, match=r"cannot reach the registry: .*tags/list"):
        Registry(hub.url).list_tags("rocm/pytorch")


def test_an_unreachable_registry_is_an_error() -> None:
    for url in ("http://127.0.0.1:9", "", "hub", "ftp://hub", "http://"):
        with pytest.raises(FactoryError, match="cannot reach the registry: ") as caught:
            Registry(url).list_tags("rocm/pytorch")
        assert caught.value.hint == "check the network; nothing was changed"


def test_an_unexpected_response_is_refused(hub: ContainerRegistry) -> None:
    for part, body, error in (
        ("tags/list", b"<html>a portal</html>", "unexpected response of a registry"),
        ("tags/list", b'["tags"]', "unexpected response of a registry"),
        ("tags/list", b"[" * 100_000, "unexpected response of a registry"),
        ("tags/list", b'{"tags": "one"}', "unexpected response of a registry: rocm/pytorch: tags: "),
        ("tags/list", b'{"tags": [1]}', r"unexpected response of a registry: rocm/pytorch: tags\.0: "),
        ("/token", b"{}", "the registry issued no token"),
        ("/token", b'{"token": 7}', "the registry issued no token: .*: token: Input should be a valid string"),
    ):
        hub.add(IMAGE)
        hub.bodies.clear()
        hub.bodies[part] = body
        with pytest.raises(FactoryError, match=error):
            Registry(hub.url).list_tags("rocm/pytorch")


def test_an_error_status_is_not_an_empty_list(hub: ContainerRegistry) -> None:
    for status in (403, 500, 502):
        hub.faults["tags/list"] = [(status, {})] * 9
        with pytest.raises(FactoryError, match=f"{status}"):
            Registry(hub.url).list_tags("rocm/pytorch")


def test_a_registry_that_requires_a_login_is_refused(hub: ContainerRegistry) -> None:
    for challenge in ('Basic realm="hub"', "Bearer", "Bearer service=hub", "?"):
        hub.challenge = challenge
        with pytest.raises(FactoryError, match="the registry requires a login: rocm/pytorch"):
            Registry(hub.url).list_tags("rocm/pytorch")


def test_a_rejected_token_is_not_fetched_again(hub: ContainerRegistry) -> None:
    hub.bodies["/token"] = b'{"access_token": "useless"}'
    with pytest.raises(FactoryError, match="HTTP 401"):
        Registry(hub.url).list_tags("rocm/pytorch")
    assert hub.counts("/token") == 1


def test_a_list_must_not_continue_on_another_host(hub: ContainerRegistry) -> None:
    hub.add(IMAGE)
    hub.next_link = "<http://127.0.0.1:9/v2/rocm/pytorch/tags/list>"
    with pytest.raises(FactoryError, match=r"continues on another host: rocm/pytorch: http://127.0.0.1:9/"):
        Registry(hub.url).list_tags("rocm/pytorch")


def test_an_endless_list_is_an_error(hub: ContainerRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_PAGES", 3)
    hub.add(IMAGE)
    hub.next_link = "</v2/rocm/pytorch/tags/list?n=1000>"
    with pytest.raises(FactoryError, match="the list of tags is endless"):
        Registry(hub.url).list_tags("rocm/pytorch")
    assert hub.counts("tags/list") == 1 + 3
