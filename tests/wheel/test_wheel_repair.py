"""Repairing a real extension with the real auditwheel: only its platform tag is used, any other change is refused."""

from __future__ import annotations

import hashlib
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

from elf_factory import hip_bundle, library, section
from wheel_factory import (
    PACKAGE,
    build_record,
    make_wheel,
    read_zip,
    small_machine,
    tamper,
    toolchain_of,
)
from wheelfactory.core.cell import Backend, Cell
from wheelfactory.core.errors import InputError, VerificationError
from wheelfactory.pipeline.build import finish_raw_wheel
from wheelfactory.verify.gate import Subject
from wheelfactory.verify.identity import check_identity
from wheelfactory.verify.result import Status
from wheelfactory.wheel import repair
from wheelfactory.wheel.archive import open_archive
from wheelfactory.wheel.build_record import BuildRecord, read_build_record
from wheelfactory.wheel.read import Wheel
from wheelfactory.wheel.repair import EXTERNAL_LIBRARIES, find_platform, require_unchanged, require_valid_platform
from wheelfactory.wheel.stripped import write_stripped_wheel

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


def test_libraries_of_torch_and_rocm_stay_in_needed(finished: Path) -> None:
    with open_archive(finished) as archive:
        data = archive.read("flash_attn_2_cuda.so")

    for name in KNOWN:
        assert name.encode() in data
    assert DEVICE in data


def test_an_executable_bit_is_kept(finished: Path) -> None:
    with open_archive(finished) as archive:
        modes = {info.filename: info.external_attr >> 16 & 0o777 for info in archive.infolist()}

    assert modes.pop("flash_attn_2_cuda.so") == 0o755
    assert set(modes.values()) == {0o644}


def audited(path: Path, folder: Path) -> str:
    """The platform that auditwheel chooses on its own."""
    excludes = [f"--exclude={pattern}" for pattern in EXTERNAL_LIBRARIES]
    command: list[str | Path] = [sys.executable, "-m", "auditwheel", "repair", *excludes, "--wheel-dir", folder, path]
    search = {**os.environ, "PATH": f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run(command, env=search, capture_output=True, check=True)
    (made,) = folder.iterdir()
    return made.stem.rpartition("-")[2]


def test_the_stripped_wheel_gets_the_same_tag_as_the_whole_wheel(linked: Path, finished: Path, tmp_path: Path) -> None:
    stripped = write_stripped_wheel(linked, tmp_path)

    assert stripped
    assert (
        Wheel.open(stripped).sizes["flash_attn_2_cuda.so"] < Wheel.open(linked).sizes["flash_attn_2_cuda.so"] - 90_000
    )
    whole = audited(linked, tmp_path / "whole")
    assert whole == audited(stripped, tmp_path / "stripped")
    assert finished.stem.endswith(whole)


def test_where_nothing_can_be_cut_auditwheel_gets_the_whole_file(tmp_path: Path) -> None:
    (tmp_path / "script").write_text(LLD.replace("AFTER .rela.plt", "BEFORE .hash"))
    data = extension(*KNOWN, fatbin=section(hip_bundle("gfx942")), flags=(f"-Wl,-T,{tmp_path}/script",))
    raw = raw_wheel(tmp_path, data)
    (tmp_path / "stripped").mkdir()

    stripped = write_stripped_wheel(raw, tmp_path / "stripped")

    assert stripped
    assert read_zip(stripped)["flash_attn_2_cuda.so"] == data
    assert "manylinux_2_" in finish_raw_wheel(raw, record(), tmp_path, os.environ).name


def test_a_name_that_has_a_platform_gets_the_one_that_its_symbols_ask_for(
    raw: Path, finished: Path, tmp_path: Path
) -> None:
    for number, before in enumerate((f"manylinux_2_39_{MACHINE}", f"manylinux2014_{MACHINE}.manylinux_2_17_{MACHINE}")):
        folder = tmp_path / str(number)
        folder.mkdir()
        tagged = Path(shutil.copy(raw, folder / raw.name.replace(f"linux_{MACHINE}", before)))

        again = finish_raw_wheel(tagged, record(), folder / "dist", os.environ)

        assert again.name == finished.name
        assert again.read_bytes() == finished.read_bytes()


def test_finishing_a_finished_wheel_changes_nothing(finished: Path, tmp_path: Path) -> None:
    assert finish_raw_wheel(finished, record(), tmp_path, os.environ).read_bytes() == finished.read_bytes()


def test_libraries_of_torch_and_rocm_stay_outside_even_where_they_can_be_found(
    raw: Path, finished: Path, libraries: Path, tmp_path: Path
) -> None:
    again = finish_raw_wheel(raw, record(), tmp_path, {**os.environ, "LD_LIBRARY_PATH": str(libraries)})

    assert again.read_bytes() == finished.read_bytes()


def test_an_installer_and_the_identity_gate_take_it(finished: Path, tmp_path: Path) -> None:
    with WheelFile.open(finished) as source:
        source.validate_record(validate_contents=True)
    wheel = Wheel.open(finished)
    found = read_build_record(wheel)
    assert found

    result = check_identity(Subject(wheel, found, CELL, **small_machine(tmp_path)))

    assert [finding for finding in result.findings if "Requires-Python" not in finding.file] == []
    assert result.status is Status.PASSED


def test_exported_variables_do_not_change_the_bytes(raw: Path, finished: Path, tmp_path: Path) -> None:
    exported = {
        "SOURCE_DATE_EPOCH": "1",
        "AUDITWHEEL_ZIP_COMPRESSION_LEVEL": "9",
        "AUDITWHEEL_PLAT": f"manylinux_2_39_{MACHINE}",
        "AUDITWHEEL_PATCHER": "lief-patchelf",
    }
    again = finish_raw_wheel(raw, record(), tmp_path, {**os.environ, **exported})

    assert again.name == finished.name
    assert again.read_bytes() == finished.read_bytes()


def test_neither_the_time_of_the_file_nor_the_umask_changes_the_bytes(
    raw: Path, finished: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copy(raw, tmp_path))
    os.utime(copy, (0, 0))
    before = os.umask(0o077)
    try:
        again = finish_raw_wheel(copy, record(), tmp_path / "dist", os.environ)
    finally:
        os.umask(before)

    assert again.read_bytes() == finished.read_bytes()


def test_a_wheel_without_compiled_code_keeps_its_platform(tmp_path: Path) -> None:
    assert find_platform(make_wheel(tmp_path), GLIBC, tmp_path, {}) is None
    assert finish_raw_wheel(make_wheel(tmp_path), record(), tmp_path, {}).name.endswith("-py3-none-any.whl")


def test_an_unknown_library_is_refused(tmp_path: Path) -> None:
    raw = raw_wheel(tmp_path, extension(*KNOWN, UNKNOWN))

    with pytest.raises(VerificationError, match="auditwheel failed") as caught:
        finish_raw_wheel(raw, record(), tmp_path / "dist", os.environ)

    assert raw.name in caught.value.which
    assert f'"{UNKNOWN}" could not be located' in caught.value.which
    assert "\n" not in str(caught.value)
    assert list((tmp_path / "dist").iterdir()) == []


@pytest.mark.parametrize("fatbin", [b"", DEVICE], ids=["whole", "stripped"])
def test_a_library_that_auditwheel_could_graft_is_refused(libraries: Path, tmp_path: Path, fatbin: bytes) -> None:
    raw = raw_wheel(tmp_path, extension(*KNOWN, UNKNOWN, fatbin=fatbin))

    with pytest.raises(VerificationError, match="auditwheel grafted libraries") as caught:
        finish_raw_wheel(raw, record(), tmp_path / "dist", {**os.environ, "LD_LIBRARY_PATH": str(libraries)})

    assert "libsomething" in caught.value.which
    assert "EXTERNAL_LIBRARIES" in caught.value.hint
    assert list((tmp_path / "dist").iterdir()) == []


def test_libpython_is_refused(tmp_path: Path) -> None:
    raw = raw_wheel(tmp_path, extension(f"libpython{PYTHON}.so.1.0"))

    with pytest.raises(VerificationError, match="auditwheel changed NEEDED or RUNPATH") as caught:
        finish_raw_wheel(raw, record(), tmp_path / "dist", os.environ)

    assert f"expected NEEDED libc.so.6, libm.so.6, libpython{PYTHON}.so.1.0" in caught.value.which
    assert "found NEEDED libc.so.6, libm.so.6 and" in caught.value.which
    assert "libpython" in caught.value.hint


def test_a_machine_older_than_the_symbols_of_the_wheel_is_refused(raw: Path, tmp_path: Path) -> None:
    with pytest.raises(VerificationError, match=r"glibc 2\.28 \(the build machine\) or older, found manylinux_2_31"):
        find_platform(raw, "2.28", tmp_path, os.environ)


def test_a_wheel_of_another_project_is_refused_before_auditwheel_runs(tmp_path: Path) -> None:
    raw = raw_wheel(tmp_path, extension(UNKNOWN))
    other = raw.rename(tmp_path / raw.name.replace("flash_attn", "numpy"))

    with pytest.raises(InputError, match=r"not a wheel of flash-attn 2\.8\.3"):
        finish_raw_wheel(other, record(), tmp_path / "dist", os.environ)


@pytest.fixture
def auditwheel(monkeypatch: pytest.MonkeyPatch) -> Callable[[Mapping[str, Mapping[str, bytes | None]]], None]:
    """Replace auditwheel by a program that copies the wheel to these names, with these members changed."""

    def install(made: Mapping[str, Mapping[str, bytes | None]]) -> None:
        def run(command: list[str | Path], **_: object) -> subprocess.CompletedProcess[str]:
            folder, path = map(Path, command[-2:])
            folder.mkdir()
            for name, changes in made.items():
                tamper(Path(shutil.copy(path, folder / name)), changes)
            return subprocess.CompletedProcess([], 0, "", "")

        monkeypatch.setattr(repair, "run", run)

    return install


GOOD = f"flash_attn-2.8.3-{TAG}-{TAG}-manylinux_2_31_{MACHINE}.whl"


@pytest.mark.parametrize(
    ("made", "what"),
    [
        pytest.param({}, "expected one wheel, found nothing", id="no wheel"),
        pytest.param({GOOD: {}, f"other-{GOOD}": {}}, f"found {GOOD}, other-{GOOD}", id="two wheels"),
        pytest.param(
            {GOOD: {"flash_attn.libs/libm-1.so": b""}}, r"grafted libraries: flash_attn\.libs/libm-1", id="graft"
        ),
        pytest.param({GOOD: {"more.so": b""}}, r"found more\.so added, nothing removed", id="one more member"),
        pytest.param({GOOD: {"flash_attn_2_cuda.so": None}}, r"expected .*flash_attn_2_cuda\.so", id="one less"),
        pytest.param(
            {GOOD.replace("2.8.3", "2.8.4"): {}}, "a name that starts with flash_attn-2.8.3-", id="another version"
        ),
        pytest.param({GOOD.replace(TAG, "cp39"): {}}, f"starts with flash_attn-2.8.3-{TAG}", id="another Python"),
        pytest.param(
            {GOOD.replace("many", ""): {}}, f"expected one platform, manylinux_X_Y_{MACHINE}", id="no platform"
        ),
        pytest.param({GOOD.replace("2_31", "2_17"): {}}, r"expected a platform of glibc 2\.29 or newer", id="too old"),
    ],
)
def test_any_other_change_by_auditwheel_is_refused(
    tmp_path: Path,
    auditwheel: Callable[[Mapping[str, Mapping[str, bytes | None]]], None],
    made: Mapping[str, Mapping[str, bytes | None]],
    what: str,
) -> None:
    raw = raw_wheel(tmp_path, extension(*KNOWN))
    auditwheel(made)

    with pytest.raises(VerificationError, match=what) as caught:
        finish_raw_wheel(raw, record(), tmp_path / "dist", os.environ)

    assert caught.value.hint
    assert list((tmp_path / "dist").iterdir()) == []


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(lambda: extension("libamdhip64.so.6"), id="NEEDED"),
        pytest.param(lambda: extension(*KNOWN, flags=("-Wl,-rpath,/opt/rocm",)), id="RUNPATH"),
    ],
)
def test_a_changed_extension_is_refused(tmp_path: Path, changed: Callable[[], bytes]) -> None:
    before = raw_wheel(tmp_path / "before", extension(*KNOWN))
    after = raw_wheel(tmp_path / "after", changed())

    with pytest.raises(VerificationError, match="auditwheel changed NEEDED or RUNPATH: flash_attn_2_cuda") as caught:
        require_unchanged(Wheel.open(before), Wheel.open(after))

    assert "expected NEEDED libamdhip64.so.6, libc.so.6, libc10.so" in caught.value.which


@pytest.mark.parametrize(
    ("needs", "tag", "built_on"),
    [
        ("2.28", "manylinux_2_28_x86_64", "2.31"),
        ("2.28", "manylinux_2_31_x86_64", "2.31"),
        ("2.14", "manylinux2014_x86_64.manylinux_2_17_x86_64", "2.17"),
        ("2.2.5", "manylinux1_x86_64.manylinux_2_5_x86_64", "2.39"),
        (None, "manylinux_2_28_x86_64", "2.31"),
        ("2.28", "manylinux_2_39_x86_64", None),
    ],
)
def test_a_platform_between_the_symbols_and_the_machine_is_right(
    tmp_path: Path, needs: str | None, tag: str, built_on: str | None
) -> None:
    wheel = Wheel.open(make_wheel(tmp_path, tags=f"cp311-cp311-{tag}"))

    require_valid_platform(wheel, "x86_64", Version(needs) if needs else None, Version(built_on) if built_on else None)


ONE = "one platform, manylinux_X_Y_x86_64"


@pytest.mark.parametrize(
    ("tag", "expected"),
    [
        ("manylinux2014_x86_64.manylinux_2_17_x86_64", "a platform of glibc 2.28 or newer"),
        ("manylinux_2_27_x86_64", "a platform of glibc 2.28 or newer"),
        ("manylinux_2_34_x86_64", "a platform of glibc 2.31 (the build machine) or older"),
        ("manylinux_2_28_aarch64", ONE),
        ("manylinux_2_28_x86_64.manylinux_2_31_x86_64", ONE),
        ("manylinux2014_x86_64.manylinux_2_28_x86_64", ONE),
        ("linux_x86_64.manylinux_2_28_x86_64", ONE),
        ("linux_x86_64", ONE),
        ("musllinux_1_2_x86_64", ONE),
    ],
)
def test_any_other_platform_is_refused(tmp_path: Path, tag: str, expected: str) -> None:
    wheel = Wheel.open(make_wheel(tmp_path, tags=f"cp311-cp311-{tag}"))

    with pytest.raises(VerificationError, match=re.escape(f"{wheel.path.name}: expected {expected}, found")) as caught:
        require_valid_platform(wheel, "x86_64", Version("2.28"), Version("2.31"))

    assert caught.value.which.endswith(", ".join(wheel.platform_tags))
    assert caught.value.hint


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
