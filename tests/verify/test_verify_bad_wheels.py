"""Every kind of bad wheel, made by one change to a good wheel, is refused for exactly that reason."""

from __future__ import annotations

import os
import stat
import struct
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from code_object_bytes import KERNELS, bundle, code_object
from elf_factory import HOST, NUMBERS, hip_bundle, package, packed, section, shell, with_section
from wheel_factory import (
    CK,
    MATRIX,
    build_record,
    extension,
    extension_name,
    finished_wheel,
    payload,
    small_machine,
    toolchain_of,
)
from wheelfactory.core.cell import Cell
from wheelfactory.verify import gates
from wheelfactory.verify.gate import Subject
from wheelfactory.verify.gates import GATES, is_refused, verify
from wheelfactory.verify.result import GateResult, Status
from wheelfactory.wheel.elf.image import ElfImage
from wheelfactory.wheel.elf.read import FATBIN, read_registration

NAME = extension_name(CK)
ARCHS = MATRIX.archs(CK)


@dataclass(frozen=True)
class Bad:
    """A bad wheel, the gate that must refuse it, and parts of the finding."""

    make: Callable[[Path], Path]
    gate: str
    file: str
    expected: str
    found: str
    cell: Cell = CK
    also: frozenset[str] = frozenset()
    """Other gates that refuse it too."""


def changed_extension(**more: object) -> Callable[[Path], Path]:
    return lambda folder: finished_wheel(folder, members=payload(CK, **more))


def with_members(**members: bytes | None) -> Callable[[Path], Path]:
    """The good wheel with more or (None) fewer members, and a correct RECORD."""

    def make(folder: Path) -> Path:
        kept = {**payload(CK), **members}
        return finished_wheel(folder, members={name: data for name, data in kept.items() if data is not None})

    return make


def of_toolchain(**changes: object) -> Callable[[Path], Path]:
    """The good wheel, with another toolchain in its build record."""
    return recorded(toolchain=toolchain_of(CK, **changes))


def recorded(**changes: object) -> Callable[[Path], Path]:
    """The good wheel, with another build record."""
    return lambda folder: finished_wheel(folder, record=build_record(**changes))


def needing_glibc_2_29(folder: Path, platform: str) -> Path:
    source = "#include <math.h>\ndouble f(double x) { return exp(x); }"
    members = payload(CK, source=source, flags=("-O0", "-lm"))
    return finished_wheel(folder, tags=f"cp311-cp311-{platform}_x86_64", members=members)


def device(*bundles: bytes) -> Callable[[Path], Path]:
    return changed_extension(fatbin=section(*bundles))


def member(name: str) -> Callable[[Path], Path]:
    """The good wheel with a member more, which RECORD does not have."""

    def make(folder: Path) -> Path:
        path = finished_wheel(folder)
        with zipfile.ZipFile(path, "a") as archive:
            info = zipfile.ZipInfo(name)
            info.external_attr = (stat.S_IFREG | 0o644) << 16
            archive.writestr(info, b"/etc/passwd")
        return path

    return make


IDS = [f"hipv4-amdgcn-amd-amdhsa--{arch}" for arch in ARCHS]
CODE = [code_object(arch) for arch in ARCHS]
GOOD = [(HOST, b""), *zip(IDS, CODE, strict=True)]

WRONG_IDS: list[tuple[str, list[tuple[str, bytes]], str]] = [
    ("no entry of the host", GOOD[1:], "0 entries of the host"),
    ("two entries of the host", [GOOD[0], *GOOD], "2 entries of the host"),
    ("bytes in the entry of the host", [(HOST, bytes(20_000)), *GOOD[1:]], "1 entries of the host, of 20000 bytes"),
    ("the kind openmp", [GOOD[0], *((f"openmp{name[5:]}", code) for name, code in GOOD[1:])], "openmp-amdgcn"),
    ("another triple", [GOOD[0], *((name.replace("amdhsa", "mesa3d"), code) for name, code in GOOD[1:])], "mesa3d"),
    ("one dash", [GOOD[0], *((name.replace("--", "-"), code) for name, code in GOOD[1:])], "amdhsa-gfx"),
    ("an id for terminals", [*GOOD, ("\x1b[2Jx", b"")], "\x1b[2Jx"),
    ("one id twice", [*GOOD, GOOD[1]], f"{IDS[0]}, 2 times"),
    ("an entry for another vendor", [*GOOD, ("hip-nvptx64-nvidia-cuda--sm_80", b"")], "hip-nvptx64-nvidia-cuda--sm_80"),
    ("a host that is another machine", [("host-aarch64-unknown-linux-gnu-", b""), *GOOD[1:]], "0 entries of the host"),
    ("an id before another", [*GOOD, (f"x-{IDS[0]}", b"")], "x-hipv4-amdgcn"),
]
"""What is wrong, the entries, and a part of what the finding says was found."""


def other_header(target: str, arch: str) -> bytes:
    """A code object whose header has the flags of another arch."""
    data = bytearray(code_object(target))
    struct.pack_into("<I", data, 48, NUMBERS[arch])
    return bytes(data)


def pointing_to_the_first(data: bytes) -> bytes:
    """An extension with both registrations of the first bundle, by their relocations."""
    image, first, second = ElfImage(data), *read_registration(ElfImage(data)).bundles
    device_code = image.find_section(FATBIN)
    assert device_code and first is not None and second is not None
    relocated = [struct.pack("<QQ", 8, device_code.address + offset) for offset in (second, first)]
    return data.replace(relocated[0], relocated[1])


WRONG_OBJECTS: list[tuple[str, dict[str, bytes], str]] = [
    ("a code object under the name of another arch", {"gfx942": code_object("gfx90a")}, "of another arch, gfx90a"),
    (
        "a header of another arch",
        {"gfx942": other_header("gfx942", "gfx1100")},
        "its header is of another arch, gfx1100",
    ),
    (
        "text in place of a code object",
        {"gfx942": b"not code" * 40, "gfx90a": code_object("gfx90a", 320)},
        "320 bytes: no ELF magic",
    ),
    ("random bytes behind the headers", {"gfx942": shell() + os.urandom(1 << 12)}, "bytes at 64 outside"),
    ("bytes behind a code object", {"gfx942": code_object() + b"more"}, "4 bytes at 1,204 outside"),
    ("a code object without a note", {"gfx942": code_object(note=b"")}, "its note is for no target"),
    (
        "a note that names other kernels than the symbols",
        {"gfx942": code_object(symbols=KERNELS[:1])},
        "its note and its symbols name other kernels",
    ),
    ("a descriptor that points beside the code", {"gfx942": code_object(entry=128)}, "no code where the descriptor of"),
]
"""What is wrong, the code objects with a fault or of the same size, and a part of what was found."""

WRONG_ARCHS = [
    ("bundles without device code", (hip_bundle(), hip_bundle()), "bundle at 0", "nothing"),
    ("an arch that is missing", (hip_bundle("gfx90a"),), "bundle at 0", "gfx90a"),
    ("an arch that was not promised", (hip_bundle(*ARCHS, "gfx1100"),), NAME, "gfx1100, gfx90a, gfx942"),
    (
        "one bundle of many that lacks an arch",
        (hip_bundle(*ARCHS), hip_bundle("gfx942"), hip_bundle(*ARCHS)),
        *("bundle at 12288", "gfx942"),
    ),
    (
        "one packed bundle that lacks an arch",
        (packed(hip_bundle(*ARCHS)), packed(hip_bundle("gfx90a"))),
        *("bundle at 4096", "gfx90a"),
    ),
    ("code for xnack- alone", (hip_bundle("gfx90a:xnack-", "gfx942"),), NAME, "gfx90a:xnack-, gfx942"),
]
"""What is wrong, the bundles, the file of the finding, and the archs that were found."""

WRONG_REGISTRATIONS = [
    ("one source of many compiled for the host only", changed_extension(registered=3), "3 registrations"),
    ("device code that nothing registers", changed_extension(registered=0), "0 registrations"),
    (
        "registrations of one bundle",
        with_members(**{NAME: pointing_to_the_first(extension(*ARCHS))}),
        "2 registrations, which point to 1 of them",
    ),
    (
        "registrations without their magic",
        with_members(**{NAME: extension(*ARCHS).replace(b"FPIH", b"FPIX")}),
        "2 registrations, which point to 0 of them",
    ),
]

BAD_WHEELS = {
    "a path out of the archive": Bad(member("../evil.py"), "archive", "../evil.py in ", "without empty parts", ""),
    # claims about itself
    "a newer glibc than the image's": Bad(
        lambda folder: finished_wheel(
            folder,
            tags="cp311-cp311-manylinux_2_39_x86_64",
            record=build_record(toolchain=toolchain_of(CK, glibc="2.39")),
        ),
        *("identity", "", "glibc 2.35 or older", "glibc 2.39"),
    ),
    **{
        f"the build record's {name} {value}": Bad(of_toolchain(**{name: value}), "identity", file, expected, found)
        for name, value, file, expected, found in (
            ("torch", "2.9.1", "build record torch", "2.9.1+rocm6.4", "2.9.1"),
            ("torch", "2.9.1+rocm6.3", "build record torch", "2.9.1+rocm6.4", "2.9.1+rocm6.3"),
            ("torch", "2.9.1+xpu", "build record torch", "2.9.1+rocm6.4", "2.9.1+xpu"),
            ("torch", "2.8.0+rocm6.4", "build record toolchain", "torch 2.9.1", "torch 2.8.0"),
            ("python", "3.12", "build record toolchain", "Python 3.11", "Python 3.12"),
            ("hip", "6.3.42131", "build record toolchain", "HIP 6.4", "HIP 6.3.42131"),
            ("hip", None, "build record toolchain", "HIP 6.4", "HIP None"),
            ("torch", None, "build record torch", "2.9.1+rocm6.4", "nothing"),
            ("compiler", "gcc (GCC) 13.2.0", "build record compiler", "hipcc, a clang", "gcc"),
            ("compiler", "HIP version: 7.2.53211-e1a6bc5663", "build record compiler", "HIP 6.4", "HIP version: 7.2"),
            ("glibc", "2.17", "", "glibc 2.17 or older", "glibc 2.28"),
            ("glibc", None, "build record glibc", "the glibc of the build machine", "nothing"),
        )
    },
    **{
        f"a build record with {name} {value}": Bad(
            recorded(**{name: value}), "identity", f"build record {name}", "", found
        )
        for name, value, found in (
            ("cell", "fa2.8.3-rocm6.4-torch2.9.1-cp312-ck", "cp312"),
            ("label", "rocm63torch2.9", "rocm63torch2.9"),
            ("source", "sha256:" + "0" * 64, "sha256:000"),
        )
    },
    "a build record of fewer archs": Bad(
        lambda folder: finished_wheel(
            folder,
            record=build_record(offload_archs=("gfx942",)),
            members=payload(CK, fatbin=section(*[hip_bundle("gfx942")] * 2)),
        ),
        *("identity", "build record offload_archs", "gfx90a, gfx942", "gfx942"),
    ),
    # contents
    "no extension": Bad(with_members(**{NAME: None}), "contents", "", NAME, "no such file"),
    "the extension of another Python": Bad(
        with_members(**{NAME: None, NAME.replace("311", "312"): extension(*ARCHS)}), "contents", "", NAME, "no such"
    ),
    "an extension without its entry": Bad(
        changed_extension(defined=("PyInit_other",)), "contents", NAME, "PyInit_flash_attn_2_cuda", "PyInit_other"
    ),
    "far too large": Bad(
        device(hip_bundle(objects={arch: code_object(arch, code=os.urandom(6 << 20)) for arch in ARCHS})),
        *("contents", "", "1,000 to 10,000,000 bytes", "bytes"),
    ),
    # how it is loaded
    "a library that no machine has": Bad(
        changed_extension(needed=("libc10.so", "libmine.so.1")), "linking", NAME, "libraries of torch", "libmine.so.1"
    ),
    "a library by a path": Bad(
        with_members(**{NAME: extension(*ARCHS, needed=("libc10_x.so",)).replace(b"libc10_x.so", b"libc10/x.so")}),
        *("linking", NAME, "libraries of torch", "libc10/x.so"),
    ),
    **{
        f"the library {name}": Bad(
            changed_extension(needed=("libc10.so", name)), "linking", NAME, "libamdhip64.so.6 of ROCm 6.4", name
        )
        for name in (
            *("libroc_mine.so.9", "libamdhip64.so.7", "libtorch_cuda.so", "libamdhip64.so", "libamdhip64.so.6.4"),
            *("libc10.so.1", "LIBC10.SO", "ld-linux-x86-64.so.3"),
        )
    },
    "the SONAME of a library of ROCm": Bad(
        changed_extension(soname="libamdhip64.so.6"), "linking", NAME, "no SONAME, or the file's", "libamdhip64.so.6"
    ),
    **{
        f"the path {path}": Bad(changed_extension(runpath=path), "linking", NAME, "below $ORIGIN", path)
        for path in ("$ORIGIN/../../../tmp/x", "$ORIGINx", "$LIB", "$ORIGIN/./a", "/", "${ORIGIN}/../../..", "tmp")
    },
    "a path of the build machine": Bad(
        changed_extension(runpath="/opt/rocm-6.2.2/lib"), "linking", NAME, "no RUNPATH", "/opt/rocm-6.2.2/lib"
    ),
    "the working directory as a path": Bad(
        changed_extension(runpath="$ORIGIN::/x"), "linking", NAME, "no RUNPATH", "''"
    ),
    "symbols of a newer glibc than its tag": Bad(
        lambda folder: needing_glibc_2_29(folder, "manylinux_2_17"),
        *("linking", NAME, "symbols of glibc 2.17", "glibc 2.29"),
    ),
    "symbols of a newer libstdc++ than on systems of its tag": Bad(
        changed_extension(undefined=("_ZSt28__throw_bad_array_new_lengthv",), flags=("-l:libstdc++.so.6",)),
        *("linking", NAME, "symbols of GLIBCXX 3.4.24", "GLIBCXX 3.4.29"),
    ),
    # the device code
    "a build for the CPU": Bad(changed_extension(fatbin=b""), "code-objects", "", "for gfx90a, gfx942", "no bundle in"),
    **{
        what: Bad(device(*bundles), "code-objects", file, "gfx90a, gfx942", found)
        for what, bundles, file, found in WRONG_ARCHS
    },
    **{
        what: Bad(make, "code-objects", NAME, "a registration for each of 2 bundles", found)
        for what, make, found in WRONG_REGISTRATIONS
    },
    "kernels whose device code the linker dropped": Bad(
        changed_extension(source=with_section("llvm_offload_entries", bytes(2 * 56)), flags=("-nostdlib",)),
        *("code-objects", NAME, "no device code that waits for a device link", "2 kernels of relocatable device code"),
    ),
    "device code that waits for a device link": Bad(
        changed_extension(
            source=with_section(".llvm.offloading", package(("gfx942", code_object()))), flags=("-nostdlib",)
        ),
        "contents",
        NAME,
        "only known sections that are loaded",  # a compiler's is not
        ".llvm.offloading",
        also=frozenset({"code-objects"}),
    ),
    **{
        what: Bad(
            device(hip_bundle(objects={"gfx90a": code_object("gfx90a"), **objects})),
            *("code-objects", "bundle at 0", "a whole code object for gfx942", found),
        )
        for what, objects, found in WRONG_OBJECTS
    },
    "code objects without kernels": Bad(
        changed_extension(
            fatbin=section(hip_bundle(objects={arch: code_object(arch, kernels=()) for arch in ARCHS})), kernels=KERNELS
        ),
        *("code-objects", NAME, "the 2 kernels that host code names, for gfx90a", "it lacks 2, such as _Z3addPf"),
    ),
    "a bundle of many that is a shell": Bad(
        changed_extension(
            fatbin=section(
                hip_bundle(objects={arch: code_object(arch, kernels=KERNELS[:1]) for arch in ARCHS}),
                hip_bundle(objects={arch: code_object(arch, kernels=()) for arch in ARCHS}),
            ),
            kernels=KERNELS,
        ),
        *("code-objects", NAME, "the 2 kernels that host code names", "it lacks 1"),
    ),
    "a kernel that one arch lacks": Bad(
        device(hip_bundle("gfx942", objects={"gfx90a": code_object("gfx90a", kernels=KERNELS[:1])})),
        *("code-objects", NAME, "the 2 kernels that host code names, for gfx90a", "it lacks 1"),
    ),
    "a kernel that host code does not know": Bad(
        changed_extension(kernels=KERNELS[:1]), "code-objects", NAME, "the 1 kernels that host", "has beside them 1"
    ),
    **{
        f"a bundle with {what}": Bad(
            device(bundle(entries)), "code-objects", "bundle at 0", "one empty entry of the host", found
        )
        for what, entries, found in WRONG_IDS
    },
    "a packed bundle of the kind of plain ones": Bad(
        device(packed(bundle([(HOST, b""), *((name.replace("hipv4", "hip"), code) for name, code in GOOD[1:])]))),
        *("code-objects", "bundle at 0", "one empty entry of the host", "hip-amdgcn-amd-amdhsa--gfx90a"),
    ),
    "an arch whose kernels were compiled away": Bad(
        device(hip_bundle(objects={"gfx942": code_object("gfx942", 19_000), "gfx90a": code_object("gfx90a")})),
        *("code-objects", "", "about as much device code for gfx90a", "1,204 of 19,000 bytes"),
    ),
}


@pytest.fixture(autouse=True)
def _no_torch_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gates that need torch pass here; they have their own tests."""

    def passing(name: str) -> Callable[[Subject], GateResult]:
        return lambda subject: GateResult.from_findings(name, [])

    needing = {gate.name for gate in GATES if gate.runs_code and gate.required} | {"symbols"}
    replaced = (replace(gate, check=passing(gate.name)) if gate.name in needing else gate for gate in GATES)
    monkeypatch.setattr(gates, "GATES", tuple(replaced))


@pytest.mark.parametrize("kind", BAD_WHEELS)
def test_a_bad_wheel_is_refused_for_its_own_reason(tmp_path: Path, kind: str) -> None:
    bad = BAD_WHEELS[kind]

    results = verify(bad.make(tmp_path), bad.cell, context=small_machine(tmp_path))

    failed = [result for result in results if result.status is Status.FAILED]
    assert {result.gate for result in failed} == {bad.gate, *bad.also}
    assert is_refused(results)
    finding = failed[0].findings[0]
    assert (bad.file in finding.file, bad.expected in finding.expected, bad.found in finding.found) == (True,) * 3, (
        finding
    )
    assert finding.remedy


def test_symbols_of_the_glibc_of_its_tag_are_no_finding(tmp_path: Path) -> None:
    results = verify(needing_glibc_2_29(tmp_path, "manylinux_2_29"), CK, context=small_machine(tmp_path))
    assert {result.gate: result.findings for result in results}["linking"] == ()


OF_NEW_DRIVER = bundle([(HOST, b""), *((f"hip-amdgcn-amd-amdhsa--{arch}", code_object(arch)) for arch in ARCHS)])


@pytest.mark.parametrize(
    ("fatbin", "bundles"),
    [
        (section(hip_bundle(*ARCHS)), 1),
        (section(packed(hip_bundle(*ARCHS), 2, "zlib"), hip_bundle(*ARCHS)), 2),
        (section(OF_NEW_DRIVER), 1),
    ],
    ids=["one bundle", "packed and plain", "of the new offload driver"],
)
def test_good_device_code_of_other_forms_passes_with_its_figures(tmp_path: Path, fatbin: bytes, bundles: int) -> None:
    path = finished_wheel(tmp_path, members=payload(CK, fatbin=fatbin))

    results = verify(path, CK, context=small_machine(tmp_path))
    figures = {result.gate: result.figures for result in results}
    assert not is_refused(results)
    found = {"bundles": bundles, "kernels": 2} | {f"{arch} bytes": 1204 * bundles for arch in ARCHS}
    assert figures["code-objects"] == found
    assert figures["contents"]["bytes"] == path.stat().st_size
    assert figures["linking"] == {"libraries": 2}
