"""Start inputs: real libraries, bundles, wheels, the matrix, manifests, attestations, kernel archives."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from code_object_bytes import bundle
from elf_factory import HOST, hip_bundle, library, package, packed, shell, with_section
from fake_sigstore import FakeSigstore
from kernel_archive_factory import OBJECTS, fill
from search_rows import row_of
from small_matrix import SMALL
from validations import amd_validation, nvidia_validation, with_evidence
from wheel_factory import CK, MATRIX, PACKAGE, TRITON, build_record, make_wheel, metadata_text, write_zip
from wheelfactory.core.cell import Cell
from wheelfactory.kernels.archive import pack_archive
from wheelfactory.kernels.compiler.store import ObjectRecord
from wheelfactory.release.manifest import WheelRow, manifest_bytes
from wheelfactory.verify.result import Finding, GateResult
from wheelfactory.wheel.read import BUILD_RECORD_NAME
from zip_factory import STREAMED, Member, zip_bytes

WHEEL_NAME = "flash_attn-2.8.3+rocm64torch2.9-cp311-cp311-manylinux_2_28_x86_64.whl"
WHEEL_SHA256 = "a" * 64
SIGSTORE = FakeSigstore()
_ROOT = Path(__file__).parents[2]


def sections() -> Iterator[bytes]:
    """Plain and compressed bundles, single and several, with the padding of a linker."""
    plain = bundle([(HOST, b""), ("hipv4-amdgcn-amd-amdhsa--gfx942", shell(size=96))], alignment=8)
    yield plain
    for version in (1, 2, 3):
        for method in ("zlib", "zstd"):
            yield packed(plain, version, method)
    yield plain + bytes(24) + packed(plain, 2) + bytes(9) + packed(plain, 1, "zlib")


def packages() -> Iterator[bytes]:
    """Offload packages of both versions, with one image and several."""
    images = [("gfx90a", b"BC\xc0\xde bitcode"), ("gfx942:xnack-", shell(size=96))]
    yield package(*images)
    yield package(images[0], version=1) + bytes(8) + package(images[1], version=1)


def libraries() -> Iterator[bytes]:
    """Small libraries of this machine with every table that is read, with and without device code."""
    source = '#include <stdio.h>\nvoid say(void) { puts("x"); }\nvoid gone(void); void go(void) { gone(); }'
    small = ("-Wl,-z,noseparate-code", "-s")
    for style in ("gnu", "sysv", "both"):
        yield library(
            source=source, soname="libx.so.1", runpath="/a:$ORIGIN", flags=(*small, f"-Wl,--hash-style={style}")
        )
    yield library(
        undefined=("_ZN3c106detail14torchCheckFailEPKcS2_jRKSs", "_ZTIN2at6TensorE"), weak=("b",), flags=small
    )
    yield library(fatbin=packed(hip_bundle("gfx90a", "gfx942")), needed=("libamdhip64.so.6",), flags=small)
    waiting = with_section(".llvm.offloading", package(("gfx942", b"BC\xc0\xde")))
    yield library(source=waiting, flags=("-nostdlib", *small))


def wheels() -> Iterator[bytes]:
    """Wheels with and without compiled code, stored and deflated, and one with a wrong RECORD."""
    elf = library(undefined=("a",), flags=("-Wl,-z,noseparate-code", "-s"))
    metadata = metadata_text("2.8.3+rocm64torch2.9", requires=["torch==2.9.*", "einops; python_version < '3.12'"])
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "wheel.whl")
        for members in (PACKAGE, {**PACKAGE, "x.so": elf}, {"a/": b"", "a/b/c.py": b"1" * 500}):
            made = make_wheel(
                Path(name),
                version="2.8.3+rocm64torch2.9",
                metadata=metadata,
                members=members,
                dist_info_members={BUILD_RECORD_NAME: build_record(CK).as_bytes()},
            )
            yield made.read_bytes()
        files = [Member("a.py", b"x = 1\n", flags=STREAMED), Member("é/b.bin", b"12", 0), Member("c/", mode=0o40755)]
        yield zip_bytes(files)
        yield zip_bytes(files, wide=True)
        for method in (0, 8):
            write_zip(path, {"a.py": b"x = 1\n", "x-1.dist-info/RECORD": b"a.py,,\n"}, compression=method)
            yield path.read_bytes()


def matrices() -> Iterator[bytes]:
    """The matrix of the repository, and a small one with every feature."""
    yield (_ROOT / "matrix.yaml").read_bytes()
    yield (_ROOT / "examples/seed-matrix.yaml").read_bytes()
    yield SMALL.encode()
    yield SMALL.replace("      tag: v2.6.3\n", "").replace("\n        torch: '2.3.0'", "\n        disk: 32 GB").encode()
    yield b"backend: [ck]\npython: ['3.11']\nflash-attn: {}\ntorch: &t {}\nrocm: *t\n"
    yield b"exclude: [{torch: '>=2', reason: x}]\n"


def manifests() -> Iterator[bytes]:
    """No row, rows of both backends, a row with evidence, a yanked row with a URL."""
    yield b""
    rows = [_row(cell) for cell in (CK, TRITON)]
    yield manifest_bytes(rows[:1])
    yield manifest_bytes(rows)
    yield manifest_bytes([with_evidence(rows[1], nvidia_validation(), amd_validation())])
    elsewhere = {"url": f"https://files.example/v1/{rows[0].filename}", "yanked": "wrong <kernels>"}
    yield manifest_bytes([rows[0].model_copy(update=elsewhere)])


def attestations() -> Iterator[bytes]:
    """A bundle for the wheel."""
    yield SIGSTORE.sign({WHEEL_NAME: WHEEL_SHA256})


def kernel_archives() -> Iterator[bytes]:
    """A complete set, a shard, one that lacks objects, and a set whose objects are equal."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        yield pack_archive(fill(folder / "a"), "x", folder, None).read_bytes()
        yield pack_archive(fill(folder / "b", {"x_api": b"api"}), "x", folder, "2/3").read_bytes()
        yield pack_archive(
            fill(folder / "d", {"x_api": b""}), "x", folder, "1/3", list(OBJECTS), partial=True
        ).read_bytes()
        yield pack_archive(fill(folder / "c", dict.fromkeys(OBJECTS, b"same")), "x", folder, None).read_bytes()


def _row(cell: Cell) -> WheelRow:
    finding = Finding(file="a", expected="b", found="c", remedy="d")
    gate = GateResult.from_findings("record", [finding], versions={"a": "1"}, figures={"b": 1.5})
    return row_of(MATRIX, cell, gates=(gate,), url=None)


def records() -> list[bytes]:
    """A line of a store's journal."""
    entry = ObjectRecord("a", ("gfx90a", "host"), "1" * 64, 1, 1.5, 2, 3.0, 4.5, made_by="worker", cached=True)
    return [entry.to_line().encode()]
