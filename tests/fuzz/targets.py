"""Fuzz targets: the reader, the invariants of its result, and the mutations of its inputs."""

from __future__ import annotations

import base64
import io
import json
import re
import shutil
import zipfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import atheris
from sigstore.verify import Verifier

from fuzz import seeds, shapes
from wheel_factory import CK, build_record, small_machine
from wheelfactory.build.image import render_dockerfile
from wheelfactory.core.cell import Cell
from wheelfactory.core.errors import InputError
from wheelfactory.core.files import file_sha256
from wheelfactory.core.label import Label
from wheelfactory.core.strict import parse_json, parse_record, read_lines
from wheelfactory.core.wrap import write_message
from wheelfactory.doctor.published_wheels import PublishedWheel as DoctorWheel
from wheelfactory.doctor.published_wheels import parse_wheels
from wheelfactory.kernels.archive import unpack_archive
from wheelfactory.kernels.compiler.store import ObjectRecord, Store
from wheelfactory.matrix.expand import expand, explain_selection, github_matrix
from wheelfactory.matrix.load import load_matrix
from wheelfactory.release.attestation import check_attestation
from wheelfactory.release.bundle import PUBLISH_WORKFLOW, read_subjects
from wheelfactory.release.manifest import WheelRow, manifest_bytes, read_manifest, verified_archs
from wheelfactory.site.index import render_index
from wheelfactory.verify.gate import Subject
from wheelfactory.verify.record import check_record
from wheelfactory.verify.result import Status
from wheelfactory.wheel.archive import find_archive_faults
from wheelfactory.wheel.elf.image import DamagedElfError
from wheelfactory.wheel.elf.mangled import find_qualified_name
from wheelfactory.wheel.elf.offload import read_bundles
from wheelfactory.wheel.elf.offload_package import read_packages
from wheelfactory.wheel.elf.read import read_elf
from wheelfactory.wheel.read import Wheel, read_build_record

_LONGEST_ID = 150
"""Limit for a cell id, which is used in names of files: a file name has at most 255 bytes."""


class Target:
    """A reader; `folder` is for the files that it reads from."""

    words: Sequence[bytes] = ()
    """Tokens of inputs, for the dictionary of the fuzzer."""
    seeds: Callable[[], Iterable[bytes]]
    change: Callable[[bytes, Random, shapes.Mutate], bytes]
    """Mutates a well-formed input; raises `ValueError` for a malformed one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, data: bytes) -> None:
        """Read an input. Any exception is a finding."""
        raise NotImplementedError

    def mutate(self, data: bytes, most: int, seed: int) -> bytes:
        """Mutate an input: half of the time byte by byte, half with `change`."""
        random = Random(seed)  # noqa: S311 # it must be repeatable
        if random.random() < 0.5:
            with suppress(ValueError):
                return type(self).change(data, random, lambda part: atheris.Mutate(part, most))[:most]
        return bytes(atheris.Mutate(data, most))


class Elf(Target):
    """`read_elf`, and every reader of an ELF file."""

    words = b"\x7fELF .hip_fatbin .llvm.offloading __CLANG_OFFLOAD_BUNDLE__ CCOB GLIBC_2.34 GLIBCXX_3.4.30".split()
    seeds = staticmethod(seeds.libraries)
    change = staticmethod(shapes.change_word)

    def read(self, data: bytes) -> None:
        with suppress(DamagedElfError):
            file = read_elf("library.so", data)
            assert file.glibc is None or file.glibc.release
            assert file.glibcxx is None or file.glibcxx.release
            for symbol in file.undefined:
                find_qualified_name(symbol.name)


class Pieces(Target):
    """A reader of bundles, which do not overlap."""

    pieces: Callable[[memoryview], Iterable[Any]]

    def read(self, data: bytes) -> None:
        with suppress(DamagedElfError):
            end = 0
            for piece in type(self).pieces(memoryview(data)):
                assert end <= piece.offset < piece.offset + piece.size <= len(data)
                assert sum(entry.size for entry in piece.entries) <= getattr(piece, "unpacked_size", piece.size)
                end = piece.offset + piece.size


class Bundles(Pieces):
    """`read_bundles`."""

    words = (b"__CLANG_OFFLOAD_BUNDLE__", b"CCOB", b"hipv4-amdgcn-amd-amdhsa--gfx90a:xnack-")
    seeds = staticmethod(seeds.sections)
    change = staticmethod(shapes.change_bundle)
    pieces = staticmethod(read_bundles)


class Packages(Pieces):
    """`read_packages`."""

    words = (b"\x10\xff\x10\xad", b"arch\0", b"triple\0", b"gfx942:xnack-\0", b"amdgcn-amd-amdhsa\0")
    seeds = staticmethod(seeds.packages)
    change = staticmethod(shapes.change_word)
    pieces = staticmethod(read_packages)


class WheelFile(Target):
    """Every reader of a wheel; a wheel without faults can be unpacked."""

    words = (b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07", b"PK\x07\x08", b"../")
    seeds = staticmethod(seeds.wheels)
    change = staticmethod(shapes.change_wheel)

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._path = folder / seeds.WHEEL_NAME
        self._record, self._given = build_record(CK), small_machine(folder)

    def read(self, data: bytes) -> None:
        self._path.write_bytes(data)
        with suppress(InputError):
            wheel = Wheel.open(self._path)
            if not find_archive_faults(self._path):
                self._unpack()
            for look in (
                *(lambda: wheel.sizes, lambda: wheel.elf_files, lambda: wheel.metadata, lambda: wheel.requirements),
                *(lambda: wheel.requires_python, lambda: read_build_record(wheel)),
            ):
                with suppress(InputError):
                    look()
            check_record(Subject(wheel, self._given, record=self._record, cell=CK))

    def _unpack(self) -> None:
        root = self._path.parent / "unpacked"
        with zipfile.ZipFile(self._path) as archive:
            for info in archive.infolist():
                assert (root / info.filename).resolve().is_relative_to(root.resolve())
                assert len(archive.read(info)) == info.file_size


class Matrix(Target):
    """`load_matrix`; the cells of a valid matrix can be named, explained and listed for a workflow."""

    words = (
        *b"flash-attn: sdist: python: torch: rocm: exclude: &a *a !!int { [ <<: ../ -- $(id) \xe2\x80\xae".split(),
        *b"https:// file:/// : @ .post1 rc1 +x >= ,< === .* -py3-none-any.whl .tar.gz gfx942 999999999 kB".split(),
        *(b"\t", b"\x1b[", b" MB to ", b"&a ", b"!!int "),
    )
    seeds = staticmethod(seeds.matrices)
    change = staticmethod(shapes.change_matrix)

    def read(self, data: bytes) -> None:
        path = self._folder / "matrix.yaml"
        path.write_bytes(data)
        with suppress(InputError):
            matrix = load_matrix(path)
            expansion = expand(matrix)
            cells = expansion.cells
            assert all(line.isprintable() for line in explain_selection(expansion, cells, (), "*"))
            assert json.loads(github_matrix(matrix, cells, shards=True)).keys() == {"include"}
            for cell in cells:
                assert Cell.parse(cell.id) == cell
                assert Label.parse(str(Label.from_cell(cell))).backend is cell.backend
                assert len(cell.id) <= _LONGEST_ID
                render_dockerfile(matrix, cell)


class Manifest(Target):
    """`read_manifest` and the doctor's `parse_wheels`: they agree, and rows can be listed, written and read back.

    The doctor passes over fields that it does not know, and looks at no more of gates and evidence than it shows.
    """

    words = (
        *(b'"format":2', b'"cell":', b'"label":', b'"gates":[', b'"status":"passed"', b'"url":"https://', b'"yanked":'),
        *b"null NaN 1e999 -0 \\ud800 \\u202e javascript: ../ git0123abc \xef\xbb\xbf".split(),
    )
    seeds = staticmethod(seeds.manifests)
    change = staticmethod(shapes.change_json)

    def read(self, data: bytes) -> None:
        path = self._folder / "manifest.jsonl"
        path.write_bytes(data)
        wheels, refused = None, ""
        with suppress(InputError):
            wheels = parse_wheels(data, str(path), "file:///srv/")
        try:
            rows = read_manifest(path)
        except InputError as error:
            refused = error.which.removeprefix(str(path)).partition(": ")[2]
            known_by_one = re.match(r"(gates|evidence)\.|.*Extra inputs are not permitted", refused)
            assert wheels is None or known_by_one, refused
            return
        assert wheels is not None
        assert list(map(_seen_by_doctor, rows)) == [_shown_by_doctor(wheel) for wheel in wheels]
        for name in render_index(rows):
            assert re.fullmatch(r"simple(/[a-z0-9.-]*[a-z0-9])*/index\.html", name), name
        path.write_bytes(manifest_bytes(rows))
        assert sorted(read_manifest(path), key=repr) == sorted(rows, key=repr)


def _seen_by_doctor(row: WheelRow) -> tuple[object, ...]:
    named = (row.project, row.version, row.filename, row.sha256, row.size, row.requires_python)
    return (*named, row.cell, row.label, row.offload_archs, row.cxx11_abi, row.glibc, verified_archs(row))


def _shown_by_doctor(wheel: DoctorWheel) -> tuple[object, ...]:
    named = (wheel.project, wheel.version, wheel.filename, wheel.sha256, wheel.size, wheel.requires_python)
    cell, label = wheel.cell and wheel.cell.id, wheel.label and str(wheel.label)
    return (*named, cell, label, wheel.archs, wheel.cxx11_abi, wheel.glibc, wheel.verified_on)


class Attestation(Target):
    """`read_subjects` and `check_attestation`: no bundle is accepted but one with the signed statement of the seed."""

    words = b'"dsseEnvelope":{ "payload":" "tlogEntries":[ "rawBytes":" "logIndex":"-1" null [['.split()
    seeds = staticmethod(seeds.attestations)
    change = staticmethod(shapes.change_json)

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        patch.object(Verifier, "production", return_value=seeds.SIGSTORE.verifier(folder)).start()
        (seed,) = seeds.attestations()
        self._signed = _payload(seed)

    def read(self, data: bytes) -> None:
        with suppress(InputError):
            assert all("/" not in subject.name for subject in read_subjects(data, "bundle"))
        result = check_attestation(data, seeds.WHEEL_NAME, seeds.WHEEL_SHA256, "someone/wheels", PUBLISH_WORKFLOW)
        if result.status is Status.PASSED:
            assert _payload(data) == self._signed


def _payload(bundle: bytes) -> bytes:
    return base64.b64decode(json.loads(bundle)["dsseEnvelope"]["payload"])


class Kernels(Target):
    """`unpack`; afterwards each object in the store matches the journal and is in its folder."""

    words = (
        *(b"manifest.json", b"objects/", b"ustar\x0000", b"../", b"\x28\xb5\x2f\xfd"),
        *(b'"sha256":', b'"shard":"2/3"', b'"expected":["x_api"]', b'"targets":["host"]'),
    )
    seeds = staticmethod(seeds.kernel_archives)
    change = staticmethod(shapes.change_kernels)

    def read(self, data: bytes) -> None:
        path, kernels = self._folder / "a.tar.zst", self._folder / "kernels"
        path.write_bytes(data)
        shutil.rmtree(kernels, ignore_errors=True)
        with suppress(InputError):
            done = unpack_archive(path, kernels)
            assert Store(kernels, done.set_key).read_records().keys() == done.objects.keys()
        for journal in kernels.glob("*/journal.jsonl"):
            for entry in read_lines(ObjectRecord, journal):
                assert file_sha256(journal.parent / "objects" / f"{entry.source}.o") == entry.sha256
        assert {file.name for file in self._folder.iterdir()} <= {"a.tar.zst", "kernels"}


class Json(Target):
    """`parse_json` and `parse_record`: what they accept can be written, and is read back."""

    words = b'NaN 1e999 9223372036854775808 "\\ud800" [[ {"a":1,"a":1} "size": null true'.split()
    seeds = staticmethod(seeds.records)
    change = staticmethod(shapes.change_json)

    def read(self, data: bytes) -> None:
        with suppress(ValueError):
            assert parse_json(json.dumps(parse_json(data))) == parse_json(data)
            entry = parse_record(ObjectRecord, data)
            assert parse_record(ObjectRecord, json.dumps(asdict(entry))) == entry


class Text(Target):
    """`write_message`: whatever the text, lines are printable, of a limited length, and forge no other."""

    words = (b"\x1b[", b"\xe2\x80\xae", b"\r", b"\n", b"hint: ", b"://", b"@", b"`", b"\t")
    seeds = staticmethod(lambda: [b"error: a\nhint: https://me:secret@host/a `b c`"])
    change = staticmethod(shapes.change_word)

    def read(self, data: bytes) -> None:
        written = io.StringIO()
        write_message(written, data.decode("utf-8", "surrogateescape"))
        first, *lines = written.getvalue().removesuffix("\n").split("\n")
        assert first.isprintable() and all(line.isprintable() and line.startswith(" ") for line in lines)


TARGETS: dict[str, type[Target]] = {
    "attestation": Attestation,
    "bundles": Bundles,
    "elf": Elf,
    "json": Json,
    "kernels": Kernels,
    "manifest": Manifest,
    "matrix": Matrix,
    "packages": Packages,
    "text": Text,
    "wheel": WheelFile,
}
