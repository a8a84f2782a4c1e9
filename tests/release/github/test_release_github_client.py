"""One call to GitHub: pages, rate limits, pauses, refusals with a hint, and the hosts that must not see the token."""

from __future__ import annotations

import logging
import socket
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
import requests

from fake_github import TOKEN, Clock, FakeGitHub
from fake_github.answering import RESET_S
from fake_github.repository import OWNER_REPO
from loopback import Handler, answering
from wheelfactory.commands.ci.kernels import read_seals
from wheelfactory.core.errors import FactoryError, InputError, PublishError
from wheelfactory.core.files import file_sha256
from wheelfactory.release.github import client as client_module
from wheelfactory.release.github.client import ApiCall, Client
from wheelfactory.release.github.releases import Release, Releases
from wheelfactory.release.github.responses import RetryableError, check_response, find_retry_delay, is_rate_limit
from wheelfactory.release.transaction import Asset

NOW = 1000.0


def client_with(github: FakeGitHub, token: str | None) -> Client:
    return Client(github.repository.api, OWNER_REPO, token, clock=github.clock, sleep=github.clock.sleep)


def test_every_page_of_a_list_is_read_but_none_at_another_host(github: FakeGitHub, releases: Releases) -> None:
    tags = [f"v{number}" for number in range(7)]
    for tag in tags:
        github.repository.create({"tag_name": tag, "draft": True})
    github.per_page = 3
    assert [release.tag_name for release in releases.list_releases()] == tags[::-1]
    assert len(github.calls) == 3
    own = github.repository.api
    github.before = lambda _: setattr(github.repository, "api", "http://127.0.0.2:1")
    try:
        with pytest.raises(PublishError, match="continues on another host"):
            releases.list_releases()
    finally:
        github.repository.api = own


def test_the_delay_of_a_rate_limit_is_read() -> None:
    cases: list[tuple[dict[str, str], float | None]] = [
        ({"Retry-After": "7"}, 7.0),  # the given pause
        ({"Retry-After": "7", "x-ratelimit-remaining": "0"}, 7.0),  # Retry-After goes first
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1060"}, 61.0),  # until the reset
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "900"}, 1.0),  # a reset just past
        ({"x-ratelimit-remaining": "9", "x-ratelimit-reset": "1060"}, None),  # some calls are left
        ({"x-ratelimit-remaining": "0"}, None),  # no reset time
        ({"Retry-After": "soon"}, None),  # not a number
    ]
    for headers, pause in cases:
        assert find_retry_delay(headers, NOW) == pause


def test_rate_limits_are_recognized() -> None:
    cases: list[tuple[int, dict[str, str], str, bool]] = [
        (403, {"Retry-After": "7"}, "", True),  # with a pause
        (403, {"x-ratelimit-remaining": "0"}, "", True),  # no request remains
        (403, {}, "You have exceeded a secondary rate limit", True),  # only in the text
        (429, {}, "", True),  # 429 alone
        (403, {"x-ratelimit-remaining": "12"}, "Resource not accessible", False),  # no rights
        (422, {"Retry-After": "7"}, "", False),  # another refusal
    ]
    for status, headers, message, limited in cases:
        assert is_rate_limit(status, headers, message) is limited


class Silent(Client):
    """A client that gets the same response for every call."""

    def __init__(self, clock: Clock, error: RetryableError) -> None:
        super().__init__("http://127.0.0.1:1", OWNER_REPO, TOKEN, clock=clock, sleep=clock.sleep)
        self._trouble = error

    def attempt(self) -> bool:
        raise self._trouble


def test_delays_of_a_rate_limit_without_headers_start_at_a_minute_and_all_together_are_bounded() -> None:
    limited = requests.Response()
    limited.status_code, limited._content = 429, b""
    with pytest.raises(RetryableError) as found:
        check_response(limited, "POST x", NOW)
    for error, message, pauses in (
        (found.value, "does not respond: POST x: HTTP 429, rate limit", [60, 120, 240, 480, 960, 1920, 3840]),
        (RetryableError("rate limit", 3600.0), "asks to wait 3600 s", [3600, 3600, 3600]),
    ):
        clock = Clock()
        silent = Silent(clock, error)
        with pytest.raises(PublishError, match=message):
            silent.retry(silent.attempt, lambda: None)
        assert clock.pauses == pauses


def test_a_change_that_github_made_before_its_response_was_lost_is_not_repeated() -> None:
    clock = Clock()
    silent = Silent(clock, RetryableError("cut"))
    assert silent.retry(silent.attempt, lambda: True)
    assert clock.pauses == [1]


def test_nothing_goes_without_tls_to_or_from_an_api_that_has_it(tmp_path: Path) -> None:
    client = Client("https://api.example", OWNER_REPO, TOKEN, sleep=Clock().sleep)
    upload = ApiCall("POST", "http://127.0.0.1:1/assets", file=Asset("a.whl", "", b""))
    for call in (
        lambda: client.send(upload),
        lambda: client.download("", tmp_path / "a.whl", "http://127.0.0.1:1/a.whl"),
    ):
        with pytest.raises(PublishError, match="address without TLS"):
            call()


def test_an_exhausted_rate_limit_is_waited_for(
    github: FakeGitHub, releases: Releases, caplog: pytest.LogCaptureFixture
) -> None:
    github.left, github.reset = 0, github.clock.now + RESET_S
    with caplog.at_level(logging.INFO, "wheelfactory"):
        releases.create("v1")
    assert github.clock.pauses == [RESET_S + 1]
    assert [release.tag for release in github.repository.drafts()] == ["v1"]
    (warning,) = caplog.messages
    assert "API rate limit exceeded; waiting 1801 s" in warning
    assert TOKEN not in warning


def test_a_silent_server_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_TIMEOUTS_S", (0.05, 0.05))
    clock = Clock()
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        address = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        with pytest.raises(PublishError, match=r"GitHub does not respond.*[Tt]imed? ?out"):
            Releases(Client(address, OWNER_REPO, TOKEN, clock=clock, sleep=clock.sleep)).list_releases()
    assert len(clock.pauses) == 7


@pytest.mark.parametrize(
    "body",
    [b"{}", b"null", b'{"jobs": [{}]}', b'{"a": 5}', b"[null]", b"[" * 100_000, b"1" * 9_000, b"<html>", b'"\\ud800"'],
    ids=len,
)
@pytest.mark.parametrize("status", [200, 403])
def test_an_answer_of_something_else_is_an_error_and_not_an_empty_list(body: bytes, status: int) -> None:
    clock = Clock()
    with answering(Handler, serve=lambda handler: handler.answer(status, body)) as address:
        releases = Releases(Client(address, OWNER_REPO, TOKEN, clock=clock, sleep=clock.sleep), "c" * 40)
        calls: tuple[Callable[[], object], ...] = (
            *(releases.list_releases, lambda: releases.require_unmoved("v1"), lambda: releases.create("v1")),
            lambda: read_seals(releases.client, 7),
        )
        for call in calls:
            with pytest.raises(PublishError):
                call()


@pytest.mark.parametrize(
    ("token", "rights", "error", "hint"),
    [
        (None, "write", "no token: GITHUB_TOKEN is not set", "contents: write"),
        (" \n", "write", "no token: GITHUB_TOKEN is not set", "contents: write"),
        ("ghs_old", "write", "GitHub does not accept the token: ", "to a valid token"),
        (TOKEN, "read", "the token lacks a permission: ", "contents: write"),
    ],
)
def test_a_token_that_will_not_do_is_an_error_with_the_next_step(
    github: FakeGitHub, token: str | None, rights: str, error: str, hint: str
) -> None:
    github.rights = rights
    with pytest.raises(PublishError) as refused:
        Releases(client_with(github, token)).create("v1")
    assert str(refused.value).startswith(error)
    assert hint in refused.value.hint
    assert github.clock.pauses == []
    assert_no_token(refused.value, token)


def test_a_refused_read_without_a_token_asks_for_one() -> None:
    refused_read = answering(Handler, serve=lambda handler: handler.answer(403, b"{}"))
    with refused_read as address, pytest.raises(PublishError, match="refuses a request without a token") as refused:
        Releases(Client(address, OWNER_REPO, None)).list_releases()
    assert "set GITHUB_TOKEN" in refused.value.hint


def assert_no_token(error: FactoryError, token: str | None) -> None:
    """Nowhere in what a person or a log gets to see."""
    texts = [str(error), error.hint, *(str(cause) for cause in (error.__cause__, error.__context__) if cause)]
    assert not any(secret.strip() and secret.strip() in text for secret in (token or "", TOKEN) for text in texts)


def test_a_repository_that_is_missing_or_was_moved_is_an_error(github: FakeGitHub, releases: Releases) -> None:
    client = Client(github.repository.api, "someone/nothing", TOKEN, clock=github.clock, sleep=github.clock.sleep)
    with pytest.raises(PublishError, match=r"not found on GitHub: GET .*/someone/nothing/releases") as refused:
        Releases(client).list_releases()
    assert "check OWNER/REPO" in refused.value.hint
    github.calls.clear()
    github.moved = True
    for call in (releases.list_releases, lambda: releases.create("v1")):
        with pytest.raises(PublishError, match="GitHub redirects the request") as refused:
            call()
        assert "use its new name" in refused.value.hint
    assert len(github.calls) == 2


def test_an_invalid_token_is_refused_without_showing_it_and_a_valid_one_sent_over_tls_alone(github: FakeGitHub) -> None:
    for token in (f"{TOKEN}\nother", f"{TOKEN} other", f"{TOKEN}\u00e9"):
        with pytest.raises(InputError, match="not a token") as refused:
            client_with(github, token)
        assert_no_token(refused.value, token)
    with pytest.raises(InputError, match=r"the API address is not secure: http://api.github.com"):
        Client("http://api.github.com", OWNER_REPO, TOKEN)


def test_a_password_of_netrc_is_not_sent(github: FakeGitHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login someone password wrong\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    assert Releases(client_with(github, None)).list_releases() == ()
    Releases(client_with(github, TOKEN)).create("v1")
    assert len(github.repository.drafts()) == 1


def test_a_download_follows_to_another_host_without_the_token_and_errors_do_not_show_its_key(
    github: FakeGitHub, releases: Releases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = releases.upload(releases.create("v1"), Asset("a.whl", "", b"content"), lambda *_: None).url
    releases.client.download(url, tmp_path / "a")  # the fixture finds a token that went to the other host
    assert (tmp_path / "a").read_bytes() == b"content"
    assert github.calls[-1] == "GET /" + url.rpartition("/")[2]
    with socket.create_server(("127.0.0.1", 0)) as unused:
        closed = f"http://127.0.0.1:{unused.getsockname()[1]}"
    monkeypatch.setattr(github, "storage", closed)
    with pytest.raises(PublishError, match="GitHub does not respond") as refused:
        releases.client.download(url, tmp_path / "a")
    assert "signature" not in f"{refused.value} {refused.value.hint} {refused.value.__cause__}"


def test_a_large_file_is_sent_in_little_memory_and_its_bytes_are_counted(
    github: FakeGitHub, releases: Releases, tmp_path: Path
) -> None:
    path = tmp_path / "large.whl"
    with path.open("wb") as file:
        file.truncate(64 << 20)
    progress: list[tuple[int, int]] = []
    asset = Asset(path.name, file_sha256(path), path)
    draft = releases.create("v1")
    tracemalloc.start()
    try:
        kept = releases.upload(draft, asset, lambda done, total, _="": progress.append((done, total)))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20
    assert (kept.size, kept.digest) == (64 << 20, f"sha256:{asset.sha256}")
    assert progress[-1] == (64 << 20, 64 << 20)
    assert len(progress) > 32


def test_a_first_connection_that_is_refused_is_reported_in_seconds_and_a_later_one_retried_for_longer(
    github: FakeGitHub,
) -> None:
    clock = Clock()
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # bound and not listening
        address = f"http://127.0.0.1:{bound.getsockname()[1]}"
        client = Client(address, OWNER_REPO, None, clock=clock, sleep=clock.sleep)
        with pytest.raises(PublishError, match=f"GitHub is unreachable: {address}/repos/{OWNER_REPO}: ") as error:
            client.get(client.url, Release)
        assert clock.pauses == [1, 2, 4]
        assert str(error.value).endswith("Connection refused (after 4 tries)")
        assert "Max retries" not in str(error.value)
        assert "GITHUB_API_URL" in error.value.hint
        client = client_with(github, TOKEN)
        [*client.list_entries(f"{client.url}/releases", Release)]
        with pytest.raises(PublishError, match=r"GitHub does not respond: .* \(after 8 tries\)") as error:
            client.get(address, Release)
    assert "uploaded files are kept" in error.value.hint
    assert github.clock.pauses == [1, 2, 4, 8, 16, 32, 64]
