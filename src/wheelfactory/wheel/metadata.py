"""METADATA that protects the user: the labelled version, and torch pinned to the minor the wheel is for."""

from __future__ import annotations

import re

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from wheelfactory.label import Label

NEVER_REQUIRED = frozenset({"triton", "pytorch-triton-rocm", "triton-rocm"})
"""What no wheel may require: ROCm's torch brings Triton under a name of its own, and a requirement on `triton`
would make pip put the CUDA one over it.
"""


def protect(metadata: str, label: Label) -> str:
    """METADATA with its version labelled and its requirement on torch replaced by ``torch==X.Y.*``.

    A bare ``torch`` lets pip swap ROCm's torch for PyPI's, which is CUDA; ``==X.Y.*`` also takes the
    pre-release torch of containers, which ``~=X.Y.0`` does not. Every other line is kept as it is.
    """
    head, blank, body = metadata.partition("\n\n")
    fields = re.split(r"\n(?![ \t])", head)
    kept = [_labelled(field, label) for field in fields if not _is_replaced(field)]
    pin = f"Requires-Dist: torch=={label.torch[0]}.{label.torch[1]}.*"
    last = max((i for i, field in enumerate(kept) if field.startswith("Requires-Dist:")), default=len(kept) - 1)
    kept.insert(last + 1, pin)
    return "\n".join(kept) + blank + body


def labelled(version: Version, label: Label) -> str:
    """A release's version with the label, whatever local version it had: ``2.8.3+rocm62torch2.5``."""
    return f"{version.public}+{label}"


def _is_replaced(field: str) -> bool:
    name, _, value = field.partition(":")
    if name != "Requires-Dist":
        return False
    return canonicalize_name(Requirement(value.strip()).name) in {"torch", *NEVER_REQUIRED}


def _labelled(field: str, label: Label) -> str:
    name, _, value = field.partition(":")
    return f"Version: {labelled(Version(value.strip()), label)}" if name == "Version" else field
