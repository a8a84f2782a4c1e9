"""The platform of a real extension, by the real auditwheel: its symbols decide, and foreign libraries are refused."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from installer.sources import WheelFile
from packaging.version import Version

from elf_factory import library, section
from wheel_factory import (
    PACKAGE,
    build_record,
    make_wheel,
    read_zip,
    small_machine,
    toolchain_of,
)
from wheelfactory.core.cell import Backend, Cell
from wheelfactory.core.errors import InputError, VerificationError
from wheelfactory.pipeline.build import finish_raw_wheel
from wheelfactory.verify.gate import Subject
from wheelfactory.verify.identity import check_identity
from wheelfactory.verify.result import Status
from wheelfactory.wheel import repair
from wheelfactory.wheel.read import BuildRecord, Wheel, read_build_record
from wheelfactory.wheel.repair import EXTERNAL_LIBRARIES, find_platform, manylinux_platforms

pytestmark = pytest.mark.slow

PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
TAG = f"cp{PYTHON.replace('.', '')}"
MACHINE = platform.machine()
LINUX = f"{TAG}-{TAG}-linux_{MACHINE}"
CELL = Cell.from_axes("2.8.3", PYTHON, "2.9.1", "6.4", Backend.CK)
GLIBC = platform.libc_ver()[1]

KNOWN = ("libamdhip64.so.6", "libtorch.so", "libc10.so")
UNKNOWN = "libsomething.so.1"
DEVICE = hashlib.shake_256(b"device code").digest(100_000)

EXTENSION = """
#include <Python.h>
#include <math.h>
double power(double x) { return pow(x, x); } /* GLIBC_2.29 */
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "flash_attn_2_cuda"};
PyMODINIT_FUNC PyInit_flash_attn_2_cuda(void) { return PyModule_Create(&module); }
"""
LLD = "SECTIONS { .hip_fatbin : ALIGN(4096) { *(.hip_fatbin) } } INSERT AFTER .rela.plt;"
"""Puts device code before .text and .data, as lld does."""


def extension(*needed: str, fatbin: bytes = b"", flags: tuple[str, ...] = ()) -> bytes:
    """A Python extension that needs the libraries of these names."""
    options = (f"-I{sysconfig.get_path('include')}", "-lm", *flags)
    return library(source=EXTENSION, needed=needed, fatbin=fatbin, flags=options)


def raw_wheel(folder: Path, data: bytes, *, tags: str = LINUX, members: Mapping[str, bytes] = PACKAGE) -> Path:
    """A wheel as setup.py builds it, with this extension."""
    files = {**members, "flash_attn_2_cuda.so": data}
    return make_wheel(folder, tags=tags, members=files, executable=["flash_attn_2_cuda.so"])


def record() -> BuildRecord:
    return build_record(CELL, toolchain=toolchain_of(CELL, glibc=GLIBC))


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with fake libraries of torch and ROCm, and one unknown library."""
    folder = tmp_path_factory.mktemp("libraries")
    for name in (*KNOWN, UNKNOWN):
        (folder / name).write_bytes(library(source="int stand_in(void) { return 1; }", soname=name))
    return folder


@pytest.fixture(scope="module", params=["lld", "GNU ld"])
def linked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel with the device code where one of the two linkers puts it."""
    return linked_by(request.param, tmp_path_factory.mktemp("linked"))


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel with the device code where lld puts it, before code and data."""
    return linked_by("lld", tmp_path_factory.mktemp("raw"))


def linked_by(linker: str, folder: Path) -> Path:
    (folder / "script").write_text(LLD)
    flags = (f"-Wl,-T,{folder}/script",) if linker == "lld" else ()
    return raw_wheel(folder, extension(*KNOWN, fatbin=section(DEVICE), flags=flags))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, raw: Path) -> Path:
    return finish_raw_wheel(raw, record(), tmp_path_factory.mktemp("finished"), os.environ)


def test_the_name_gets_a_manylinux_tag_and_the_label(finished: Path) -> None:
    stem = re.escape(f"flash_attn-2.8.3+rocm64torch2.9-{TAG}-{TAG}-")
    assert re.fullmatch(rf"{stem}manylinux_2_\d\d_{MACHINE}\.whl", finished.name)
    assert Wheel.open(finished).dist_info == "flash_attn-2.8.3+rocm64torch2.9.dist-info"


def test_nothing_is_grafted_and_no_member_changes(linked: Path, tmp_path: Path) -> None:
    def members(path: Path) -> Mapping[str, bytes]:
        return {name: data for name, data in read_zip(path).items() if ".dist-info/" not in name}

    assert members(finish_raw_wheel(linked, record(), tmp_path, os.environ)) == members(linked)


def audited(path: Path, folder: Path) -> str:
    """The platform that auditwheel chooses on its own."""
    excludes = [f"--exclude={pattern}" for pattern in EXTERNAL_LIBRARIES]
    command: list[str | Path] = [sys.executable, "-m", "auditwheel", "repair", *excludes, "--wheel-dir", folder, path]
    search = {**os.environ, "PATH": f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run(command, env=search, capture_output=True, check=True)
    (made,) = folder.iterdir()
    return made.stem.rpartition("-")[2]


def test_the_platform_is_the_one_that_a_repair_chooses(linked: Path, finished: Path, tmp_path: Path) -> None:
    assert finished.stem.endswith(audited(linked, tmp_path / "whole"))


def test_libraries_variables_times_modes_and_the_platform_before_change_no_byte(
    raw: Path, finished: Path, libraries: Path, tmp_path: Path
) -> None:
    """Libraries of torch and ROCm stay outside even where they can be found."""
    exported = {
        "LD_LIBRARY_PATH": str(libraries),
        "SOURCE_DATE_EPOCH": "1",
        "AUDITWHEEL_ZIP_COMPRESSION_LEVEL": "9",
        "AUDITWHEEL_PLAT": f"manylinux_2_39_{MACHINE}",
        "AUDITWHEEL_PATCHER": "lief-patchelf",
    }
    platforms = (f"manylinux_2_39_{MACHINE}", f"manylinux2014_{MACHINE}.manylinux_2_17_{MACHINE}")
    mask = os.umask(0o077)
    try:
        for number, (environ, platform_before) in enumerate(zip(({}, exported), platforms, strict=True)):
            folder = tmp_path / str(number)
            folder.mkdir()
            copy = Path(shutil.copy(raw, folder / raw.name.replace(f"linux_{MACHINE}", platform_before)))
            os.utime(copy, (0, 0))

            again = finish_raw_wheel(copy, record(), folder / "dist", {**os.environ, **environ})

            assert (again.name, again.read_bytes()) == (finished.name, finished.read_bytes())
    finally:
        os.umask(mask)


def test_an_installer_and_the_identity_gate_take_it(finished: Path, tmp_path: Path) -> None:
    with WheelFile.open(finished) as source:
        source.validate_record(validate_contents=True)
    wheel = Wheel.open(finished)
    found = read_build_record(wheel)
    assert found

    result = check_identity(Subject(wheel, small_machine(tmp_path), record=found, cell=CELL))

    assert [finding for finding in result.findings if "Requires-Python" not in finding.file] == []
    assert result.status is Status.PASSED


def test_a_wheel_without_compiled_code_keeps_its_platform(tmp_path: Path) -> None:
    assert find_platform(make_wheel(tmp_path), GLIBC, tmp_path, {}) is None
    assert finish_raw_wheel(make_wheel(tmp_path), record(), tmp_path, {}).name.endswith("-py3-none-any.whl")


@pytest.mark.parametrize("name", [UNKNOWN, f"libpython{PYTHON}.so.1.0"])
def test_a_library_that_users_do_not_have_is_refused(libraries: Path, tmp_path: Path, name: str) -> None:
    raw = raw_wheel(tmp_path, extension(*KNOWN, name, fatbin=DEVICE))

    for search in ({}, {"LD_LIBRARY_PATH": str(libraries)}):  # where it is found, a repair would graft it
        with pytest.raises(VerificationError, match=f"^libraries that are not of torch, ROCm or the system: .* {name}"):
            finish_raw_wheel(raw, record(), tmp_path / "dist", {**os.environ, **search})

    assert not (tmp_path / "dist").exists()


def test_a_machine_older_than_the_symbols_of_the_wheel_is_refused(raw: Path, tmp_path: Path) -> None:
    with pytest.raises(VerificationError, match=r"glibc 2\.28 \(the build machine\) or older, found manylinux_2_31"):
        find_platform(raw, "2.28", tmp_path, os.environ)


def test_a_wheel_of_another_project_is_refused_before_auditwheel_runs(tmp_path: Path) -> None:
    raw = raw_wheel(tmp_path, extension(UNKNOWN))
    other = raw.rename(tmp_path / raw.name.replace("flash_attn", "numpy"))

    with pytest.raises(InputError, match=r"not a wheel of flash-attn 2\.8\.3"):
        finish_raw_wheel(other, record(), tmp_path / "dist", os.environ)


SHOWN: Mapping[str, object] = {
    "sym_tag": f"manylinux_2_31_{MACHINE}",
    "unsupported_isa": False,
    "policy_upgrades": {f"manylinux_2_31_{MACHINE}": {"libs_to_eliminate": [*KNOWN]}},
}


@pytest.fixture
def show(monkeypatch: pytest.MonkeyPatch) -> Callable[[object], None]:
    """Replace auditwheel by a program that prints this; it fails if this is None."""

    def install(document: object) -> None:
        done = subprocess.CompletedProcess([], document is None, json.dumps(document), "a reason")
        monkeypatch.setattr(repair, "run", lambda _command, **_: done)

    return install


def test_a_platform_has_its_legacy_name_beside_it() -> None:
    for glibc, names in (
        ("2.5", "manylinux1_x86_64.manylinux_2_5_x86_64"),
        ("2.17", "manylinux2014_x86_64.manylinux_2_17_x86_64"),
        ("2.28", "manylinux_2_28_x86_64"),
    ):
        assert ".".join(sorted(manylinux_platforms(Version(glibc), "x86_64"))) == names


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"sym_tag": "manylinux_2_34_" + MACHINE}, r"of glibc 2.31 \(the build machine\) or older, found"),
        ({"sym_tag": "linux_" + MACHINE}, f"expected a platform manylinux_X_Y_{MACHINE}, found linux_{MACHINE}"),
        ({"sym_tag": "manylinux_2_31_other"}, f"expected a platform manylinux_X_Y_{MACHINE}, found"),
        ({"sym_tag": "musllinux_1_2_" + MACHINE}, f"expected a platform manylinux_X_Y_{MACHINE}, found"),
        ({"unsupported_isa": True}, "found instructions that not every x86-64 processor has"),
        (
            {"policy_upgrades": {f"manylinux_2_31_{MACHINE}": {"blacklisted_symbols": {"libz.so.1": ["_dist_code"]}}}},
            "found symbols of libz.so.1",
        ),
        ({"sym_tag": 1}, "auditwheel failed: .*sym_tag"),
        (None, "auditwheel failed: .*a reason"),
    ],
)
def test_any_other_answer_of_auditwheel_is_refused(
    raw: Path, tmp_path: Path, show: Callable[..., None], changes: Mapping[str, object] | None, what: str
) -> None:
    show(SHOWN)
    assert find_platform(raw, "2.31", tmp_path, {}) == f"manylinux_2_31_{MACHINE}"
    show(None if changes is None else {**SHOWN, **changes})
    with pytest.raises(VerificationError, match=what) as caught:
        find_platform(raw, "2.31", tmp_path, {})
    assert raw.name in caught.value.which
    assert caught.value.hint


@pytest.mark.parametrize(
    "platform", ["any", "win_amd64", "linux_x86_64.linux_aarch64", "manylinux_2_28_i686", "linux_x86_64.any"]
)
def test_compiled_code_that_is_not_tagged_for_one_linux_is_refused(tmp_path: Path, platform: str) -> None:
    raw = raw_wheel(tmp_path, extension(), tags=f"{TAG}-{TAG}-{platform}")
    with pytest.raises(VerificationError, match="expected linux_x86_64 or linux_aarch64, found") as caught:
        find_platform(raw, None, tmp_path, {})
    assert caught.value.which.endswith(", ".join(Wheel.open(raw).platform_tags))


@pytest.mark.parametrize(
    ("tags", "glibc"),
    [
        ("cp311-cp311-manylinux_2_28_x86_64", "2.28"),
        ("cp311-cp311-manylinux_2_5_x86_64.manylinux1_x86_64", "2.5"),
        ("cp311-cp311-manylinux_2_9_x86_64.manylinux_2_28_x86_64", "2.9"),
        ("cp311-cp311-linux_x86_64", None),
        ("py3-none-any", None),
    ],
)
def test_the_oldest_glibc_that_takes_a_wheel(tmp_path: Path, tags: str, glibc: str | None) -> None:
    found = Wheel.open(make_wheel(tmp_path, tags=tags)).glibc

    assert (str(found) if found else None) == glibc
