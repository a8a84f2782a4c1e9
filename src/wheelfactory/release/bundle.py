"""The attestation that is published beside a wheel or a kernel archive: a Sigstore bundle.

Reads what a bundle names, and says which workflow must have signed it; verifies no signature, so needs no sigstore.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from pydantic import AliasPath, Field

from wheelfactory.core.cell import FLASH_ATTN_NAME, PRODUCTS
from wheelfactory.core.errors import InputError
from wheelfactory.core.files import read_file
from wheelfactory.core.models import FrozenModel, parse_model

BUNDLE_SUFFIX = ".sigstore.json"
"""Follows the file's name in the name of its bundle; Sigstore's clients look for it there (their specification)."""

PUBLISH_WORKFLOW = ".github/workflows/_publish.yml"
"""The workflow whose job attests the wheels."""

BUILD_WORKFLOW = ".github/workflows/build.yml"
"""The workflow whose job attests the kernel archives."""

REFS = ("refs/tags/v*", "refs/heads/main")
"""The refs whose runs may sign: the tags that release, and the default branch."""

REF_VARIABLE = "WHEELFACTORY_SIGNED_REF"
"""The environment variable with one more ref whose runs may sign, as a glob, such as another default branch."""

ATTESTED = (FLASH_ATTN_NAME, *PRODUCTS)
"""The projects whose wheels the release workflow attests; dependencies are wheels of other projects."""

MAX_BUNDLE_BYTES = 1 << 24
"""A bundle of the 1024 subjects that actions/attest allows has less than 1 MB."""

_HINT = "name the file that the output `bundle-path` of actions/attest names"


class Digests(FrozenModel, extra="ignore"):
    """The digests of a subject."""

    sha256: str


class Subject(FrozenModel, extra="ignore"):
    """A file that a statement is about."""

    name: str = Field(pattern=r"^[^/]{1,255}$")
    digest: Digests


class Statement(FrozenModel, extra="ignore"):
    """What a bundle signs: an in-toto statement about files."""

    type: Literal["https://in-toto.io/Statement/v1"] = Field(alias="_type")
    subject: tuple[Subject, ...] = Field(min_length=1)


def parse_statement(payload: bytes, source: str) -> Statement:
    """Parse an in-toto statement. Raises `InputError` that names `source` if it is none."""
    return parse_model(Statement, payload, InputError("not an in-toto statement", source, _HINT))


def read_bundle(path: Path) -> bytes:
    """Read the file of a bundle. Raises `InputError` if it cannot be read."""
    return read_file(path, InputError("cannot read the attestation", str(path), _HINT), MAX_BUNDLE_BYTES)


class _Bundle(FrozenModel, extra="ignore", val_json_bytes="base64"):
    payload: bytes = Field(validation_alias=AliasPath("dsseEnvelope", "payload"))


def read_subjects(bundle: bytes, source: str) -> tuple[Subject, ...]:
    """The files that a bundle says it attests. Nobody has verified that.

    Raises `InputError` that names `source` if it is not a bundle with a statement.
    """
    found = parse_model(_Bundle, bundle, InputError("not an attestation bundle", source, _HINT))
    return parse_statement(found.payload, source).subject


def require_sigstore() -> None:
    """Raises `InputError` if sigstore, which verifies bundles, is not installed for this Python."""
    if find_spec("sigstore") is None:
        # not the extra `verify`: pip would look on PyPI for a project of the factory's name
        hint = f"{sys.executable} -m pip install sigstore"
        raise InputError("sigstore is missing", f"{sys.executable} needs it to verify the attestation", hint)
