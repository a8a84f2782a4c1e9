"""Gate contents: a wheel has its plain build and the members declared for its cell; any other byte is refused."""

from __future__ import annotations

import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import given as with_data
from hypothesis import strategies as st

from elf_factory import library
from wheel_factory import (
    CK,
    MATRIX,
    PACKAGE,
    TRITON,
    WHEEL_TEXT,
    build_record,
    extension,
    extension_name,
    finished_wheel,
    keep_plain,
    metadata_text,
    payload,
    read_zip,
    small_machine,
    wheel_text,
)
from wheelfactory.core.cell import Cell
from wheelfactory.core.errors import BuildError
from wheelfactory.core.label import Label
from wheelfactory.matrix.facts import Context
from wheelfactory.verify.gates import is_refused, runs_on_publish, verify
from wheelfactory.verify.result import Finding
from wheelfactory.wheel.corrections import ACTIVATION_MODULE
from wheelfactory.wheel.zip_format import ArchiveWriter

UPSTREAM = {
    **PACKAGE,
    "flash_attn/layers/rotary.py": b"import torch\n",
    "flash_attn/modules/mha.py": b"scale = 1.0 / math.sqrt(d)\n",
    "hopper/__init__.py": b"",
}
EXTENSION = extension_name(CK)


def plain_machine(folder: Path) -> Context:
    """A machine that has the plain build of the good wheels."""
    made = small_machine(folder / "cache")
    keep_plain(folder / "cache", members=UPSTREAM)
    return made


def findings(path: Path, cell: Cell, given: Context) -> dict[str, tuple[Finding, ...]]:
    """The findings of the gates that run on publishing, by gate."""
    results = verify(path, cell, selected=runs_on_publish, context=given)
    return {result.gate: result.findings for result in results if result.findings}


def wheel(folder: Path, cell: Cell = TRITON, /, **changes: Any) -> Path:
    """A good wheel of the plain build, with changes as `finished_wheel` takes them; RECORD is right."""
    return finished_wheel(folder, cell, **{"members": {**UPSTREAM, **payload(cell)}, **changes})


def with_members(cell: Cell = TRITON, /, **members: bytes | None) -> Callable[[Path], Path]:
    kept = {**UPSTREAM, **payload(cell), **members}
    return lambda folder: wheel(folder, cell, members={name: data for name, data in kept.items() if data is not None})


def replaced(old: str, new: str, cell: Cell = TRITON) -> Callable[[Path], Path]:
    """The good wheel with some text of METADATA replaced."""
    label = Label.from_cell(cell)
    text = metadata_text(f"2.8.3+{label}", requires=["einops", label.torch_pin])
    assert old in text
    return lambda folder: wheel(folder, cell, metadata=text.replace(old, new, 1))


def more(cell: Cell = TRITON, /, **members: bytes) -> Callable[[Path], Path]:
    return lambda folder: wheel(folder, cell, more=members)


def edited(change: Callable[[zipfile.ZipInfo], None], name: str = "", cell: Cell = TRITON) -> Callable[[Path], Path]:
    """The good wheel with a changed directory entry of one member; of the first without a name."""

    def make(folder: Path) -> Path:
        path = wheel(folder, cell)
        with zipfile.ZipFile(path) as archive:
            members = [(info, archive.read(info)) for info in archive.infolist()]
        change(next(info for info, _ in members if name in ("", info.filename)))
        with zipfile.ZipFile(path, "w") as archive:
            for info, data in members:
                archive.writestr(info, data)
        return path

    return make


def mode(name: str, bits: int, cell: Cell = TRITON) -> Callable[[Path], Path]:
    """The good wheel with other bits of one member."""
    return edited(lambda info: setattr(info, "external_attr", bits << 16), name, cell)


def with_folder(folder: Path) -> Path:
    path = wheel(folder)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("evil/", b"")
    return path


def put(form: str, where: bytes, at: int, value: int) -> Callable[[Path], Path]:
    """The good wheel with a changed field in the first structure with this magic."""

    def make(folder: Path) -> Path:
        path = wheel(folder)
        data = bytearray(path.read_bytes())
        struct.pack_into(form, data, data.index(where) + at, value)
        path.write_bytes(data)
        return path

    return make


def padded(folder: Path) -> Path:
    """The good wheel with a member whose stream starts with 5,000 empty blocks."""
    path = wheel(folder)
    members = read_zip(path)
    name = next(iter(members))
    stream = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = b"\0\0\0\xff\xff" * 5000 + stream.compress(members[name]) + stream.flush()
    with path.open("wb") as file:
        archive = ArchiveWriter(file, (2025, 1, 1, 0, 0, 0))
        for other, data in members.items():
            if other == name:
                archive._begin(other, zipfile.ZIP_DEFLATED, (zlib.crc32(data), len(packed), len(data)), 0o100644)
                archive._write(packed)
            else:
                archive.add(other, data)
        archive.finish()
    return path


def with_larger_end(folder: Path) -> Path:
    """The good wheel with a ZIP64 end record before its own."""
    path = wheel(folder)
    data = path.read_bytes()
    count, size, start = struct.unpack("<10xHIIH", data[-22:])[:3]
    wide = struct.pack("<4sQHHIIQQQQ", b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, size, start)
    locator = struct.pack("<4sIQI", b"PK\x06\x07", 0, start + size, 1)
    path.write_bytes(data[:-22] + wide + locator + data[-22:])
    return path


@dataclass(frozen=True)
class Altered:
    """A wheel that differs from its sources: how to make it, and the file and text of the finding."""

    make: Callable[[Path], Path]
    file: str
    found: str
    cell: Cell = TRITON
    gate: str = "contents"


def added(name: str, data: bytes = b"import evil\n", cell: Cell = TRITON) -> Altered:
    return Altered(with_members(cell, **{name: data}), name, f"{len(data):,} bytes", cell)


def changed(name: str, data: bytes, found: str) -> Altered:
    return Altered(with_members(**{name: data}), name, found)


STEM = "flash_attn-2.8.3+rocm72torch2.13triton"
MEMBER, DIRECTORY = b"PK\x03\x04", b"PK\x01\x02"
DIST_INFO = f"{STEM}.dist-info"

ALTERED = {
    # what runs at start-up, lands elsewhere, or takes the place of others
    "a .pth file": added("evil.pth"),
    "a .pth file by another way": added(f"{STEM}.data/purelib/x.pth"),
    "entry points": Altered(
        more(**{"entry_points.txt": b"[console_scripts]\npip = evil:main\n"}), "entry_points.txt", "34 bytes"
    ),
    "a file in torch": added("torch/x.py"),
    "a package beside the module that was checked": added("flash_attn_2_cuda/__init__.py"),
    "the module of Triton in a CK wheel": added(ACTIVATION_MODULE, cell=CK),
    "a dist-info more": Altered(
        with_members(**{"pip-99.dist-info/METADATA": b"Name: pip\n"}), STEM, "2 dist-info folders", gate="identity"
    ),
    # compiled and hidden files
    "a library": added("flash_attn/x.so", library(source="int x;")),
    "a second library in a CK wheel": added("flash_attn/x.so", library(source="int x;"), CK),
    "an ELF file behind one byte": added("flash_attn/data.bin", b"\n" + library(source="int x;")),
    # upstream's files
    "another softmax scale": changed("flash_attn/modules/mha.py", b"scale = 1.0 / d\n", "'scale = 1.0 / d'"),
    "a line more": changed("flash_attn/layers/rotary.py", b"import torch\nimport evil\n", "'import evil'"),
    "a line feed more": changed("flash_attn/layers/rotary.py", b"import torch\n\n", "1 more"),
    "no line feed": changed("flash_attn/layers/rotary.py", b"import torch", "no line feed"),
    "a missing file": Altered(with_members(**{"flash_attn/modules/mha.py": None}), STEM, "no such file"),
    "another module in that place": changed(ACTIVATION_MODULE, b"import evil\n", "'import evil'"),
    "a missing licence": Altered(more(**{"licenses/LICENSE": b""}), f"{DIST_INFO}/licenses/LICENSE", "''"),
    # METADATA
    "torch twice": Altered(replaced("==2.13.*", "==2.13.*\nRequires-Dist: torch"), "METADATA", "torch'"),
    "a second Version": Altered(replaced("Version: 2.8.3", "Version: 9\nVersion: 2.8.3"), "METADATA", "Version: 9"),
    "a header behind a bare CR": Altered(
        replaced("Flash Attention\n", "Flash\rRequires-Dist: evil\n"), "METADATA", "\\rRequires-Dist: evil"
    ),
    "a NUL": Altered(replaced("Requires-Python: >=3.9", "Requires-Python: >=3.9\0"), "METADATA", "\\x00"),
    "any Python": Altered(replaced("Requires-Python: >=3.9\n", ""), "METADATA", "Requires-Dist: einops"),
    "METADATA that is not UTF-8": Altered(more(METADATA=b"\xff"), "METADATA", "\ufffd"),
    # WHEEL and top_level.txt
    "tags that its name has not": Altered(
        lambda folder: wheel(folder, wheel=WHEEL_TEXT.replace("py3", "py2")), "WHEEL", "py2-none-any"
    ),
    "no tags": Altered(lambda folder: wheel(folder, CK, wheel="Wheel-Version: 1.0\n"), "WHEEL", "''", CK),
    "a compiled wheel that says it is pure": Altered(
        lambda folder: wheel(folder, CK, wheel=wheel_text(TAGS).replace("Purelib: false", "Purelib: true")),
        "WHEEL",
        "Root-Is-Purelib: true",
        CK,
    ),
    "another top-level name": Altered(more(**{"top_level.txt": b"pip\n"}), "top_level.txt", "'pip'"),
    # fields of the archive
    "a member that is run as its owner": Altered(
        mode("flash_attn/__init__.py", stat.S_IFREG | stat.S_ISUID | 0o755), "flash_attn/__init__.py", "mode 104755"
    ),
    "a program": Altered(
        mode("flash_attn/__init__.py", stat.S_IFREG | 0o755), "flash_attn/__init__.py", "mode 100755"
    ),
    "an extension without permission to execute": Altered(
        mode(EXTENSION, stat.S_IFREG | 0o644, CK), EXTENSION, "mode 100644", CK
    ),
    "a folder": Altered(with_folder, "evil/", "an entry"),
    "a comment": Altered(edited(lambda info: setattr(info, "comment", b"x" * 9)), "", "different bytes"),
    "another made-by": Altered(put("<H", DIRECTORY, 4, 20), "", "different bytes"),
    "another version needed, before the member": Altered(put("<H", MEMBER, 4, 63), "", "a different header"),
    "another time before the member": Altered(put("<H", MEMBER, 10, 1), "", "different bytes"),
    "an end for larger archives": Altered(with_larger_end, "(the directory)", "different bytes"),
    "a stream of empty blocks": Altered(padded, "flash_attn/__init__.py", "25,"),
    # the outside of the extension
    "no ELF file in its place": Altered(
        with_members(CK, **{EXTENSION: b"\n" + extension()}), EXTENSION, "no such file", CK
    ),
    "bytes behind it": Altered(
        with_members(CK, **{EXTENSION: extension(*MATRIX.archs(CK)) + b"PK"}), EXTENSION, "2 bytes at", CK
    ),
    "a second module in it": Altered(
        with_members(CK, **{EXTENSION: extension(*MATRIX.archs(CK), defined=("PyInit_flash_attn_2_cuda", "PyInit_x"))}),
        EXTENSION,
        "PyInit_flash_attn_2_cuda, PyInit_x",
        CK,
    ),
}  # fmt: skip
TAGS = "cp311-cp311-manylinux_2_28_x86_64"


@pytest.mark.parametrize("cell", [TRITON, CK], ids=["Triton", "CK"])
def test_the_good_wheel_they_are_made_from_passes(tmp_path: Path, cell: Cell) -> None:
    assert findings(wheel(tmp_path, cell), cell, plain_machine(tmp_path)) == {}


@pytest.mark.parametrize("kind", ALTERED)
def test_an_altered_wheel_is_refused_and_the_change_is_named(tmp_path: Path, kind: str) -> None:
    altered = ALTERED[kind]
    found = findings(altered.make(tmp_path), altered.cell, plain_machine(tmp_path))

    assert set(found) - {"linking", "code-objects"} == {altered.gate}
    texts = [(finding.file, finding.found) for finding in found[altered.gate]]
    assert any(altered.file in file and altered.found in text for file, text in texts), texts
    assert all(finding.remedy for finding in found[altered.gate])


def test_another_release_under_a_new_name_is_refused(tmp_path: Path) -> None:
    """A relabelled 2.8.3: every byte is good, but of another release."""
    release = MATRIX.flash_attn["2.8.3"]
    assert release.sdist
    newer = release.model_copy(update={"sdist": release.sdist.model_copy(update={"sha256": "b" * 64})})
    matrix = MATRIX.model_copy(update={"flash_attn": {**MATRIX.flash_attn, "2.8.3.post2": newer}})
    cell = Cell.parse(TRITON.id.replace("2.8.3", "2.8.3.post2"))
    record = build_record(TRITON, cell=cell.id, source=newer.source_pin)
    path = finished_wheel(tmp_path, cell, members={**UPSTREAM, **payload(cell)}, record=record)
    newest = {**UPSTREAM, "flash_attn/new.py": b""}
    given = replace(small_machine(tmp_path / "cache"), matrix=matrix)
    keep_plain(given.cache, matrix=matrix, version="2.8.3.post2", members=newest)
    found = findings(path, cell, given)

    assert [(gate, finding.expected) for gate, (finding,) in found.items()] == [("contents", "flash_attn/new.py")]


def test_without_a_plain_build_verification_is_an_error(tmp_path: Path) -> None:
    given = replace(small_machine(tmp_path / "cache"), cache=tmp_path / "empty")
    with pytest.raises(BuildError, match="missing plain wheel to compare with") as error:
        verify(wheel(tmp_path), TRITON, selected=runs_on_publish, may_build=False, context=given)
    assert "`wheelfactory verify`" in error.value.hint


def logical(path: Path) -> Mapping[str, tuple[bytes, int]]:
    """Names, bytes and modes, as an installer extracts them."""
    with zipfile.ZipFile(path) as archive:
        return {info.filename: (archive.read(info), info.external_attr >> 16) for info in archive.infolist()}


@pytest.fixture(scope="module", params=[TRITON, CK], ids=["Triton", "CK"])
def good(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Cell]:
    cell: Cell = request.param
    return wheel(tmp_path_factory.mktemp("good"), cell), cell


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@with_data(data=st.data())
def test_any_changed_byte_that_affects_installation_is_refused(
    good: tuple[Path, Cell], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Wheels that pass differ only in the times and the compression of members."""
    path, cell = good
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    folder = tmp_path_factory.mktemp("altered")
    altered = folder / path.name
    altered.write_bytes(content)
    try:
        results = verify(altered, cell, selected=runs_on_publish, context=plain_machine(folder))
    except Exception as error:  # any other exception would be a traceback
        assert type(error).__name__ == "InputError", error
        return
    assert is_refused(results) or (logical(altered) == logical(path) and may_differ(path, at)), at


def may_differ(path: Path, at: int) -> bool:
    """Whether a byte belongs to a member's time or compressed data."""
    data = path.read_bytes()
    header, entry = data.rfind(MEMBER, 0, at + 1), data.rfind(DIRECTORY, 0, at + 1)
    if entry > header:
        return 12 <= at - entry < 16
    name, extra = struct.unpack_from("<HH", data, header + 26)
    return 10 <= at - header < 14 or at >= header + 30 + name + extra


@pytest.mark.parametrize("corrections", [None, {"flash_attn/__init__.py": (1,)}], ids=["older record", "no such line"])
def test_a_build_record_names_the_lines_that_are_corrected(
    tmp_path: Path, corrections: Mapping[str, tuple[int, ...]] | None
) -> None:
    path = wheel(tmp_path, record=build_record(TRITON, corrections=corrections))
    (finding,) = findings(path, TRITON, plain_machine(tmp_path))["contents"]
    assert (finding.file, finding.expected) == ("build record corrections", "{}")
