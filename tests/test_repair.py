"""Repair by the real auditwheel of a real extension: it names the platform, and whatever else it does is refused."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from installer.sources import WheelFile

from wheel_factory import (
    PACKAGE,
    build_record,
    finished_wheel,
    make_wheel,
    read_zip,
    small_workshop,
    tamper,
    toolchain_of,
)
from wheelfactory.cell import Backend, Cell
from wheelfactory.errors import VerificationError
from wheelfactory.repair import refuse_changed, repair_wheel
from wheelfactory.verify.gate import Subject
from wheelfactory.verify.identity import identity
from wheelfactory.verify.result import Status
from wheelfactory.wheel.read import Wheel
from wheelfactory.wheel.record import read_record

PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
TAG = f"cp{PYTHON.replace('.', '')}"
CELL = Cell.of("2.8.3", PYTHON, "2.9.1", "6.4", Backend.CK)

KNOWN = ("libamdhip64.so.6", "libtorch.so", "libc10.so")
UNKNOWN = "libsomething.so.1"

EXTENSION = """
#include <Python.h>
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "flash_attn_2_cuda"};
PyMODINIT_FUNC PyInit_flash_attn_2_cuda(void) { return PyModule_Create(&module); }
"""


def compile_shared(source: str, output: Path, *flags: str | Path) -> Path:
    command = ["cc", "-x", "c", "-", "-x", "none", "-shared", "-fPIC", "-o", output, *flags]
    subprocess.run(command, input=source, text=True, check=True)
    return output


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of libraries that stand in for those that torch and ROCm bring, and of one that neither does."""
    folder = tmp_path_factory.mktemp("libraries")
    for name in (*KNOWN, UNKNOWN):
        compile_shared("int stand_in;", folder / name, f"-Wl,-soname,{name}")
    return folder


def raw_wheel(folder: Path, libraries: Path, *names: str) -> Path:
    """A labelled wheel, as setup.py leaves it, with an extension that needs the libraries of these names."""
    extension = compile_shared(
        EXTENSION,
        folder / "flash_attn_2_cuda.so",
        f"-I{sysconfig.get_path('include')}",
        "-Wl,--no-as-needed",
        *(libraries / name for name in names),
    )
    toolchain = toolchain_of(CELL, glibc=platform.libc_ver()[1])
    return finished_wheel(
        folder,
        CELL,
        tags=f"{TAG}-{TAG}-linux_x86_64",
        members={**PACKAGE, extension.name: extension.read_bytes()},
        record=build_record(CELL, toolchain=toolchain),
    )


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory, libraries: Path) -> Path:
    return raw_wheel(tmp_path_factory.mktemp("raw"), libraries, *KNOWN)


@pytest.fixture(scope="module")
def repaired(tmp_path_factory: pytest.TempPathFactory, raw: Path) -> Path:
    return repair_wheel(raw, tmp_path_factory.mktemp("repaired"), os.environ)


def test_the_name_gets_a_manylinux_tag_and_keeps_its_label(repaired: Path) -> None:
    assert re.fullmatch(
        rf"flash_attn-2\.8\.3\+rocm64torch2\.9-{TAG}-{TAG}-[a-z0-9_.]*manylinux_\d_\d+_x86_64\.whl", repaired.name
    )
    assert Wheel.open(repaired).dist_info == "flash_attn-2.8.3+rocm64torch2.9.dist-info"


def test_nothing_is_grafted_and_nothing_changed_but_the_tag(raw: Path, repaired: Path) -> None:
    def members(path: Path) -> Mapping[str, bytes]:
        files = read_zip(path).items()
        return {name: data for name, data in files if not name.endswith(("/", "/WHEEL", "/RECORD"))}

    assert members(repaired) == members(raw)


def test_what_torch_and_rocm_bring_stays_needed(repaired: Path) -> None:
    (extension,) = Wheel.open(repaired).elf_files

    assert set(KNOWN) <= set(extension.needed)
    assert extension.runpath == ()


def test_known_libraries_stay_outside_even_where_they_can_be_found(
    raw: Path, repaired: Path, libraries: Path, tmp_path: Path
) -> None:
    again = repair_wheel(raw, tmp_path, {**os.environ, "LD_LIBRARY_PATH": str(libraries)})

    assert again.read_bytes() == repaired.read_bytes()


def test_an_installer_and_the_identity_gate_take_it(repaired: Path, tmp_path: Path) -> None:
    with WheelFile.open(repaired) as source:
        source.validate_record(validate_contents=True)
    wheel = Wheel.open(repaired)
    record = read_record(wheel)
    assert record

    result = identity(Subject(wheel, record, CELL, small_workshop(tmp_path)))

    assert (result.status, result.findings) == (Status.PASSED, ())


@pytest.mark.parametrize(
    "exported",
    [
        pytest.param({"SOURCE_DATE_EPOCH": "1"}, id="another time"),
        pytest.param({"AUDITWHEEL_ZIP_COMPRESSION_LEVEL": "0"}, id="another compression"),
        pytest.param({"AUDITWHEEL_PLAT": "manylinux_2_39_x86_64"}, id="another platform"),
    ],
)
def test_what_is_exported_does_not_change_the_bytes(
    raw: Path, repaired: Path, tmp_path: Path, exported: dict[str, str]
) -> None:
    again = repair_wheel(raw, tmp_path, {**os.environ, **exported})

    assert again.name == repaired.name
    assert again.read_bytes() == repaired.read_bytes()


def test_neither_the_time_of_the_file_nor_the_umask_changes_the_bytes(
    raw: Path, repaired: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copy(raw, tmp_path))
    os.utime(copy, (0, 0))
    before = os.umask(0o077)
    try:
        again = repair_wheel(copy, tmp_path / "dist", os.environ)
    finally:
        os.umask(before)

    assert again.read_bytes() == repaired.read_bytes()


def test_a_raw_wheel_without_times_is_repaired(raw: Path, tmp_path: Path) -> None:
    path = tmp_path / raw.name
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in read_zip(raw).items():
            info = zipfile.ZipInfo(name)
            info.date_time = (1980, 0, 0, 0, 0, 0)
            archive.writestr(info, data)

    assert repair_wheel(path, tmp_path / "dist", os.environ).is_file()


def test_a_library_that_neither_torch_nor_rocm_brings_is_refused(libraries: Path, tmp_path: Path) -> None:
    raw = raw_wheel(tmp_path, libraries, *KNOWN, UNKNOWN)

    with pytest.raises(VerificationError, match="auditwheel refused the wheel") as caught:
        repair_wheel(raw, tmp_path / "dist", os.environ)

    assert raw.name in caught.value.which
    assert f'"{UNKNOWN}" could not be located' in caught.value.which
    assert "\n" not in str(caught.value)
    assert list((tmp_path / "dist").iterdir()) == []


def test_a_library_that_auditwheel_could_graft_is_refused_all_the_same(libraries: Path, tmp_path: Path) -> None:
    raw = raw_wheel(tmp_path, libraries, *KNOWN, UNKNOWN)

    with pytest.raises(VerificationError, match="auditwheel grafted libraries") as caught:
        repair_wheel(raw, tmp_path / "dist", {**os.environ, "LD_LIBRARY_PATH": str(libraries)})

    assert "libsomething" in caught.value.which
    assert "OUTSIDE" in caught.value.hint
    assert list((tmp_path / "dist").iterdir()) == []


def test_a_wheel_without_compiled_code_is_refused(tmp_path: Path) -> None:
    with pytest.raises(VerificationError, match="does not look like a platform wheel"):
        repair_wheel(make_wheel(tmp_path), tmp_path / "dist", os.environ)


def test_a_grafted_folder_is_refused(raw: Path, tmp_path: Path) -> None:
    after = tamper(Path(shutil.copy(raw, tmp_path)), {"flash_attn.libs/libamdhip64-0123abcd.so.6": b""})

    with pytest.raises(VerificationError, match=r"grafted libraries: flash_attn\.libs/libamdhip64-0123abcd\.so\.6"):
        refuse_changed(Wheel.open(raw), Wheel.open(after))


def test_a_changed_needed_is_refused(raw: Path, libraries: Path, tmp_path: Path) -> None:
    after = raw_wheel(tmp_path, libraries, "libamdhip64.so.6")

    with pytest.raises(VerificationError, match="auditwheel changed what is needed") as caught:
        refuse_changed(Wheel.open(raw), Wheel.open(after))

    assert "libtorch.so" in caught.value.which


def test_an_added_runpath_is_refused(raw: Path, libraries: Path, tmp_path: Path) -> None:
    extension = compile_shared(
        "", tmp_path / "x.so", "-Wl,--no-as-needed,-rpath,/opt/rocm", *(libraries / n for n in KNOWN)
    )
    after = tamper(Path(shutil.copy(raw, tmp_path)), {"flash_attn_2_cuda.so": extension.read_bytes()})

    with pytest.raises(VerificationError, match="auditwheel changed what is needed"):
        refuse_changed(Wheel.open(raw), Wheel.open(after))


def test_a_lost_shared_object_is_refused(raw: Path, tmp_path: Path) -> None:
    after = tamper(Path(shutil.copy(raw, tmp_path)), {"flash_attn_2_cuda.so": None})

    with pytest.raises(VerificationError, match="auditwheel changed what is needed"):
        refuse_changed(Wheel.open(raw), Wheel.open(after))


def test_a_lost_label_is_refused(raw: Path, tmp_path: Path) -> None:
    after = Path(shutil.copy(raw, tmp_path / raw.name.replace("+rocm64torch2.9", "")))

    with pytest.raises(VerificationError, match="auditwheel changed the name"):
        refuse_changed(Wheel.open(raw), Wheel.open(after))


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
