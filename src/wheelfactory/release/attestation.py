"""Verify the attestation of a file, offline: a Sigstore bundle signed by one workflow of one repository.

Imports sigstore, which is an optional dependency: import this module only for a bundle to verify, after
`bundle.require_sigstore`.
"""

from __future__ import annotations

import logging
import re
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase

from cryptography.hazmat import asn1
from cryptography.x509 import (
    Certificate,
    ExtensionNotFound,
    ObjectIdentifier,
    SubjectAlternativeName,
    UniformResourceIdentifier,
)
from sigstore.models import Bundle
from sigstore.verify import Verifier

from wheelfactory.release.bundle import BUNDLE_SUFFIX, REFS, parse_statement
from wheelfactory.verify.result import Finding, GateResult

ISSUER = "https://token.actions.githubusercontent.com"
"""Who vouches for the identity of a workflow run (GitHub's documentation of OpenID Connect)."""

_HOSTED = "github-hosted"
_PAYLOAD_TYPE = "application/vnd.in-toto+json"
_EXTENSIONS = {"issuer": 8, "runner": 11, "repository": 12, "commit": 13, "ref": 14}
"""The extensions of Fulcio's certificates, below 1.3.6.1.4.1.57264.1 (its documentation, oid-info.md)."""

# sigstore warns that it does not refresh the trusted root, which is what is wanted here
logging.getLogger("sigstore").setLevel(logging.ERROR)


class _SignerError(Exception):
    """The certificate belongs to another signer; its arguments are `expected` and `found` of a finding."""


@dataclass(frozen=True)
class _Signer:
    """The workflow run that a certificate of Fulcio names."""

    issuer: str
    workflow: str
    """The workflow file with the ref it was read from: ``https://github.com/OWNER/REPO/PATH@REF``."""
    repository: str
    """The repository that the run belongs to: ``https://github.com/OWNER/REPO``."""
    commit: str
    ref: str
    """The ref of the run; the workflow file can have another one, if the run calls it there."""
    runner: str
    """``github-hosted`` or ``self-hosted``."""

    @classmethod
    def read(cls, certificate: Certificate) -> _Signer:
        """Read a certificate. What it does not name is empty, as for a person who signed."""
        names = certificate.extensions.get_extension_for_class(SubjectAlternativeName).value
        workflow = " ".join(names.get_values_for_type(UniformResourceIdentifier))
        named = {name: _extension(certificate, number) for name, number in _EXTENSIONS.items()}
        return cls(workflow=workflow, **named)


def _extension(certificate: Certificate, number: int) -> str:
    oid = ObjectIdentifier(f"1.3.6.1.4.1.57264.1.{number}")
    with suppress(ExtensionNotFound):
        return asn1.decode_der(str, certificate.extensions.get_extension_for_oid(oid).value.public_bytes())
    return ""


@dataclass(frozen=True)
class _SignedBy:
    """A policy for sigstore: the signer is a run of one workflow file of one repository, in that repository.

    Who may push a branch or open a pull request can change the workflow file there, so only `REFS` count, and `ref`, a
    glob. GitHub does not say in a certificate which branch is the default one.
    """

    repository: str
    workflow: str
    ref: str

    def verify(self, cert: Certificate) -> None:
        """Raises `_SignerError` for any other signer. Called after the certificate itself is verified."""
        signer, home = _Signer.read(cert), f"https://github.com/{self.repository}"
        if signer.issuer != ISSUER:
            raise _SignerError(f"a workflow run, vouched for by {ISSUER}", signer.issuer)
        # owner and repository in any case, as GitHub takes them; the owner in a Pages address is lower case
        workflow = re.fullmatch(rf"(?i:{re.escape(home)})/([^@]+)@(.+)", signer.workflow)
        if workflow is None or workflow[1] != self.workflow:
            raise _SignerError(f"{home}/{self.workflow}", signer.workflow)
        # any repository may call a public reusable workflow: the certificate then names the workflow as signer,
        # and only this extension names the repository whose run it was
        if signer.repository.lower() != home.lower():
            raise _SignerError(f"a run in {home}", f"a run in {signer.repository}")
        allowed = (*REFS, self.ref) if self.ref else REFS
        for ref in (workflow[2], signer.ref):
            if not any(fnmatchcase(ref, one) for one in allowed):
                raise _SignerError(f"a run at {' or '.join(allowed)}", f"a run at {ref or 'no ref'}")
        if signer.runner not in ("", _HOSTED):
            raise _SignerError(f"a {_HOSTED} runner", f"a {signer.runner} runner")


def check_attestation(
    bundle: bytes, file: str, sha256: str, repository: str, workflow: str, ref: str = ""
) -> GateResult:
    """Check that `bundle` attests the file of this name and sha256, signed by a workflow of `repository`.

    `repository` is ``OWNER/REPO``, `workflow` the path of the workflow file in it, which must be at a ref of `REFS` or
    the glob `ref` (`bundle.REF_VARIABLE`). The trusted root is Sigstore's, as
    the package sigstore brought or last cached it. Nothing is downloaded.
    """
    name, verifier = f"{file}{BUNDLE_SUFFIX}", Verifier.production(offline=True)
    try:
        read = Bundle.from_json(bundle)
        payload_type, payload = verifier.verify_dsse(read, _SignedBy(repository, workflow, ref))
        if payload_type != _PAYLOAD_TYPE:
            raise ValueError(f"its payload is {payload_type}, not {_PAYLOAD_TYPE}")
        subjects = parse_statement(payload, name).subject
        signer = _Signer.read(read.signing_certificate)
    except _SignerError as error:
        expected, found = error.args
        return _failed(name, f"signed by {expected}", found, "it was not made by this repository")
    # a damaged bundle reaches parsers of several libraries, which have no common exception
    except Exception as error:
        remedy = "download the bundle again; if it is newer than your sigstore: `sigstore plumbing update-trust-root`"
        return _failed(name, "a valid bundle", f"{type(error).__name__}: {error}", remedy)
    digests = {subject.digest.sha256 for subject in subjects if subject.name == file}
    if sha256 not in digests:
        found = f"another sha256: {', '.join(sorted(digests))}" if digests else f"{len(subjects)} other files"
        return _failed(name, f"an attestation of {file} with sha256 {sha256}", found, "do not use the file")
    widened = f"; signatures at {ref} count" if ref else ""
    detail = f"signed by {signer.workflow}, commit {signer.commit}{widened}"
    return GateResult.from_findings("attestation", [], detail)


def _failed(name: str, expected: str, found: str, remedy: str) -> GateResult:
    return GateResult.from_findings("attestation", [Finding(name, expected, found, remedy)])
