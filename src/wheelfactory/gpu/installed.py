"""Read which flash-attn or flash-attention-amd a Python has installed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from importlib import metadata
from pathlib import Path

from installer.records import Hash, RecordEntry
from packaging.requirements import InvalidRequirement, Requirement
from pydantic import AliasPath, Field

from wheelfactory.core.cell import AITER_NAME, FALLBACK_NAME, Backend, local_version
from wheelfactory.core.errors import BuildError, InputError
from wheelfactory.core.label import Label
from wheelfactory.core.models import FrozenModel
from wheelfactory.core.query import Interpreter
from wheelfactory.core.strict import SHA256
from wheelfactory.gpu.validation_report import ValidatedPackage
from wheelfactory.verify.proofs import ProgramReport
from wheelfactory.wheel.read import BUILD_RECORD_NAME, BuildRecord, parse_build_record

# the projects that can be validated; the first one installed is used
PROJECTS = ("flash-attn", FALLBACK_NAME)

_EXTENSION = re.compile(r"/flash_attn_2_cuda\b[^/]*\.so$")


class InstalledDistribution(ProgramReport):
    """The metadata of an installed distribution, and the files that differ from its RECORD."""

    version: str
    requires: tuple[str, ...]
    record: str | None
    """The build record in dist-info, unparsed."""
    direct_url: str | None
    """direct_url.json, which pip writes for a wheel installed by path or URL (PyPA, direct URL data structure)."""
    files: tuple[str, ...] | None
    """Absolute paths; None without a RECORD."""
    record_mismatches: tuple[str, ...]
    """Each file that differs from RECORD, and how."""


class InstalledPackage(ProgramReport):
    """The installed package to validate."""

    project: str
    """One of `PROJECTS`."""
    distribution: InstalledDistribution
    has_numpy: bool
    kernels: InstalledDistribution | None = None
    """The installed aiter, if this is a flash-attn that takes its kernels from it."""

    @property
    def is_fallback(self) -> bool:
        """Whether this is flash-attention-amd, which has no label and runs on every GPU."""
        return self.project == FALLBACK_NAME

    @cached_property
    def label(self) -> Label | None:
        """The label of the version; None for packages that others built."""
        try:
            return Label.parse(local_version(self.distribution.version))
        except InputError:
            return None

    @cached_property
    def backend(self) -> Backend | None:
        """The backend by the label, else CK if a compiled extension is installed; None for the fallback."""
        if self.is_fallback:
            return None
        if self.label:
            return self.label.backend
        compiled = any(map(_EXTENSION.search, self.distribution.files or ()))
        return Backend.CK if compiled else Backend.TRITON

    @cached_property
    def record(self) -> BuildRecord | None:
        """The build record; None if it is missing or unreadable."""
        try:
            return parse_build_record((self.distribution.record or "").encode(), "dist-info")
        except InputError:
            return None

    @property
    def torch(self) -> Requirement | None:
        """The requirement on torch, if there is one without a marker."""
        for text in self.distribution.requires:
            with suppress(InvalidRequirement):
                requirement = Requirement(text)
                if requirement.name == "torch" and requirement.marker is None:
                    return requirement
        return None

    def as_validated(self) -> ValidatedPackage:
        """The report's entry for this package. The sha256 is known only if pip recorded it."""
        record = self.record
        return ValidatedPackage(
            project=self.project,
            version=self.distribution.version,
            sha256=read_archive_sha256(self.distribution.direct_url),
            cell=record.cell if record else None,
            label=str(self.label) if self.label else None,
            offload_archs=record.offload_archs if record else (),
        )


def read_installed(python: Path, environ: Mapping[str, str]) -> InstalledPackage:
    """Read the installed flash-attn, else flash-attention-amd.

    Raises `InputError` if neither is installed, and `BuildError` if the Python or its metadata cannot be read.
    """
    hint = "repair that Python, or name another with --python"
    try:
        packages = Interpreter([str(python), "-I", "-B"], environ).find_packages("numpy")
        found = ((name, next(packages.distributions(name), None)) for name in PROJECTS)
        installed = next(((name, _read(one)) for name, one in found if one), None)
    except InputError as error:
        raise BuildError("cannot read the installed packages", error.which, hint) from None
    except (OSError, ValueError) as error:
        raise BuildError("cannot read the installed packages", f"{python} ({error})", hint) from None
    if installed is None:
        hint = "install a wheel (`wheelfactory doctor SITE` says which), name the file of one, or another --python"
        raise InputError("no flash-attn", f"{python} has neither {' nor '.join(PROJECTS)}", hint)
    project, distribution = installed
    found_package = InstalledPackage(
        project=project, distribution=distribution, has_numpy=packages.origins["numpy"] is not None
    )
    kernels = next(packages.distributions(AITER_NAME), None)
    if kernels is None or not (found_package.label and found_package.label.uses_aiter):
        return found_package
    return found_package.model_copy(update={"kernels": _read(kernels)})


def _read(found: metadata.Distribution) -> InstalledDistribution:
    listed = found.files if found.read_text("RECORD") is not None else None
    mismatches = {str(file): _mismatch(file) for file in listed or ()}
    return InstalledDistribution(
        version=found.version,
        requires=tuple(found.requires or ()),
        record=found.read_text(BUILD_RECORD_NAME),
        direct_url=found.read_text("direct_url.json"),
        files=None if listed is None else tuple(str(Path(str(file.locate())).resolve()) for file in listed),
        record_mismatches=tuple(f"{name} {mismatch}" for name, mismatch in mismatches.items() if mismatch),
    )


def _mismatch(file: metadata.PackagePath) -> str:
    """How a file differs from its entry in RECORD; empty if it does not."""
    path = Path(str(file.locate()))
    if not path.is_file():
        return "is missing"
    recorded = Hash(file.hash.mode, file.hash.value) if file.hash else None
    with path.open("rb") as content:
        return "" if RecordEntry(str(file), recorded, None).validate_stream(content) else "was changed"


class _DirectUrl(FrozenModel, extra="ignore"):
    sha256: str = Field(validation_alias=AliasPath("archive_info", "hashes", "sha256"), pattern=rf"^{SHA256}$")


def read_archive_sha256(direct_url: str | None) -> str | None:
    """The sha256 that direct_url.json has of the installed wheel; None without one."""
    try:
        return _DirectUrl.model_validate_json(direct_url or "{}").sha256
    except ValueError:
        return None
