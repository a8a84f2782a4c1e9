"""What the fields of a manifest row look like, for both of its readers: `release.manifest` and `doctor.wheels`.

Needs nothing but the standard library of Python 3.9: the doctor takes it along. What a row says ends in commands, on
pages and on terminals, so none of these forms has a character that does anything there.
"""

from __future__ import annotations

import re

from wheelfactory.core.digest import SHA256

_WORD = re.compile(r"[A-Za-z0-9._+!-]+")
_ARCH = re.compile(r"gfx[0-9a-z-]+(:[a-z0-9:+-]+)?")

ROW_FORMS = {
    "project": _WORD,
    "version": _WORD,
    "filename": re.compile(r"[A-Za-z0-9_.]+-[A-Za-z0-9_.!+]+(-\d\w*)?-[\w.]+-[\w.]+-[\w.]+\.whl", re.ASCII),
    "sha256": re.compile(SHA256),
    "metadata_sha256": re.compile(SHA256),
    "offload_archs": _ARCH,
    "arch": _ARCH,
    "glibc": re.compile(r"\d+\.\d+(\.\d+)?", re.ASCII),
}
"""By the name of the field; of a list, what each of its texts looks like. `arch` is that of an AMD GPU in evidence."""


def has_form(field: str, value: object) -> bool:
    """Whether a value is a text of the form that a field of `ROW_FORMS` has."""
    return isinstance(value, str) and ROW_FORMS[field].fullmatch(value) is not None
