"""A raw wheel -> the wheel of a cell, written canonically: the same content gives the same bytes."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

from wheelfactory.cell import Cell
from wheelfactory.errors import InputError
from wheelfactory.files import atomic_path
from wheelfactory.label import Label
from wheelfactory.wheel.archive import open_archive
from wheelfactory.wheel.metadata import labelled, protect
from wheelfactory.wheel.read import RECORD_NAME, Wheel
from wheelfactory.wheel.record import BuildRecord

_CHUNK = 1 << 20


def finish_wheel(raw: Path, record: BuildRecord, folder: Path) -> Path:
    """Write the wheel of a cell into `folder`: labelled, METADATA protected, build record added, RECORD new.

    Every member gets the newest time in `raw`, which a build with SOURCE_DATE_EPOCH has fixed. Members are
    copied in pieces, so the wheel's size is not a matter of memory. Raises `InputError` if `raw` is no wheel, or one of
    another release or label.
    """
    wheel = Wheel.open(raw)
    label = Label.parse(record.label)
    _refuse_other(wheel, record)
    project, _, rest = raw.name.split("-", 2)
    stem = f"{project}-{labelled(wheel.version, label)}"
    dist_info = f"{stem}.dist-info"
    new = {
        f"{dist_info}/METADATA": protect(wheel.metadata_text, label).encode("utf-8"),
        f"{dist_info}/{RECORD_NAME}": record.to_bytes(),
    }
    path = folder / f"{stem}-{rest}"
    with atomic_path(path) as written, open_archive(raw) as old, zipfile.ZipFile(written, "w") as target:
        members = [info for info in old.infolist() if not info.is_dir()]
        kept = {_renamed(info.filename, wheel.dist_info, stem): info for info in members}
        writer = _Writer(target, max(info.date_time for info in members))
        names = {*kept, *new} - {f"{dist_info}/RECORD"}
        for name in sorted(names, key=lambda name: (name.startswith(dist_info), name)):
            if name in new:
                writer.add(name, iter([new[name]]), len(new[name]), executable=False)
            else:
                info = kept[name]
                writer.add(name, _pieces(old, info), info.file_size, executable=_is_executable(info))
        writer.finish(f"{dist_info}/RECORD")
    return path


def _refuse_other(wheel: Wheel, record: BuildRecord) -> None:
    """Raise `InputError` if the wheel is not of the project and release of the cell, or has another label already."""
    release = Cell.parse(record.cell).flash_attn
    if wheel.name != "flash-attn" or wheel.version.public != release:
        raise InputError(f"not a wheel of flash-attn {release}", wheel.path.name, f"{record.cell} is made from one")
    if wheel.version.local not in (None, record.label):
        raise InputError("labelled already", wheel.path.name, f"build {record.cell} instead of giving it its label")


def _renamed(name: str, dist_info: str, stem: str) -> str:
    """A member's name with its top folder renamed if that is ``NAME-VERSION.dist-info`` or ``NAME-VERSION.data``."""
    top, slash, below = name.partition("/")
    for kind in (".dist-info", ".data"):
        if slash and top == dist_info.removesuffix(".dist-info") + kind:
            return f"{stem}{kind}/{below}"
    return name


def _pieces(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Iterator[bytes]:
    with archive.open(info) as member:
        while piece := member.read(_CHUNK):
            yield piece


def _is_executable(info: zipfile.ZipInfo) -> bool:
    return bool(info.external_attr >> 16 & 0o111)


class _Writer:
    """Adds members with one fixed time and mode, and keeps the lines of RECORD."""

    def __init__(self, archive: zipfile.ZipFile, date_time: tuple[int, int, int, int, int, int]) -> None:
        self._archive = archive
        self._time = date_time
        self._lines = io.StringIO()
        self._record = csv.writer(self._lines, lineterminator="\n")

    def add(self, name: str, pieces: Iterator[bytes], expected_size: int, *, executable: bool) -> None:
        digest, size = hashlib.sha256(), 0
        info = self._info(name, executable)
        info.file_size = expected_size  # zipfile decides by it whether the member needs ZIP64
        with self._archive.open(info, "w") as member:
            for piece in pieces:
                digest.update(piece)
                size += len(piece)
                member.write(piece)
        text = base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode()
        self._record.writerow([name, f"sha256={text}", size])

    def finish(self, record: str) -> None:
        self._record.writerow([record, "", ""])
        self._archive.writestr(self._info(record, executable=False), self._lines.getvalue().encode("utf-8"))

    def _info(self, name: str, executable: bool) -> zipfile.ZipInfo:
        info = zipfile.ZipInfo(name, self._time)
        info.compress_type = zipfile.ZIP_DEFLATED
        info.create_system = 3  # Unix, so that the mode below is read
        info.external_attr = (0o100755 if executable else 0o100644) << 16
        return info
