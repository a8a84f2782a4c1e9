"""Attestations beside staged wheels: published with them, found there by `verify --from`, and refused if wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from command_line import Cli, CommandResult, run_command
from fake_github.hub import Hub
from fake_github.outcome import Added, content_of, sums_of
from fake_sigstore import FakeSigstore
from wheelfactory.core.errors import BAD_INPUT, DONE, VERIFICATION_FAILED
from wheelfactory.release.directory import DirectoryPublisher
from wheelfactory.release.transaction import add_attestation, stage

GITHUB = "github:someone/wheels"


@pytest.fixture
def cli(_environ: None, _trusted: None, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Cli:
    """Runs a command that reads the stand-in for GitHub and trusts the Sigstore of the tests."""
    return lambda *arguments: run_command(capsys, *arguments, "--cache", tmp_path / "cache")


def attested(hub: Hub) -> dict[str, str]:
    """The name and sha256 of each wheel that the workflow attests: not the dependency."""
    return {row.filename: row.sha256 for row in hub.rows if row.cell}


def test_an_attestation_is_published_beside_each_wheel_that_it_names_and_kept(hub: Hub, sigstore: FakeSigstore) -> None:
    hub.stage()
    for _ in range(2):  # a later bundle replaces one in the draft
        bundle = sigstore.sign(attested(hub))
        assert add_attestation(hub.publisher(), bundle, "bundle") == dict.fromkeys(attested(hub), True)
    hub.publish_staged()
    (release,) = hub.repository.published()
    names = {f"{name}.sigstore.json" for name in attested(hub)}
    assert {name for name in release.files() if name.endswith(".sigstore.json")} == names
    assert all(content_of(release, name) == bundle for name in names)
    assert names <= sums_of(release).keys()
    before, other = release.files(), sigstore.sign(attested(hub))
    assert add_attestation(hub.publisher(), other, "bundle") == dict.fromkeys(attested(hub), False)
    assert (release.files(), hub.repository.drafts()) == (before, [])


def test_an_attestation_without_its_wheel_is_not_stored_or_removed_from_the_draft(
    hub: Hub, sigstore: FakeSigstore
) -> None:
    hub.stage()
    name, sha256 = next(iter(attested(hub).items()))
    for subjects in ({name: "b" * 64}, {"other-1-py3-none-any.whl": sha256}):
        assert add_attestation(hub.publisher(), sigstore.sign(subjects), "bundle") == dict.fromkeys(subjects, False)
    (draft,) = hub.repository.drafts()
    assert not any(name.endswith(".sigstore.json") for name in draft.files())
    add_attestation(hub.publisher(), sigstore.sign(attested(hub)), "bundle")
    hub.publish_staged(hub.added[:2])
    (release,) = hub.repository.published()
    assert sum(name.endswith(".sigstore.json") for name in release.files()) == 1


def published_with(hub: Hub, bundle: bytes | None) -> Path:
    """Publish wheels with a bundle; return the first wheel's file."""
    hub.stage()
    if bundle is not None:
        add_attestation(hub.publisher(), bundle, "bundle")
    hub.publish_staged()
    return hub.added[0][1]


def lines_of(shown: CommandResult) -> list[str]:
    assert shown.err == ""
    return shown.out.splitlines()


def test_a_published_wheel_is_verified_from_its_repository_and_a_dependency_without_attestation(
    cli: Cli, hub: Hub, sigstore: FakeSigstore
) -> None:
    wheel = published_with(hub, sigstore.sign(attested(hub)))
    shown = cli("verify", "--from", GITHUB, wheel)
    workflow = "https://github.com/someone/wheels/.github/workflows/_publish.yml@refs/tags/v1"
    assert lines_of(shown) == [
        f"{wheel.name}: verified",
        "  passed   row",
        f"  passed   digest (sha256 {hub.rows[0].sha256})",
        "  passed   build-record",
        f"  passed   attestation (signed by {workflow}, commit {'c' * 40})",
    ]
    assert shown.code == DONE
    (einops,) = (path for row, path in hub.added if row.project == "einops")
    shown = cli("verify", "--from", GITHUB, einops)
    assert (shown.code, lines_of(shown)[0]) == (DONE, f"{einops.name}: not checked: attestation")
    assert "another project built this dependency; its digest is pinned" in shown.out


def test_a_missing_bundle_is_refused(cli: Cli, hub: Hub) -> None:
    wheel = published_with(hub, None)
    shown = cli("verify", "--from", GITHUB, wheel)
    assert shown.code == VERIFICATION_FAILED
    assert lines_of(shown)[4:] == [
        "  failed   attestation",
        f"           {wheel.name}.sigstore.json: expected a bundle beside the published wheel, found none "
        f"(older releases have none; ask GitHub: `gh attestation verify {wheel.name} --repo someone/wheels`)",
    ]


def test_the_command_stores_a_bundle_and_publishes_nothing(
    cli: Cli, hub: Hub, sigstore: FakeSigstore, tmp_path: Path
) -> None:
    hub.stage()
    bundle = tmp_path / "attestation.json"
    bundle.write_bytes(sigstore.sign(attested(hub)))
    arguments = ("publish", GITHUB, "--tag", "v1", "--attestation", bundle)
    dry_run = cli(*arguments, "--dry-run")
    assert (dry_run.code, dry_run.out.count(".sigstore.json")) == (DONE, 2)
    shown = cli(*arguments)
    assert (shown.code, shown.out) == (DONE, f"{GITHUB}: attestation of 2 wheels added\n")
    assert hub.tags() == []
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
