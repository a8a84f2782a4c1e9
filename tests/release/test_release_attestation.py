"""The attestation of a wheel: signed by the release workflow of the repository, or refused with its own reason."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import socket
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sigstore.verify import Verifier

from fake_sigstore import FakeSigstore, Signer, other
from wheelfactory.build.sources import fetch_file
from wheelfactory.core.errors import InputError
from wheelfactory.release.attestation import check_attestation
from wheelfactory.release.bundle import BUILD_WORKFLOW, PUBLISH_WORKFLOW, read_subjects
from wheelfactory.verify.result import GateResult, Status

WHEEL = "flash_attn-2.8.3+rocm64torch2.9triton-py3-none-any.whl"
SHA256 = "a" * 64
HOME = "https://github.com/someone/wheels"
RELEASE_WORKFLOW = f"{HOME}/.github/workflows/_publish.yml"


@pytest.fixture(scope="module")
def sigstore() -> FakeSigstore:
    return FakeSigstore()


@pytest.fixture(autouse=True)
def _trusted(sigstore: FakeSigstore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trust this Sigstore in place of the public one."""
    verifier = sigstore.verifier(tmp_path)
    monkeypatch.setattr(Verifier, "production", lambda offline: verifier)


def check(bundle: bytes, repository: str = "someone/wheels", workflow: str = PUBLISH_WORKFLOW) -> GateResult:
    return check_attestation(bundle, WHEEL, SHA256, repository, workflow)


def finding_of(result: GateResult) -> str:
    assert result.status is Status.FAILED
    (finding,) = result.findings
    assert finding.file == f"{WHEEL}.sigstore.json"
    return f"expected {finding.expected}, found {finding.found}"


def test_a_wheel_that_the_release_workflow_signed_is_accepted(sigstore: FakeSigstore) -> None:
    result = check(sigstore.sign({WHEEL: SHA256}))
    assert (result.status, result.findings) == (Status.PASSED, ())
    assert result.detail == f"signed by {RELEASE_WORKFLOW}@refs/tags/v1, commit {'c' * 40}"


def test_a_variable_adds_a_ref_that_the_verdict_names(sigstore: FakeSigstore) -> None:
    signed = sigstore.sign(
        {WHEEL: SHA256}, other(workflow=f"{RELEASE_WORKFLOW}@refs/heads/trunk", ref="refs/heads/trunk")
    )
    result = check_attestation(signed, WHEEL, SHA256, "someone/wheels", PUBLISH_WORKFLOW, "refs/heads/t*")
    assert result.status is Status.PASSED
    assert result.detail.endswith("; signatures at refs/heads/t* count")


def test_owner_and_repository_are_compared_as_github_does_in_any_case(sigstore: FakeSigstore) -> None:
    signer = Signer(RELEASE_WORKFLOW.replace("someone", "SomeOne") + "@refs/heads/main", HOME.replace("some", "Some"))
    assert check(sigstore.sign({WHEEL: SHA256}, signer), "someone/Wheels").status is Status.PASSED


ELSEWHERE = "https://github.com/else/wheels"
OTHER_CI = f"{HOME}/.github/workflows/ci.yml"
OF_WORKFLOW, OF_RUN = f"expected signed by {RELEASE_WORKFLOW}, found", f"expected signed by a run in {HOME}, found"
BY_GITHUB = "expected signed by a workflow run, vouched for by https://token.actions.githubusercontent.com, found"
AT_REF = "expected signed by a run at refs/tags/v* or refs/heads/main, found a run at"


@pytest.mark.parametrize(
    ("signer", "finding"),
    [
        # the workflow of another repository, of one whose name begins as this one's, and another of this one
        (other(workflow=f"{ELSEWHERE}/{PUBLISH_WORKFLOW}@refs/tags/v1"), f"{OF_WORKFLOW} {ELSEWHERE}/"),
        (other(workflow=f"{HOME}-2/{PUBLISH_WORKFLOW}@refs/tags/v1"), f"{OF_WORKFLOW} {HOME}-2/"),
        (other(workflow=f"{OTHER_CI}@refs/tags/v1"), f"{OF_WORKFLOW} {OTHER_CI}@"),
        # a path that ends as the workflow's
        (other(workflow=f"{OTHER_CI}/{PUBLISH_WORKFLOW}@refs/tags/v1"), f"{OF_WORKFLOW} {OTHER_CI}/"),
        # a run of another repository that calls this workflow
        (other(repository=ELSEWHERE), f"{OF_RUN} a run in {ELSEWHERE}"),
        *(
            (other(workflow=f"{RELEASE_WORKFLOW}@{ref}", ref=of_run), f"{AT_REF} {of_run or 'no ref'}")
            for ref, of_run in (
                ("refs/heads/dev", "refs/heads/dev"),
                ("refs/pull/7/merge", "refs/pull/7/merge"),
                ("refs/heads/main", "refs/heads/dev"),
                ("refs/tags/x", "refs/tags/x"),
                ("refs/heads/main", ""),
            )
        ),
        # a runner that others can keep, another issuer, a person
        (other(runner="self-hosted"), "expected signed by a github-hosted runner, found a self-hosted runner"),
        (other(issuer="https://accounts.example"), f"{BY_GITHUB} https://accounts.example"),
        (Signer("mailto:somebody@example.org", "", "https://accounts.example", ""), BY_GITHUB),
    ],
)
def test_another_signer_is_refused_by_name(sigstore: FakeSigstore, signer: Signer, finding: str) -> None:
    assert finding_of(check(sigstore.sign({WHEEL: SHA256}, signer))).startswith(finding)


def test_each_kind_of_file_has_its_own_workflow(sigstore: FakeSigstore) -> None:
    of_build = sigstore.sign({WHEEL: SHA256}, other(workflow=f"{HOME}/{BUILD_WORKFLOW}@refs/tags/v1"))
    assert check(of_build, workflow=BUILD_WORKFLOW).status is Status.PASSED
    assert finding_of(check(of_build)).startswith(f"expected signed by {RELEASE_WORKFLOW}, found {HOME}/")
    found = finding_of(check(sigstore.sign({WHEEL: SHA256}), workflow=BUILD_WORKFLOW))
    assert found.startswith(f"expected signed by {HOME}/{BUILD_WORKFLOW}, found {RELEASE_WORKFLOW}@")


@pytest.mark.parametrize("key", ["authority", "certificate_log", "transparency_log"])
def test_a_bundle_that_an_untrusted_authority_or_log_signed_is_refused(sigstore: FakeSigstore, key: str) -> None:
    keys = {name: getattr(sigstore, name) for name in ("authority", "certificate_log", "transparency_log")}
    forged = FakeSigstore(**{**keys, key: getattr(FakeSigstore(), key)})
    found = finding_of(check(forged.sign({WHEEL: SHA256})))
    assert re.match("expected a valid bundle, found (Verification|CertValidation)Error: ", found)


def with_payload(document: dict[str, Any]) -> None:
    envelope = document["dsseEnvelope"]
    payload = base64.b64decode(envelope["payload"]).replace(b"a" * 64, b"b" * 64)
    envelope["payload"] = base64.b64encode(payload).decode()


def with_signature(document: dict[str, Any]) -> None:
    (signature,) = document["dsseEnvelope"]["signatures"]
    signature["sig"] = base64.b64encode(base64.b64decode(signature["sig"])[:-1] + b"\0").decode()


def with_time(document: dict[str, Any]) -> None:
    (entry,) = document["verificationMaterial"]["tlogEntries"]
    entry["integratedTime"] = str(int(entry["integratedTime"]) + 60)


def without_log(document: dict[str, Any]) -> None:
    document["verificationMaterial"]["tlogEntries"] = []


def with_certificate(document: dict[str, Any]) -> None:
    document["verificationMaterial"]["certificate"]["rawBytes"] = base64.b64encode(b"0" * 100).decode()


@pytest.mark.parametrize("change", [with_payload, with_signature, with_time, without_log, with_certificate])
def test_a_changed_bundle_is_refused(sigstore: FakeSigstore, change: Callable[[dict[str, Any]], None]) -> None:
    document = json.loads(sigstore.sign({WHEEL: SHA256}))
    change(document)
    assert finding_of(check(json.dumps(document).encode())).startswith("expected a valid bundle, found ")


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"\xff", b"null", b'{"mediaType": "\x1b[31m"}'])
def test_what_is_no_bundle_is_refused(data: bytes) -> None:
    assert finding_of(check(data)).startswith("expected a valid bundle, found ")


def test_every_cut_of_a_bundle_is_refused(sigstore: FakeSigstore) -> None:
    bundle = sigstore.sign({WHEEL: SHA256}).rstrip()
    for end in range(0, len(bundle), 200):
        finding_of(check(bundle[:end]))


def test_a_bundle_for_another_type_other_bytes_or_another_name_is_refused(sigstore: FakeSigstore) -> None:
    wanted = f"expected an attestation of {WHEEL} with sha256 {SHA256}, found"
    others = {"other-1-py3-none-any.whl": SHA256, "more-1-py3-none-any.whl": SHA256}
    for signed, found in (
        (
            sigstore.sign({WHEEL: SHA256}, payload_type="text/plain"),
            "expected a valid bundle, found ValueError: its payload is text/plain, not application/vnd.in-toto+json",
        ),
        (sigstore.sign({WHEEL: "b" * 64}), f"{wanted} another sha256: {'b' * 64}"),
        (sigstore.sign(others), f"{wanted} 2 other files"),
    ):
        assert finding_of(check(signed)) == found


REAL = "agent-skill-conda-forge-0.0.21-h4616a5c_0.conda"
"""A package of pavelzw/skill-forge, which its workflow attested with actions/attest; sources on PyPI have both."""


@pytest.mark.slow
def test_a_real_bundle_is_verified_with_the_public_trusted_root_and_no_network(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # trust the public Sigstore
    sha256 = "0c0bc9cb0a75821f6b26cbb7f7fd6dfd0ced566fbe554fec180da9b589567016"
    sources = fetch_file("conda-sigstore", "conda_sigstore-0.1.5.tar.gz", sha256, cache / "sources", os.environ)
    folder = "conda_sigstore-0.1.5/tests/fixtures/rattler"
    with tarfile.open(sources) as archive:
        package, bundles = (archive.extractfile(f"{folder}/{name}") for name in (REAL, f"{REAL}.sigs"))
        assert package and bundles
        digest, (bundle,) = hashlib.sha256(package.read()).hexdigest(), json.load(bundles)
    for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME"):  # where sigstore caches its trusted root
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("no network is needed"))

    def check_real(sha256: str, workflow: str = ".github/workflows/package.yml") -> GateResult:
        return check_attestation(json.dumps(bundle).encode(), REAL, sha256, "pavelzw/skill-forge", workflow)

    other_workflow = check_real(digest, PUBLISH_WORKFLOW)
    assert "/.github/workflows/package.yml@refs/heads/main (" in str(other_workflow.findings[0])
    assert check_real(digest).status is Status.PASSED
    assert f"found another sha256: {digest}" in str(check_real("0" * 64).findings[0])
    with_payload_of_others = {**bundle["dsseEnvelope"], "payload": base64.b64encode(b"{}").decode()}
    bundle["dsseEnvelope"] = with_payload_of_others
    assert "found VerificationError: DSSE: invalid signature" in str(check_real(digest).findings[0])


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"dsseEnvelope": {"payload": "!"}}', b"[" * 100_000])
def test_subjects_of_what_is_no_bundle_are_refused(data: bytes) -> None:
    with pytest.raises(InputError, match=r"not an attestation bundle: attestation\.json"):
        read_subjects(data, "attestation.json")


def test_a_subject_outside_the_folder_is_refused(sigstore: FakeSigstore) -> None:
    with pytest.raises(InputError, match=r"not an in-toto statement: attestation\.json: subject\.0\.name"):
        read_subjects(sigstore.sign({"../x.whl": SHA256}), "attestation.json")
