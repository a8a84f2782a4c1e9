"""Turn a raw wheel into the finished wheel, reproducibly: equal members give an equal file.

METADATA gets the label in its version, and requirements on torch at the minor that the wheel supports.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import re
from collections.abc import Collection, Iterable, Mapping
from email.parser import HeaderParser
from pathlib import Path
from typing import IO

from packaging.requirements import InvalidRequirement, Requirement
from packaging.tags import parse_tag
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from wheelfactory.core.cell import PRODUCTS, Cell
from wheelfactory.core.errors import InputError
from wheelfactory.core.files import atomic_path
from wheelfactory.core.label import Label
from wheelfactory.wheel.archive import open_archive
from wheelfactory.wheel.corrections import added_members, corrected_lines, corrected_members
from wheelfactory.wheel.read import BUILD_RECORD_NAME, BuildRecord, Wheel
from wheelfactory.wheel.zip_format import ArchiveWriter


def finish_wheel(raw: Path, record: BuildRecord, folder: Path, platform: str | None = None) -> Path:
    """Write the finished wheel of a cell into `folder` and return its path.

    The new wheel has the label in its version, METADATA with torch pinned, the build record, a new RECORD, the module
    that activates Triton, corrected lines, the build tag of the record, and `platform` (such as
    ``manylinux_2_28_x86_64``) as its platform tag if given.

    Raises `InputError` if `raw` is not a wheel, has a damaged RECORD, or is of another release or label.
    """
    wheel = Wheel.open(raw)
    label = Label.parse(record.label)
    require_matching_wheel(wheel, record)
    cell = Cell.parse(record.cell)
    record = record.model_copy(update={"corrections": corrected_lines(wheel)})
    project, _, *builds, python, abi, platforms = raw.name.removesuffix(".whl").split("-")
    stem = f"{project}-{label_version(wheel.version, label)}"
    new = {
        "METADATA": protect_metadata(wheel.metadata_text, label).encode("utf-8"),
        BUILD_RECORD_NAME: record.as_bytes(),
    }
    tags = f"{python}-{abi}-{platform or platforms}"
    if platform or record.build:
        text = wheel.read(f"{wheel.dist_info}/WHEEL")
        new["WHEEL"] = replace_tags(text, map(str, parse_tag(tags)), record.build)
    path = folder / f"{'-'.join([stem, *([record.build] if record.build else builds), tags])}.whl"
    named = {f"{stem}.dist-info/{name}": data for name, data in new.items()}
    return _write(path, wheel, stem, {**corrected_members(wheel), **added_members(cell), **named})


def finish_pure_wheel(raw: Path, version: str, unused: Collection[str], folder: Path) -> Path:
    """Write a wheel without compiled code as ``py3-none-any`` into `folder` and return its path.

    It gets another version, corrected lines and a new RECORD, and does not require the projects `unused`. For a project
    whose setup.py calls the wheel compiled although it left everything compiled out.

    Raises `InputError` if `raw` is not a wheel, has a damaged RECORD, or has compiled code.
    """
    wheel = Wheel.open(raw)
    if wheel.elf_files:
        raise InputError("has compiled code", f"{wheel.elf_files[0].name} in {raw.name}", "build it without ROCm")
    stem = f"{raw.name.split('-')[0]}-{version}"
    tagged = replace_tags(wheel.read(f"{wheel.dist_info}/WHEEL"), ["py3-none-any"])
    new = corrected_members(wheel)
    new[f"{stem}.dist-info/METADATA"] = change_metadata(wheel.metadata_text, version, unused).encode("utf-8")
    new[f"{stem}.dist-info/WHEEL"] = tagged.replace(b"Root-Is-Purelib: false", b"Root-Is-Purelib: true")
    return _write(folder / f"{stem}-py3-none-any.whl", wheel, stem, new)


def rewrite_wheel(raw: Path, folder: Path) -> Path:
    """Write a wheel without label into `folder` and return its path; only its RECORD and archive are new.

    Raises `InputError` if `raw` is not a wheel or has a damaged RECORD.
    """
    wheel = Wheel.open(raw)
    return _write(folder / raw.name, wheel, wheel.dist_info.removesuffix(".dist-info"), {})


def _write(path: Path, wheel: Wheel, stem: str, new: Mapping[str, bytes]) -> Path:
    """Write the members of a wheel in a fixed order to `path`; `new` members replace or join its own."""
    dist_info = f"{stem}.dist-info"
    record = f"{dist_info}/RECORD"
    known = _read_known_lines(wheel)
    lines = []
    with open_archive(wheel.path) as raw, atomic_path(path) as written, written.open("xb") as file:
        members = [info for info in raw.infolist() if not info.is_dir()]
        kept = {_renamed(info.filename, wheel.dist_info, stem): info for info in members}
        # one time for all members; SOURCE_DATE_EPOCH fixes the times of the build
        archive = ArchiveWriter(file, max(info.date_time for info in members))
        # dist-info last, as the wheel specification recommends
        for name in sorted({*kept, *new} - {record}, key=lambda name: (name.startswith(dist_info), name)):
            if name in new:
                archive.add(name, new[name])
                lines.append([name, *hash_and_size(io.BytesIO(new[name]))])
            else:
                info = kept[name]
                archive.copy(name, raw, info, executable=bool(info.external_attr >> 16 & 0o111))
                # keep the build's hash: a new one would hide a change after the build from the gate `record`
                with raw.open(info) as member:
                    lines.append([name, *(known.get(info.filename) or hash_and_size(member))])
        archive.add(record, format_record([*lines, [record, "", ""]]))
        archive.finish()
    return path


def require_matching_wheel(wheel: Wheel, record: BuildRecord) -> None:
    """Raise `InputError` if the wheel is not of the cell's flash-attn release, or has another label."""
    release = Cell.parse(record.cell).public_version
    if wheel.name != "flash-attn" or wheel.version.public != release:
        hint = f"expected the raw wheel of {record.cell}"
        raise InputError(f"not a wheel of flash-attn {release}", wheel.path.name, hint)
    if wheel.version.local not in (None, record.label):
        raise InputError("already has another label", wheel.path.name, f"build {record.cell} from its sources")


def replace_tags(wheel: bytes, tags: Iterable[str], build: str | None = None) -> bytes:
    """Replace the tags in the text of WHEEL, and with `build` the build tag; the new ones stand at its end, sorted."""
    replaced = (b"tag:", b"build:") if build else b"tag:"
    lines = [line for line in wheel.splitlines() if line and not line.lower().startswith(replaced)]
    new = [f"Build: {build}".encode()] * bool(build) + [f"Tag: {tag}".encode() for tag in sorted(tags)]
    return b"\n".join([*lines, *new, b""])


def _renamed(name: str, dist_info: str, stem: str) -> str:
    """Rename the top folder of a member if it is ``NAME-VERSION.dist-info`` or ``NAME-VERSION.data``."""
    top, slash, below = name.partition("/")
    for kind in (".dist-info", ".data"):
        if slash and top == dist_info.removesuffix(".dist-info") + kind:
            return f"{stem}{kind}/{below}"
    return name


def _read_known_lines(wheel: Wheel) -> Mapping[str, list[str]]:
    """Return hash and size, as RECORD spells them, of every member for which RECORD has a sha256."""
    name = f"{wheel.dist_info}/RECORD"
    if name not in wheel.sizes:
        return {}
    try:
        rows = list(csv.reader(io.StringIO(wheel.read(name).decode("utf-8"), newline="")))
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError("damaged RECORD", f"{wheel.path.name} ({error})", "build the wheel again") from None
    return {row[0]: row[1:] for row in rows if len(row) == 3 and row[1].startswith("sha256=")}


def hash_and_size(file: IO[bytes]) -> list[str]:
    """Return hash and size of a file as RECORD spells them."""
    digest, size = hashlib.sha256(), 0
    while piece := file.read(1 << 20):
        digest.update(piece)
        size += len(piece)
    text = base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode()
    return [f"sha256={text}", str(size)]


def format_record(rows: Iterable[list[str]]) -> bytes:
    """Return the text of RECORD; a row is name, hash and size."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode("utf-8")


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
