"""A Sigstore of the tests: a certificate authority, a certificate log and a transparency log, each with its own key.

It signs bundles as actions/attest does, and writes the trusted root that a client needs to verify them.
"""

from __future__ import annotations

import base64
import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat import asn1
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier
from sigstore.models import TrustedRoot
from sigstore.verify import Verifier

GITHUB_ISSUER = "https://token.actions.githubusercontent.com"
PAYLOAD_TYPE = "application/vnd.in-toto+json"

_SIGNED_AT = datetime(2025, 1, 1, 12, tzinfo=timezone.utc)
_EPOCH_S = int(_SIGNED_AT.timestamp())
_SHA256 = ec.ECDSA(hashes.SHA256())
_SCT_LIST = ObjectIdentifier("1.3.6.1.4.1.11129.2.4.2")
_FULCIO = "1.3.6.1.4.1.57264.1"


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _public(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _key_id(key: ec.EllipticCurvePrivateKey) -> bytes:
    return hashlib.sha256(_public(key)).digest()


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


@dataclass(frozen=True)
class Signer:
    """What a certificate says of the workflow run that signs; by default, the release of ``someone/wheels``."""

    workflow: str = "https://github.com/someone/wheels/.github/workflows/_publish.yml@refs/tags/v1"
    repository: str = "https://github.com/someone/wheels"
    issuer: str = GITHUB_ISSUER
    commit: str = "c" * 40
    ref: str = "refs/tags/v1"
    runner: str = "github-hosted"

    def extensions(self) -> Mapping[str, str]:
        """Fulcio's extensions by the last number of their identifier."""
        return {"8": self.issuer, "12": self.repository, "13": self.commit, "14": self.ref, "11": self.runner}


RELEASE = Signer()


@dataclass(frozen=True)
class FakeSigstore:
    """The keys of one instance; each instance trusts only its own."""

    authority: ec.EllipticCurvePrivateKey = field(default_factory=_new_key)
    certificate_log: ec.EllipticCurvePrivateKey = field(default_factory=_new_key)
    transparency_log: ec.EllipticCurvePrivateKey = field(default_factory=_new_key)

    def verifier(self, folder: Path) -> Verifier:
        """A verifier that trusts this instance; its trusted root is written into `folder`."""
        path = folder / "trusted_root.json"
        path.write_text(json.dumps(self._trusted_root()))
        return Verifier(trusted_root=TrustedRoot.from_file(str(path)))

    def sign(self, subjects: Mapping[str, str], signer: Signer = RELEASE, *, payload_type: str = PAYLOAD_TYPE) -> bytes:
        """A bundle that attests files, given as name and sha256, as actions/attest writes it."""
        key = _new_key()
        certificate = self._certificate(key, signer)
        statement = {
            "_type": "https://in-toto.io/Statement/v1",
            "subject": [{"name": name, "digest": {"sha256": sha256}} for name, sha256 in subjects.items()],
            "predicateType": "https://slsa.dev/provenance/v1",
            "predicate": {"buildDefinition": {}, "runDetails": {}},
        }
        payload = json.dumps(statement).encode()
        signed = f"DSSEv1 {len(payload_type)} {payload_type} {len(payload)} ".encode() + payload
        signature = key.sign(signed, _SHA256)
        envelope = {
            "payload": _base64(payload),
            "payloadType": payload_type,
            "signatures": [{"sig": _base64(signature)}],
        }
        bundle = {
            "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
            "verificationMaterial": {
                "certificate": {"rawBytes": _base64(certificate.public_bytes(Encoding.DER))},
                "tlogEntries": [self._log_entry(payload, signature, certificate)],
            },
            "dsseEnvelope": envelope,
        }
        return json.dumps(bundle).encode() + b"\n"

    def _trusted_root(self) -> dict[str, Any]:
        since = {"start": "2020-01-01T00:00:00Z"}

        def log(key: ec.EllipticCurvePrivateKey, url: str) -> dict[str, Any]:
            public = {"rawBytes": _base64(_public(key)), "keyDetails": "PKIX_ECDSA_P256_SHA_256", "validFor": since}
            key_id = {"keyId": _base64(_key_id(key))}
            return {"baseUrl": url, "hashAlgorithm": "SHA2_256", "publicKey": public, "logId": key_id}

        root = _base64(self._root().public_bytes(Encoding.DER))
        authority = {
            "subject": {"organization": "tests", "commonName": "tests"},
            "uri": "https://fulcio.example",
            "certChain": {"certificates": [{"rawBytes": root}]},
            "validFor": since,
        }
        return {
            "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
            "tlogs": [log(self.transparency_log, "https://rekor.example")],
            "certificateAuthorities": [authority],
            "ctlogs": [log(self.certificate_log, "https://ctfe.example")],
            "timestampAuthorities": [],
        }

    def _root(self) -> x509.Certificate:
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority of the tests")])
        public = self.authority.public_key()
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        return (
            x509.CertificateBuilder(name, name, public, serial_number=1)
            .not_valid_before(_SIGNED_AT - timedelta(days=365))
            .not_valid_after(_SIGNED_AT + timedelta(days=3650))
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .sign(self.authority, hashes.SHA256())
        )

    def _certificate(self, key: ec.EllipticCurvePrivateKey, signer: Signer) -> x509.Certificate:
        """A certificate for ten minutes, with the signature of the certificate log in it."""
        root = self._root()
        issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.authority.public_key())
        names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(signer.workflow)])
        usage = x509.KeyUsage(True, False, False, False, False, False, False, False, False)
        builder = (
            x509.CertificateBuilder(root.subject, x509.Name([]), key.public_key(), x509.random_serial_number())
            .not_valid_before(_SIGNED_AT - timedelta(minutes=5))
            .not_valid_after(_SIGNED_AT + timedelta(minutes=5))
            .add_extension(usage, critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(issuer_key, critical=False)
            .add_extension(names, critical=True)
        )
        for number, text in signer.extensions().items():
            if text:
                value = x509.UnrecognizedExtension(ObjectIdentifier(f"{_FULCIO}.{number}"), asn1.encode_der(text))
                builder = builder.add_extension(value, critical=False)
        unlogged = builder.sign(self.authority, hashes.SHA256())
        timestamps = x509.UnrecognizedExtension(_SCT_LIST, self._timestamp_list(unlogged))
        return builder.add_extension(timestamps, critical=False).sign(self.authority, hashes.SHA256())

    def _timestamp_list(self, certificate: x509.Certificate) -> bytes:
        """The certificate log's signature of a certificate, as an extension's value (RFC 6962, 3.2 and 3.3)."""
        signed = certificate.tbs_certificate_bytes
        entry = _key_id(self.authority) + len(signed).to_bytes(3, "big") + signed
        milliseconds = _EPOCH_S * 1000
        signature = self.certificate_log.sign(
            struct.pack("!BBQH", 0, 0, milliseconds, 1) + entry + struct.pack("!H", 0), _SHA256
        )
        timestamp = struct.pack("!B32sQH", 0, _key_id(self.certificate_log), milliseconds, 0)
        timestamp += struct.pack("!BBH", 4, 3, len(signature)) + signature
        return asn1.encode_der(struct.pack("!HH", len(timestamp) + 2, len(timestamp)) + timestamp)

    def _log_entry(self, payload: bytes, signature: bytes, certificate: x509.Certificate) -> dict[str, Any]:
        """The only entry of a transparency log, with its proof and its promise (Rekor, dsse 0.0.1)."""
        digest = {"algorithm": "sha256", "value": hashlib.sha256(payload).hexdigest()}
        verifier = _base64(certificate.public_bytes(Encoding.PEM))
        signatures = [{"signature": _base64(signature), "verifier": verifier}]
        spec = {"envelopeHash": digest, "payloadHash": digest, "signatures": signatures}
        body = _canonical({"apiVersion": "0.0.1", "kind": "dsse", "spec": spec})
        root_hash = hashlib.sha256(b"\0" + body).digest()
        key, key_id = self.transparency_log, _key_id(self.transparency_log)
        note = f"rekor.example - 1\n1\n{_base64(root_hash)}\n"
        checkpoint = f"{note}\n\u2014 rekor.example {_base64(key_id[:4] + key.sign(note.encode(), _SHA256))}\n"
        promised = {"body": _base64(body), "integratedTime": _EPOCH_S, "logID": key_id.hex(), "logIndex": 0}
        return {
            "logIndex": "0",
            "logId": {"keyId": _base64(key_id)},
            "kindVersion": {"kind": "dsse", "version": "0.0.1"},
            "integratedTime": str(_EPOCH_S),
            "inclusionPromise": {"signedEntryTimestamp": _base64(key.sign(_canonical(promised), _SHA256))},
            "inclusionProof": {
                "logIndex": "0",
                "rootHash": _base64(root_hash),
                "treeSize": "1",
                "hashes": [],
                "checkpoint": {"envelope": checkpoint},
            },
            "canonicalizedBody": _base64(body),
        }


def _canonical(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def other(**changes: str) -> Signer:
    """The signer of a release with something changed."""
    return replace(RELEASE, **changes)


KERNELS = other(workflow=RELEASE.workflow.replace("_publish.yml", "build.yml"))
"""The job that collects kernel sets."""
