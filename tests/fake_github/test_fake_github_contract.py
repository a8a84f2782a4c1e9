"""The fake GitHub finds violations of GitHub's description in requests and in its own responses."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import requests

from fake_github import TOKEN, FakeGitHub, running_github
from fake_github.contract import API, UPLOADS, Contract
from fake_github.repository import OWNER_REPO, FakeRelease, Repository

RELEASES = f"/repos/{OWNER_REPO}/releases"
JSON, BYTES = "application/json", "application/octet-stream"


@pytest.fixture(scope="module")
def contract() -> Contract:
    return Contract()


def test_requests_are_validated_against_the_description(contract: Contract) -> None:
    upload, named = f"{RELEASES}/1/assets", {"name": "a"}
    requests: list[tuple[str, str, str, dict[str, str], object, str, bool]] = [
        (API, "POST", RELEASES, {}, {"tag_name": "v1", "draft": True}, JSON, True),
        (API, "POST", RELEASES, {}, {"draft": True}, JSON, False),  # without a tag
        (API, "PATCH", f"{RELEASES}/1", {}, {"make_latest": "never"}, JSON, False),  # not in the list
        (API, "GET", f"/repos/{OWNER_REPO}/relases", {}, None, "", False),  # misspelt
        (UPLOADS, "POST", upload, named, "x", BYTES, True),
        (UPLOADS, "POST", upload, {}, "x", BYTES, False),  # without a name
        (API, "POST", upload, named, "x", BYTES, False),  # to the API
    ]
    for host, method, path, query, body, kind, allowed in requests:
        data = b"" if body is None else json.dumps(body).encode()
        assert (contract.request(method, host, path, query, data, kind) is None) is allowed


def test_responses_are_validated_against_the_description(contract: Contract) -> None:
    repository = Repository(API, UPLOADS, "https://github.com")
    release: FakeRelease = repository.create({"tag_name": "v1", "draft": True})
    asset = repository.asset_json(release, repository.upload(release.id, "a.whl", 1, "0" * 64, b"a"))
    # starter is only in the prose
    for state, allowed in ((asset["state"], True), ("starter", True), ("broken", False)):
        found = contract.answer("GET", API, f"{RELEASES}/1/assets", 200, [{**asset, "state": state}])
        assert (found is None) is allowed


@pytest.fixture
def github() -> Iterator[FakeGitHub]:
    with running_github() as running:
        yield running


def test_violations_are_remembered(github: FakeGitHub) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}", "X-GitHub-Api-Version": "2022-11-28"}
    for method, address in (("GET", f"{github.repository.api}{RELEASES}/1/x"), ("GET", f"{github.storage}/1")):
        requests.request(method, address, headers=headers, timeout=60).close()
    assert [line.split(":")[0] for line in github.violations] == [f"GET {RELEASES}/1/x", "unknown", "GET /1"]


def test_a_plus_that_was_not_encoded_is_a_blank_and_so_a_dot(github: FakeGitHub) -> None:
    release = github.repository.create({"tag_name": "v1", "draft": True})
    headers = {"Authorization": f"Bearer {TOKEN}", "X-GitHub-Api-Version": "2022-11-28", "Content-Type": BYTES}
    address = f"{github.repository.uploads}{RELEASES}/{release.id}/assets?name=a+b.whl"
    stored = requests.post(address, data=b"x", headers=headers, timeout=60).json()
    assert stored["name"] == "a.b.whl"
