"""Every kind of bad wheel, made by one change to a good wheel, is refused for exactly that reason."""

from __future__ import annotations

import os
import stat
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from elf_factory import bundle, code_object, hip_bundle, library, package, packed, section, with_section
from wheel_factory import (
    CK,
    MATRIX,
    TRITON,
    build_record,
    extension,
    extension_name,
    finished_wheel,
    payload,
    small_machine,
    tamper,
    toolchain_of,
)
from wheelfactory.core.cell import Cell
from wheelfactory.verify import gates
from wheelfactory.verify.gate import Subject
from wheelfactory.verify.gates import GATES, is_refused, verify
from wheelfactory.verify.result import GateResult, Status

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


def device(*bundles: bytes) -> Callable[[Path], Path]:
    return changed_extension(fatbin=section(*bundles))


def zipped(change: Callable[[zipfile.ZipFile], None]) -> Callable[[Path], Path]:
    """The good wheel with something added to its archive."""

    def make(folder: Path) -> Path:
        path = finished_wheel(folder)
        with zipfile.ZipFile(path, "a") as archive:
            change(archive)
        return path

    return make


def member(name: str, mode: int = stat.S_IFREG | 0o644) -> Callable[[Path], Path]:
    def change(archive: zipfile.ZipFile) -> None:
        info = zipfile.ZipInfo(name)
        info.external_attr = mode << 16
        archive.writestr(info, b"/etc/passwd")

    return zipped(change)


def twice(folder: Path) -> Path:
    with pytest.warns(UserWarning, match="Duplicate name"):
        return member(NAME)(folder)


def renamed(folder: Path) -> Path:
    path = finished_wheel(folder)
    return path.rename(path.with_name(path.name.replace("rocm64torch2.9", "rocm64torch2.8")))


CONTENTS = frozenset({"contents"})

MISLABELLED = {"gfx942": code_object("gfx90a"), "gfx90a": code_object("gfx90a")}

BAD_WHEELS = {
    # the archive
    "a path out of the archive": Bad(member("../evil.py"), "archive", "'../evil.py'", "without empty parts", ""),
    "a symbolic link": Bad(
        member("link", stat.S_IFLNK | 0o777), "archive", "'link'", "a regular file", "symbolic link"
    ),
    "two members of a name": Bad(twice, "archive", NAME, "one member of this name", "two"),
    "something before the archive": Bad(
        lambda folder: prepended(finished_wheel(folder)), "archive", "(all)", "nothing before", "bytes"
    ),
    # claims about itself
    "another label in its name": Bad(renamed, "identity", "", "2.8.3+rocm64torch2.9", "2.8.3+rocm64torch2.8"),
    "the old C++ ABI": Bad(
        lambda folder: finished_wheel(folder, record=build_record(toolchain=toolchain_of(CK, cxx11_abi=False))),
        "identity",
        "build record cxx11_abi",
        "True",
        "False",
    ),
    # RECORD
    "a member that was changed": Bad(
        lambda folder: tamper(finished_wheel(folder), {"flash_attn/__init__.py": b"import os\n"}),
        "record",
        "flash_attn/__init__.py",
        "in RECORD",
        "flash_attn/__init__.py,sha256=",
        also=CONTENTS,
    ),
    "a member that RECORD omits": Bad(
        member("added.py"), "record", "added.py", "in RECORD", "no such line", also=CONTENTS
    ),
    "a member that only RECORD has": Bad(
        lambda folder: tamper(finished_wheel(folder), {"flash_attn/__init__.py": None}),
        "record",
        "",
        "one line in RECORD for each member",
        "flash_attn/__init__.py,sha256=",
        also=CONTENTS,
    ),
    # contents
    "no extension": Bad(with_members(**{NAME: None}), "contents", "", NAME, "no such file"),
    "the extension of another Python": Bad(
        with_members(**{NAME: None, NAME.replace("311", "312"): extension(*ARCHS)}), "contents", "", NAME, "no such"
    ),
    "an extension without its entry": Bad(
        changed_extension(defined=("PyInit_other",)), "contents", NAME, "PyInit_flash_attn_2_cuda", "PyInit_other"
    ),
    "a second library": Bad(
        with_members(**{"flash_attn/helper.so": library(source="int x;")}),
        "contents",
        "flash_attn/helper.so",
        "no such file",
        "bytes",
    ),
    "a grafted library": Bad(
        with_members(**{"flash_attn.libs/readme": b"libamdhip64"}),
        "contents",
        "flash_attn.libs/readme",
        "no such file",
        "11 bytes",
    ),
    "far too large": Bad(
        device(hip_bundle(objects={arch: code_object(arch) + os.urandom(6 << 20) for arch in ARCHS})),
        "contents",
        "",
        "1,000 to 10,000,000 bytes",
        "bytes",
    ),
    # how it is loaded
    "a library that no machine has": Bad(
        changed_extension(needed=("libc10.so", "libmine.so.1")), "linking", NAME, "libraries of torch", "libmine.so.1"
    ),
    "a library by a path": Bad(
        with_members(**{NAME: extension(*ARCHS, needed=("libc10_x.so",)).replace(b"libc10_x.so", b"libc10/x.so")}),
        "linking",
        NAME,
        "libraries of torch",
        "libc10/x.so",
    ),
    "a path of the build machine": Bad(
        changed_extension(runpath="/opt/rocm-6.2.2/lib"), "linking", NAME, "no RUNPATH", "/opt/rocm-6.2.2/lib"
    ),
    "the working directory as a path": Bad(
        changed_extension(runpath="$ORIGIN::/x"), "linking", NAME, "no RUNPATH", "''"
    ),
    "symbols of a newer glibc than its tag": Bad(
        lambda folder: finished_wheel(
            folder,
            tags="cp311-cp311-manylinux_2_17_x86_64",
            members=payload(
                CK, source="#include <math.h>\ndouble f(double x) { return exp(x); }", flags=("-O0", "-lm")
            ),
        ),
        "linking",
        NAME,
        "symbols of glibc 2.17",
        "glibc 2.29",
    ),
    "a newer glibc than the image's": Bad(
        lambda folder: finished_wheel(
            folder,
            tags="cp311-cp311-manylinux_2_39_x86_64",
            record=build_record(toolchain=toolchain_of(CK, glibc="2.39")),
        ),
        "linking",
        "",
        "glibc 2.35 or older",
        "glibc 2.39",
    ),
    # the device code
    "a build for the CPU": Bad(changed_extension(fatbin=b""), "code-objects", "", "for gfx90a, gfx942", "no bundle in"),
    "bundles without device code": Bad(
        device(hip_bundle(), hip_bundle()), "code-objects", "bundle at 0", "gfx90a, gfx942", "nothing"
    ),
    "one source of many compiled for the host only": Bad(
        changed_extension(registered=3), "code-objects", NAME, "the 3 bundles that its start-up code registers", "2"
    ),
    "device code that nothing registers": Bad(
        changed_extension(registered=0), "code-objects", NAME, "the 0 bundles that its start-up code registers", "2"
    ),
    "kernels whose device code the linker dropped": Bad(
        changed_extension(source=with_section("llvm_offload_entries", bytes(2 * 56)), flags=("-nostdlib",)),
        "code-objects",
        NAME,
        "no device code that waits for a device link",
        "2 kernels of relocatable device code",
    ),
    "device code that waits for a device link": Bad(
        changed_extension(
            source=with_section(".llvm.offloading", package(("gfx942", code_object()))), flags=("-nostdlib",)
        ),
        "code-objects",
        NAME,
        "no device code that waits for a device link",
        "1 offload packages",
    ),
    "an arch that is missing": Bad(
        device(hip_bundle("gfx90a")), "code-objects", "bundle at 0", "gfx90a, gfx942", "gfx90a"
    ),
    "an arch that was not promised": Bad(
        device(hip_bundle(*ARCHS, "gfx1100")), "code-objects", NAME, "gfx90a, gfx942", "gfx1100, gfx90a, gfx942"
    ),
    "one bundle of many that lacks an arch": Bad(
        device(hip_bundle(*ARCHS), hip_bundle("gfx942"), hip_bundle(*ARCHS)),
        "code-objects",
        "bundle at 12288",
        "gfx90a, gfx942",
        "gfx942",
    ),
    "one packed bundle that lacks an arch": Bad(
        device(packed(hip_bundle(*ARCHS)), packed(hip_bundle("gfx90a"))),
        "code-objects",
        "bundle at 4096",
        "gfx90a, gfx942",
        "gfx90a",
    ),
    "code for xnack- alone": Bad(
        device(hip_bundle("gfx90a:xnack-", "gfx942")), "code-objects", NAME, "gfx90a, gfx942", "gfx90a:xnack-, gfx942"
    ),
    "a code object under the name of another arch": Bad(
        device(hip_bundle(objects=MISLABELLED)),
        "code-objects",
        NAME,
        "a code object for gfx942",
        "a code object for gfx90a",
    ),
    "text in place of a code object": Bad(
        device(hip_bundle(objects={"gfx942": b"not code" * 40, "gfx90a": code_object("gfx90a", 320)})),
        "code-objects",
        NAME,
        "a code object for gfx942",
        "320 bytes of something else",
    ),
    "an arch whose kernels were compiled away": Bad(
        device(hip_bundle(objects={"gfx942": code_object("gfx942", 9000), "gfx90a": code_object("gfx90a", 300)})),
        "code-objects",
        "",
        "about as much device code for gfx90a",
        "300 of 9,000 bytes",
    ),
}


def prepended(path: Path) -> Path:
    path.write_bytes(b"#!/bin/sh\n" + path.read_bytes())
    return path


@pytest.fixture(autouse=True)
def _no_torch_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gates that need torch pass here; they have their own tests."""

    def passing(name: str) -> Callable[[Subject], GateResult]:
        return lambda subject: GateResult.from_findings(name, [])

    needing = {gate.name for gate in GATES if gate.runs_code and gate.required} | {"symbols"}
    replaced = (replace(gate, check=passing(gate.name)) if gate.name in needing else gate for gate in GATES)
    monkeypatch.setattr(gates, "GATES", tuple(replaced))


@pytest.mark.parametrize("cell", [CK, TRITON], ids=lambda cell: cell.id)
def test_the_good_wheel_they_are_made_from_passes(tmp_path: Path, cell: Cell) -> None:
    results = verify(finished_wheel(tmp_path, cell), cell, context=small_machine(tmp_path))

    assert not is_refused(results), results


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


def test_the_table_has_the_kinds_it_promises() -> None:
    assert len(BAD_WHEELS) >= 25


@pytest.mark.parametrize(
    "fatbin",
    [
        pytest.param(section(hip_bundle(*ARCHS)), id="one bundle"),
        pytest.param(section(packed(hip_bundle(*ARCHS), 2, "zlib"), hip_bundle(*ARCHS)), id="packed and plain"),
        pytest.param(
            section(bundle([(f"hip-amdgcn-amd-amdhsa-{arch}", code_object(arch)) for arch in ARCHS])), id="old ids"
        ),
    ],
)
def test_good_device_code_of_other_forms_passes(tmp_path: Path, fatbin: bytes) -> None:
    path = finished_wheel(tmp_path, members=payload(CK, fatbin=fatbin))

    assert not is_refused(verify(path, CK, context=small_machine(tmp_path)))


def test_counts_are_in_the_result(tmp_path: Path) -> None:
    fatbin = section(hip_bundle(*ARCHS), packed(hip_bundle(*ARCHS)))
    path = finished_wheel(tmp_path, members=payload(CK, fatbin=fatbin))

    figures = {result.gate: result.figures for result in verify(path, CK, context=small_machine(tmp_path))}

    assert figures["code-objects"] == {"bundles": 2, "gfx90a bytes": 512, "gfx942 bytes": 512}
    assert figures["contents"]["bytes"] == path.stat().st_size
    assert figures["linking"] == {"libraries": 2}
