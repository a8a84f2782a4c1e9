"""Rewrite METADATA: add the label to the version, and pin torch to the minor that the wheel supports."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from email.parser import HeaderParser

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from wheelfactory.core.cell import PRODUCTS
from wheelfactory.core.errors import InputError
from wheelfactory.core.label import Label

NEVER_REQUIRED = frozenset({"triton", "pytorch-triton-rocm", "triton-rocm"})
"""Requirements that no finished wheel has.

ROCm's torch installs Triton under another name. A requirement on `triton` makes pip overwrite it with the CUDA Triton.
"""


def protect_metadata(metadata: str, label: Label) -> str:
    """Add the label to the version and replace the requirements that `Label.requirements` has; keep every other line.

    Raises `InputError` if METADATA has an invalid version or requirement.
    """
    found = HeaderParser().parsestr(metadata)["Version"]
    try:
        version = label_version(Version(str(found)), label)
    except InvalidVersion as error:
        raise InputError("damaged METADATA", f"Version: {error}", "build the wheel again") from None
    # a bare `torch` lets pip replace ROCm's torch by PyPI's CUDA torch; `~=X.Y.0` rejects pre-releases in containers
    return change_metadata(metadata, version, {"torch", *PRODUCTS, *NEVER_REQUIRED}, label.requirements)


def change_metadata(metadata: str, version: str, unused: Collection[str], added: Iterable[str] = ()) -> str:
    """Replace the version, remove the requirements on the projects `unused`, and add others; keep every other line.

    Raises `InputError` if METADATA has an invalid requirement.
    """
    fields, body = _split(metadata)
    end = "\r\n" if fields[0].endswith("\r\n") else "\n"
    kept = [field for field in fields if not _requires(field, unused)]
    kept = [f"Version: {version}{end}" if _parse(field)[0] == "version" else field for field in kept]
    # behind the other requirements; never after the blank line, where it would be description
    last = max((i for i, field in enumerate(kept) if _parse(field)[0] == "requires-dist"), default=len(kept) - 1)
    kept[last + 1 : last + 1] = [f"Requires-Dist: {requirement}{end}" for requirement in added]
    return "".join(kept) + body


def _split(metadata: str) -> tuple[list[str], str]:
    """Return the fields, and the description with the blank line before it."""
    end = re.search(r"(?<=\n)\r?\n", metadata)
    head, body = (metadata[: end.start()], metadata[end.start() :]) if end else (metadata, "")
    if not head.endswith("\n"):
        head += "\n"
    return re.split(r"(?<=\n)(?![ \t])", head), body  # an indented line continues the field before it


def label_version(version: Version, label: Label) -> str:
    """Replace the local version by the label: ``2.8.3+rocm62torch2.5``."""
    return f"{version.public}+{label}"


def _parse(field: str) -> tuple[str, str]:
    name, _, value = field.partition(":")
    return name.lower(), value.strip()


def _requires(field: str, projects: Collection[str]) -> bool:
    """Whether a field is a requirement on one of these projects."""
    name, value = _parse(field)
    if name != "requires-dist":
        return False
    try:
        return canonicalize_name(Requirement(value).name) in projects
    except InvalidRequirement as error:
        raise InputError("damaged METADATA", f"Requires-Dist: {error}", "build the wheel again") from None
