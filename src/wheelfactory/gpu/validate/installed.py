"""A Python in, what is installed there of flash-attn or flash-attention-amd out, asked of that Python."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement

from wheelfactory.core.cell import FALLBACK_NAME, Backend
from wheelfactory.core.digest import SHA256
from wheelfactory.core.errors import BuildError, InputError
from wheelfactory.core.label import Label
from wheelfactory.gpu.validate.report import Validated
from wheelfactory.verify.proofs import HasPython, NoReportError, Report, ask
from wheelfactory.wheel.record import BuildRecord, parse_record

PROJECTS = ("flash-attn", FALLBACK_NAME)
"""What can be validated; the first that is installed is."""

_READ = Path(__file__).with_name("programs") / "read_installed.py"
_TIMEOUT = 300.0
"""Seconds; an extension of half a GB is hashed in one."""

_EXTENSION = re.compile(r"/flash_attn_2_cuda\b[^/]*\.so$")


class Distribution(Report):
    """What the metadata of an installed distribution says, and whether its files are as they were installed."""

    version: str
    requires: tuple[str, ...]
    record: str | None
    """The build record, as it stands in dist-info."""
    direct_url: str | None
    """What pip noted of a wheel that it was given by its place (PyPA, direct URL data structure)."""
    files: tuple[str, ...] | None
    """Where they are; None if there is no RECORD."""
    troubles: tuple[str, ...]
    """Files that differ from RECORD, and how."""


class Installed(Report):
    """What a Python has."""

    project: str
    """One of `PROJECTS`."""
    distribution: Distribution
    numpy: bool

    @property
    def fallback(self) -> bool:
        """Whether it is flash-attention-amd, which has no label and runs on every GPU."""
        return self.project == FALLBACK_NAME

    @cached_property
    def label(self) -> Label | None:
        """That of its version; None if it has none, as what others built."""
        try:
            return Label.parse(self.distribution.version.partition("+")[2])
        except InputError:
            return None

    @cached_property
    def backend(self) -> Backend | None:
        """Whose kernels it has, by label or else by whether there is an extension; None for the fallback."""
        if self.fallback:
            return None
        if self.label:
            return self.label.backend
        compiled = any(map(_EXTENSION.search, self.distribution.files or ()))
        return Backend.CK if compiled else Backend.TRITON

    @cached_property
    def record(self) -> BuildRecord | None:
        """Its build record; None if there is none that can be read."""
        try:
            return parse_record((self.distribution.record or "").encode(), "dist-info")
        except InputError:
            return None

    @property
    def torch(self) -> Requirement | None:
        """Its requirement on torch."""
        return next((found for found in map(_requirement, self.distribution.requires) if found), None)

    def as_validated(self) -> Validated:
        """What a report says of it; of the file only what pip noted."""
        record = self.record
        return Validated(
            project=self.project,
            version=self.distribution.version,
            sha256=_archive_sha256(self.distribution.direct_url),
            cell=record.cell if record else None,
            label=str(self.label) if self.label else None,
            offload_archs=record.offload_archs if record else (),
        )


class _Answer(Report):
    project: str | None
    distribution: Distribution | None
    numpy: bool


def read_installed(python: HasPython, environ: Mapping[str, str], scratch: Path) -> Installed:
    """What a Python has of flash-attn, else of flash-attention-amd; the program runs in `scratch`.

    Raises `InputError` if it has neither, and `BuildError` if it cannot be asked.
    """
    try:
        answer = ask((_READ, *PROJECTS), _Answer, python, environ, scratch=scratch, timeout=_TIMEOUT)
    except NoReportError as error:
        hint = "mend that Python, or name another with --python"
        raise BuildError("cannot read what is installed", f"{python.python} ({error})", hint) from None
    if answer.project is None or answer.distribution is None:
        hint = "install a wheel (`wheelfactory doctor SITE` says which), name the file of one, or another --python"
        raise InputError("no flash-attn", f"{python.python} has neither {' nor '.join(PROJECTS)}", hint)
    return Installed(project=answer.project, distribution=answer.distribution, numpy=answer.numpy)


def _requirement(text: str) -> Requirement | None:
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        return None
    return requirement if requirement.name == "torch" and requirement.marker is None else None


def _archive_sha256(direct_url: str | None) -> str | None:
    try:
        hashes: Any = json.loads(direct_url or "{}")["archive_info"]["hashes"]
        return re.fullmatch(SHA256, hashes["sha256"]) and str(hashes["sha256"])
    except (ValueError, LookupError, TypeError):
        return None
