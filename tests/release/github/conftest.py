"""A GitHub on loopback, publishers that talk to it, and what must be there in the end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sigstore.verify import Verifier

from fake_github import TOKEN, FakeGitHub, running_github
from fake_github.hub import Hub
from fake_github.outcome import Added
from fake_github.repository import OWNER_REPO
from fake_sigstore import FakeSigstore
from release_factory import additions, flash_attn_wheel, stub_wheel
from wheelfactory.release.github.client import Client
from wheelfactory.release.github.releases import Releases

CELL = "fa2.8.3-rocm6.4-torch2.9.1-py3-triton"
OTHER_CELL = "fa2.8.3-rocm7.2-torch2.9.1-py3-triton"


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spare each request the search of all variables for a proxy."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture(scope="session")
def _github() -> Iterator[FakeGitHub]:
    with running_github() as running:
        yield running


@pytest.fixture
def github(_github: FakeGitHub) -> Iterator[FakeGitHub]:
    """A GitHub with an empty repository; the test fails if a call or an answer is against GitHub's description."""
    _github.violations.clear()
    yield _github.fresh()
    assert _github.violations == []


@pytest.fixture
def _environ(github: FakeGitHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands talk to this GitHub."""
    for name, value in github.environ().items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def client(github: FakeGitHub) -> Client:
    return Client(github.repository.api, OWNER_REPO, TOKEN, clock=github.clock, sleep=github.clock.sleep)


@pytest.fixture
def releases(client: Client) -> Releases:
    return Releases(client)


@pytest.fixture(scope="session")
def sigstore() -> FakeSigstore:
    return FakeSigstore()


@pytest.fixture
def _trusted(sigstore: FakeSigstore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trust this Sigstore in place of the public one."""
    verifier = sigstore.verifier(tmp_path)
    monkeypatch.setattr(Verifier, "production", lambda offline: verifier)


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    return flash_attn_wheel(tmp_path / "made", CELL)


@pytest.fixture
def added(tmp_path: Path, wheel: Path) -> Added:
    """Two flash-attn wheels and their dependency, with their rows."""
    made = tmp_path / "made"
    return additions([wheel, stub_wheel(made, "einops", "0.8.2"), flash_attn_wheel(made, OTHER_CELL)])


@pytest.fixture
def hub(github: FakeGitHub, added: Added) -> Hub:
    return Hub(github, added)
