"""A raw wheel -> the finished one, written canonically: the same content gives the same bytes."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import IO

from packaging.tags import parse_tag

from wheelfactory.core.cell import Cell
from wheelfactory.core.errors import InputError
from wheelfactory.core.files import atomic_path
from wheelfactory.core.label import Label
from wheelfactory.wheel.activation.members import added_members
from wheelfactory.wheel.archive import open_archive
from wheelfactory.wheel.build_record import BuildRecord
from wheelfactory.wheel.metadata import label_version, protect_metadata
from wheelfactory.wheel.read import BUILD_RECORD_NAME, Wheel
from wheelfactory.wheel.zip_format import ArchiveWriter

_CHUNK = 1 << 20


def finish_wheel(raw: Path, record: BuildRecord, folder: Path, platform: str | None = None) -> Path:
    """Write the wheel of a cell into `folder`: labelled, METADATA protected, build record added, RECORD new.

    A Triton wheel gets the module that makes it work without an environment variable (`activation`).

    With `platform`, such as ``manylinux_2_28_x86_64``, the name and WHEEL get that platform tag instead of theirs.

    Every member gets the newest time in `raw`, which a build with SOURCE_DATE_EPOCH has fixed. Members that do not
    change are copied as they are packed, and so are their lines of RECORD: nothing is unpacked or checked here, and
    what the build said of a member is what the required gate `record` holds it against. So one that was changed after
    the build is refused there instead of getting a new hash here. Only a member that the RECORD of `raw` has no sha256
    of is unpacked for one.

    Raises `InputError` if `raw` is no wheel, has a RECORD that cannot be read, or is of another release or label.
    """
    wheel = Wheel.open(raw)
    label = Label.parse(record.label)
    require_matching_wheel(wheel, record)
    project, _, rest = raw.name.split("-", 2)
    stem = f"{project}-{label_version(wheel.version, label)}"
    new = {
        "METADATA": protect_metadata(wheel.metadata_text, label).encode("utf-8"),
        BUILD_RECORD_NAME: record.as_bytes(),
    }
    if platform:
        rest = f"{rest.rpartition('-')[0]}-{platform}.whl"
        tags = parse_tag("-".join(rest.removesuffix(".whl").split("-")[-3:]))
        new["WHEEL"] = replace_tags(wheel.read(f"{wheel.dist_info}/WHEEL"), map(str, tags))
    path, added = folder / f"{stem}-{rest}", added_members(Cell.parse(record.cell).backend)
    with atomic_path(path) as written, written.open("xb") as file:
        _write(file, wheel, stem, {**added, **{f"{stem}.dist-info/{name}": data for name, data in new.items()}})
    return path


def rewrite_wheel(raw: Path, folder: Path) -> Path:
    """Write a wheel that gets no label into `folder`: its members as they are, and RECORD new; see `finish_wheel`.

    Raises `InputError` if `raw` is no wheel or has a RECORD that cannot be read.
    """
    wheel = Wheel.open(raw)
    path = folder / raw.name
    with atomic_path(path) as written, written.open("xb") as file:
        _write(file, wheel, wheel.dist_info.removesuffix(".dist-info"), {})
    return path


def _write(file: IO[bytes], wheel: Wheel, stem: str, new: Mapping[str, bytes]) -> None:
    """Write the members of a wheel, with those that are new in place of its own, in one fixed order."""
    dist_info = f"{stem}.dist-info"
    record = f"{dist_info}/RECORD"
    known = _known_lines(wheel)
    lines = []
    with open_archive(wheel.path) as raw:
        members = [info for info in raw.infolist() if not info.is_dir()]
        kept = {_renamed(info.filename, wheel.dist_info, stem): info for info in members}
        archive = ArchiveWriter(file, max(info.date_time for info in members))
        for name in sorted({*kept, *new} - {record}, key=lambda name: (name.startswith(dist_info), name)):
            if name in new:
                archive.add(name, new[name])
                lines.append([name, *_hash_and_size([new[name]])])
            else:
                info = kept[name]
                archive.copy(name, raw, info, executable=bool(info.external_attr >> 16 & 0o111))
                lines.append([name, *(known.get(info.filename) or _hash_and_size(_pieces(raw, info)))])
    archive.add(record, format_record([*lines, [record, "", ""]]))
    archive.finish()


def require_matching_wheel(wheel: Wheel, record: BuildRecord) -> None:
    """Raise `InputError` if the wheel is not of the project and release of the cell, or has another label already."""
    release = Cell.parse(record.cell).flash_attn
    if wheel.name != "flash-attn" or wheel.version.public != release:
        raise InputError(f"not a wheel of flash-attn {release}", wheel.path.name, f"{record.cell} is made from one")
    if wheel.version.local not in (None, record.label):
        raise InputError("labelled already", wheel.path.name, f"build {record.cell} instead of giving it its label")


def replace_tags(wheel: bytes, tags: Iterable[str]) -> bytes:
    """WHEEL with these tags, sorted and at its end, instead of those it has."""
    lines = [line for line in wheel.splitlines() if line and not line.lower().startswith(b"tag:")]
    return b"\n".join([*lines, *(f"Tag: {tag}".encode() for tag in sorted(tags)), b""])


def _renamed(name: str, dist_info: str, stem: str) -> str:
    """A member's name with its top folder renamed if that is ``NAME-VERSION.dist-info`` or ``NAME-VERSION.data``."""
    top, slash, below = name.partition("/")
    for kind in (".dist-info", ".data"):
        if slash and top == dist_info.removesuffix(".dist-info") + kind:
            return f"{stem}{kind}/{below}"
    return name


def _known_lines(wheel: Wheel) -> Mapping[str, list[str]]:
    """Hash and size of every member that the wheel's RECORD has a sha256 of, as they stand there."""
    name = f"{wheel.dist_info}/RECORD"
    if name not in wheel.sizes:
        return {}
    try:
        rows = list(csv.reader(io.StringIO(wheel.read(name).decode("utf-8"), newline="")))
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError("damaged RECORD", f"{wheel.path.name} ({error})", "build the wheel again") from None
    return {row[0]: row[1:] for row in rows if len(row) == 3 and row[1].startswith("sha256=")}


def _pieces(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Iterator[bytes]:
    with archive.open(info) as member:
        yield from iter(partial(member.read, _CHUNK), b"")


def _hash_and_size(pieces: Iterable[bytes]) -> list[str]:
    digest, size = hashlib.sha256(), 0
    for piece in pieces:
        digest.update(piece)
        size += len(piece)
    text = base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode()
    return [f"sha256={text}", str(size)]


def format_record(rows: Iterable[list[str]]) -> bytes:
    """RECORD of these rows: name, hash and size of each member."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode("utf-8")
