"""Attestations beside staged wheels: published with them, found there by `verify --from`, and refused if wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from command_line import Cli, CommandResult, run_command
from fake_github import FakeGitHub
from fake_github.outcome import Added, content_of, sums_of
from fake_sigstore import FakeSigstore
from wheelfactory.core.errors import BAD_INPUT, DONE, VERIFICATION_FAILED
from wheelfactory.release.directory import DirectoryPublisher
from wheelfactory.release.github.publisher import GitHubPublisher
from wheelfactory.release.transaction import add_attestation, publish, stage

NewPublisher: TypeAlias = Callable[..., GitHubPublisher]

GITHUB = "github:someone/wheels"


@pytest.fixture
def cli(_environ: None, _trusted: None, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Cli:
    """Runs a command that reads the stand-in for GitHub and trusts the Sigstore of the tests."""
    return lambda *arguments: run_command(capsys, *arguments, "--cache", tmp_path / "cache")


def attested(added: Added) -> dict[str, str]:
    """The name and sha256 of each wheel that the workflow attests: not the dependency."""
    return {row.filename: row.sha256 for row, _ in added if row.cell}


def test_an_attestation_is_published_beside_each_wheel_that_it_names(
    github: FakeGitHub, publisher: NewPublisher, added: Added, sigstore: FakeSigstore
) -> None:
    stage(publisher(), added)
    for _ in range(2):  # a later bundle replaces one in the draft
        bundle = sigstore.sign(attested(added))
        assert add_attestation(publisher(), bundle, "bundle") == dict.fromkeys(attested(added), True)
    publish(publisher(), [(row, None) for row, _ in added])
    (release,) = github.repository.published()
    names = {f"{name}.sigstore.json" for name in attested(added)}
    assert {name for name in release.files() if name.endswith(".sigstore.json")} == names
    assert all(content_of(release, name) == bundle for name in names)
    assert names <= sums_of(release).keys()


def test_a_published_wheel_keeps_the_attestation_that_it_has(
    github: FakeGitHub, publisher: NewPublisher, added: Added, sigstore: FakeSigstore
) -> None:
    stage(publisher(), added)
    add_attestation(publisher(), sigstore.sign(attested(added)), "bundle")
    publish(publisher(), [(row, None) for row, _ in added])
    before = github.repository.published()[0].files()
    assert add_attestation(publisher(), sigstore.sign(attested(added)), "bundle") == dict.fromkeys(
        attested(added), False
    )
    assert github.repository.published()[0].files() == before
    assert github.repository.drafts() == []


def test_an_attestation_without_its_wheel_is_removed_from_the_draft(
    github: FakeGitHub, publisher: NewPublisher, added: Added, sigstore: FakeSigstore
) -> None:
    stage(publisher(), added)
    add_attestation(publisher(), sigstore.sign(attested(added)), "bundle")
    publish(publisher(), [(row, None) for row, _ in added[:2]])
    (release,) = github.repository.published()
    assert sum(name.endswith(".sigstore.json") for name in release.files()) == 1


def test_an_attestation_of_other_bytes_or_names_is_not_stored(
    github: FakeGitHub, publisher: NewPublisher, added: Added, sigstore: FakeSigstore
) -> None:
    stage(publisher(), added)
    for subjects in ({added[0][0].filename: "b" * 64}, {"other-1-py3-none-any.whl": added[0][0].sha256}):
        assert add_attestation(publisher(), sigstore.sign(subjects), "bundle") == dict.fromkeys(subjects, False)
    (draft,) = github.repository.drafts()
    assert not any(name.endswith(".sigstore.json") for name in draft.files())


def published_with(publisher: NewPublisher, added: Added, bundle: bytes | None) -> Path:
    """Publish wheels with a bundle; return the first wheel's file."""
    stage(publisher(), added)
    if bundle is not None:
        add_attestation(publisher(), bundle, "bundle")
    publish(publisher(), [(row, None) for row, _ in added])
    return added[0][1]


def lines_of(shown: CommandResult) -> list[str]:
    assert shown.err == ""
    return shown.out.splitlines()


def test_a_published_wheel_is_verified_from_its_repository(
    cli: Cli, publisher: NewPublisher, added: Added, sigstore: FakeSigstore
) -> None:
    wheel = published_with(publisher, added, sigstore.sign(attested(added)))
    shown = cli("verify", "--from", GITHUB, wheel)
    workflow = "https://github.com/someone/wheels/.github/workflows/_publish.yml@refs/tags/v1"
    assert lines_of(shown) == [
        f"{wheel.name}: verified",
        "  passed   row",
        f"  passed   digest (sha256 {added[0][0].sha256})",
        "  passed   build-record",
        f"  passed   attestation (signed by {workflow}, commit {'c' * 40})",
    ]
    assert shown.code == DONE


def test_a_missing_bundle_is_refused(cli: Cli, publisher: NewPublisher, added: Added) -> None:
    wheel = published_with(publisher, added, None)
    shown = cli("verify", "--from", GITHUB, wheel)
    assert shown.code == VERIFICATION_FAILED
    assert lines_of(shown)[4:] == [
        "  failed   attestation",
        f"           {wheel.name}.sigstore.json: expected a bundle beside the published wheel, found none "
        f"(older releases have none; ask GitHub: `gh attestation verify {wheel.name} --repo someone/wheels`)",
    ]


def test_a_dependency_is_not_attested(cli: Cli, publisher: NewPublisher, added: Added, sigstore: FakeSigstore) -> None:
    published_with(publisher, added, sigstore.sign(attested(added)))
    (einops,) = (path for row, path in added if row.project == "einops")
    shown = cli("verify", "--from", GITHUB, einops)
    assert (shown.code, lines_of(shown)[0]) == (DONE, f"{einops.name}: not checked: attestation")
    assert "another project built this dependency; its digest is pinned" in shown.out


def test_the_command_stores_a_bundle_and_publishes_nothing(
    cli: Cli, github: FakeGitHub, publisher: NewPublisher, added: Added, sigstore: FakeSigstore, tmp_path: Path
) -> None:
    stage(publisher(), added)
    bundle = tmp_path / "attestation.json"
    bundle.write_bytes(sigstore.sign(attested(added)))
    arguments = ("publish", GITHUB, "--tag", "v1", "--attestation", bundle)
    dry_run = cli(*arguments, "--dry-run")
    assert (dry_run.code, dry_run.out.count(".sigstore.json")) == (DONE, 2)
    shown = cli(*arguments)
    assert (shown.code, shown.out) == (DONE, f"{GITHUB}: attestation of 2 wheels added\n")
    assert github.repository.published() == []
    bundle.write_bytes(b"{}")
    refused = cli(*arguments)
    assert refused.code == BAD_INPUT
    assert refused.err.startswith(f"error: not an attestation bundle: {bundle}: dsseEnvelope.payload: Field required\n")


def test_the_command_names_a_wheel_that_is_not_staged(
    cli: Cli, added: Added, sigstore: FakeSigstore, tmp_path: Path
) -> None:
    release, bundle = tmp_path / "release", tmp_path / "attestation.json"
    stage(DirectoryPublisher(release), added)
    name = added[0][0].filename
    bundle.write_bytes(sigstore.sign({name: "b" * 64}))
    assert cli("publish", release, "--attestation", bundle) == (
        DONE,
        f"{release}: attestation of 0 wheels added\n",
        f"warning: skipping the attestation of {name}: no such file with this sha256 is staged\n",
    )
