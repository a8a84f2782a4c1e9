"""The allowed form of each text in matrix.yaml.

Each form is an allow-list, because these texts end in file names, command lines, Dockerfiles, URLs and pages.
"""

from __future__ import annotations

import re
from itertools import accumulate
from typing import Annotated

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version
from pydantic import AfterValidator, StringConstraints
from pydantic_core import PydanticCustomError

from wheelfactory.core.gpus import gpu_products
from wheelfactory.core.strict import SHA256

_LONGEST, _LONGEST_VERSION, _LONGEST_REMARK = 200, 30, 1000
"""Characters. A file name has at most 255 bytes, and a cell id holds three versions."""
ASSET_BYTES = 1 << 31
"""Bytes that an asset of a release must stay below; GitHub refuses exactly 2 GiB (its docs, and discussion 61733)."""
_PREVIEW = re.compile(r"\+git[0-9a-f]{7}\Z")
_SIZE, _UNITS = re.compile("([0-9]+) (kB|MB)"), {"kB": 1000, "MB": 1000**2}
# all but ASCII, Latin letters, dashes and quotation marks: those ranges have no invisible characters, and none that
# changes the text direction
_FOREIGN = re.compile("[^ -~\u00a1-\u00ac\u00ae-\u024f\u2010-\u2027]")

# one part of a path, neither ``.`` nor ``..``
_FOLDERS = "(/[.]?[A-Za-z0-9_~][A-Za-z0-9._~+-]*)"
_HOST = "[a-z0-9]+([.-][a-z0-9]+)*(:[0-9]{1,5})?"
# one part of an image name, by the reference grammar of the distribution project (github.com/distribution)
_WORD = "[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*"
_IMAGE = f"({_HOST}/)?{_WORD}(/{_WORD})*:(?!latest$)[A-Za-z0-9_][A-Za-z0-9._-]{{0,127}}"
_PURE_WHEEL = "[A-Za-z0-9]+([._][A-Za-z0-9]+)*-[0-9][0-9a-z.]*-(py2[.])?py3-none-any[.]whl"
_BOUND = "(>=|<=|>|<|==|!=|~=)[0-9][0-9a-z.]*([.][*])?"
_TRITONS = ">=[0-9]{1,3}[.][0-9]{1,3}([.][0-9]{1,3})?,<[0-9]{1,3}[.][0-9]{1,3}"
_BYTES = "[1-9][0-9]{0,8} [kM]B"


def value_error(what: str, hint: str) -> PydanticCustomError:
    """Create a validation error with a hint, for `load`."""
    return PydanticCustomError("mistake", "{what}", {"what": what, "hint": hint})


def in_window(window: str, version: str) -> bool:
    """Whether a version is in a `Window`; pre-releases count."""
    return SpecifierSet(window).contains(version, prereleases=True)


def parse_size_band(text: str) -> range:
    """Parse a `SizeBand` to bytes."""
    least, most = (int(number) * _UNITS[unit] for number, unit in _SIZE.findall(text))
    return range(least, most + 1)


def _check_version(text: str) -> str:
    """Reject all spellings but the normalized one."""
    # versions are compared as text, and are parts of names
    try:
        # the length first: Python refuses to convert numbers of over 4,300 digits
        version = Version(text if len(text) <= _LONGEST_VERSION else "")
    except InvalidVersion:
        raise value_error(f"is not a version: {text!r}", "a version looks like 2.9.1 or 2.8.3.post2") from None
    if version.local or version.epoch or str(version) != text:
        plain = version.public.rpartition("!")[2]
        raise value_error(f"is not a normalized version: {text!r}", f"write '{plain}'")
    return text


def _check_flash_attn_version(text: str) -> str:
    """Also accept a preview: the version that a commit calls itself, and the commit."""
    _check_version(_PREVIEW.sub("", text))
    return text


def _form(pattern: str, kind: str, example: str, longest: int = _LONGEST) -> AfterValidator:
    """Check a form; unlike pydantic's own check, the error shows an example instead of the pattern."""
    form = re.compile(pattern)

    def check(text: str) -> str:
        if len(text) > longest or form.fullmatch(text) is None:
            raise value_error(f"is not {kind}: {text!r}", f"{kind} looks like {example}")
        return text

    return AfterValidator(check)


def _check_specifier(text: str) -> str:
    try:
        SpecifierSet(text)
    except InvalidSpecifier as error:
        raise value_error(f"is not a version specifier: {text!r}", str(error)) from None
    return text


def _check_size_band(text: str) -> str:
    if len(parse_size_band(text)) < 2:
        raise value_error(f"is an empty range: {text!r}", "write the smaller size first, such as 20 MB to 1000 MB")
    if parse_size_band(text).stop > ASSET_BYTES:
        hint = "write at most 2147 MB; if wheels are larger, build them for fewer archs"
        raise value_error(f"allows more than an asset of a GitHub release, 2 GiB: {text!r}", hint)
    return text


def _check_triton_window(text: str) -> str:
    first, end = text.removeprefix(">=").split(",<")
    if Version(first) >= Version(end):
        raise value_error(f"is an empty range: {text!r}", "write the older version first, such as >=3.2.0,<3.9")
    return text


def _check_plain_text(text: str) -> str:
    """Reject characters that a terminal or a page hides or interprets, and line breaks."""
    if found := _FOREIGN.search(text):
        hint = "write letters, digits and punctuation; over several lines, begin with >-"
        raise value_error(f"has the character U+{ord(found[0]):04X}", hint)
    if text != text.strip():
        raise value_error("begins or ends with a space", "remove the space")
    return text


# in flash-attn's lists; engineering samples that no product has
_SAMPLES = ("gfx940", "gfx941")


def _check_arch(text: str) -> str:
    known = ("gfx90a", *gpu_products(), *_SAMPLES)  # the first, if none is near
    if text not in known:
        nearest = max(known, key=lambda arch: sum(map(text.lower().startswith, accumulate(arch))))
        raise value_error(f"is not a known offload arch: {text!r}", f"write {nearest}, or add it to gpu_names.csv")
    return text


VersionText = Annotated[str, AfterValidator(_check_version)]
FlashAttnVersion = Annotated[str, AfterValidator(_check_flash_attn_version)]
"""``2.8.3``, or ``2.8.4+git4a948e9`` for a preview."""
CxxStandard = Annotated[str, _form("1[47]|2[036]", "a C++ standard", "'17' or '20'")]
Window = Annotated[
    str, _form(f"{_BOUND}(, ?{_BOUND})*", "a version specifier", ">=3.2.0,<3.9"), AfterValidator(_check_specifier)
]
TritonWindow = Annotated[
    str, _form(_TRITONS, "a window of Triton versions", ">=3.2.0,<3.9"), AfterValidator(_check_triton_window)
]
PythonVersion = Annotated[str, _form("3[.][1-9][0-9]?", "a Python version", "3.12")]
OffloadArch = Annotated[str, AfterValidator(_check_arch)]
GlibcVersion = Annotated[str, _form("2[.][1-4][0-9]", "a version of glibc", "2.35")]
RocmVersion = Annotated[str, _form("[1-9][0-9]?([.][0-9]{1,2}){0,2}", "a version of ROCm", "7.2 or 6.2.4")]
Sha256 = Annotated[str, _form(SHA256, "a sha256", "64 of the digits 0-9a-f")]
Digest = Annotated[str, _form(f"sha256:{SHA256}", "an image digest", "sha256: and 64 of the digits 0-9a-f")]
Commit = Annotated[str, _form("[0-9a-f]{40}", "a commit", "40 of the digits 0-9a-f")]
AbsolutePath = Annotated[str, _form(f"{_FOLDERS}+", "a path in an image", "/opt/rocm")]
SourcePath = Annotated[str, _form(f"[A-Za-z0-9_]+{_FOLDERS}*", "a path in the sources", "csrc/composable_kernel")]
SizeBand = Annotated[
    str, _form(f"{_BYTES} to {_BYTES}", "a range of sizes", "20 MB to 1000 MB"), AfterValidator(_check_size_band)
]
DiskSize = Annotated[str, _form("[1-9][0-9]{0,3} GB", "a size on disk", "32 GB")]
GeneratorDirection = Annotated[str, _form("[a-z]+(_[a-z]+)*", "a direction of the generator", "fwd_splitkv")]
# without a comma, which separates the filters of several directions, and without a hyphen, which could start an option
GeneratorPattern = Annotated[str, _form("[A-Za-z0-9_*?@]+", "a filter of the generator", "*_nlogits_*_lse_*")]
SdistName = Annotated[
    str, _form("flash_attn-[0-9][0-9a-z.]*[.]tar[.]gz", "an sdist of flash-attn", "flash_attn-2.8.3.tar.gz")
]
ProjectName = Annotated[
    str, _form("[a-z0-9]+(-[a-z0-9]+)*", "a normalized project name", "einops or typing-extensions", 64)
]
PureWheelName = Annotated[str, _form(_PURE_WHEEL, "a pure wheel", "einops-0.8.2-py3-none-any.whl")]
Repository = Annotated[
    str,
    _form(f"(https://{_HOST}|file://){_FOLDERS}+/?", "a repository", "https://github.com/Dao-AILab/flash-attention"),
]
"""HTTPS, which protects the sources in transit, or a local copy for a machine without a network."""
GitTagName = Annotated[str, _form("[A-Za-z0-9_]+([./+-][A-Za-z0-9_]+)*", "a git tag", "v2.6.3")]
IndexUrl = Annotated[
    str, _form(f"https://{_HOST}{_FOLDERS}*/?", "the address of an index", "https://download.pytorch.org/whl/rocm7.2")
]
PlatformTag = Annotated[
    str, _form("(linux|manylinux_2_[0-9]{1,2})_x86_64", "a platform of torch", "manylinux_2_28_x86_64")
]
ImageReference = Annotated[
    str, _form(_IMAGE, "an image with its tag", "rocm/pytorch:rocm7.2.4_ubuntu22.04_py3.10_pytorch_release_2.10.0")
]
LinuxDistribution = Annotated[
    str, _form("[a-z]{1,20}([0-9]{1,2}([.][0-9]{1,2})?)?", "a Linux distribution", "ubuntu22.04")
]
Citation = Annotated[
    str, StringConstraints(min_length=8, max_length=_LONGEST_REMARK), AfterValidator(_check_plain_text)
]
BuildNumber = Annotated[str, _form("[1-9][0-9]{0,5}", "a build number", "1")]
Reason = Annotated[str, StringConstraints(min_length=10, max_length=_LONGEST_REMARK), AfterValidator(_check_plain_text)]
