"""Inspect: the facts of any wheel, library, object file or installed distribution, as JSON values and as text."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from code_object_bytes import code_object
from elf_factory import hip_bundle, library, object_file, package, packed, section, shell, with_section
from wheel_factory import (
    CK,
    TRITON,
    build_record,
    extension,
    extension_name,
    finished_wheel,
    make_wheel,
    payload,
    read_zip,
)
from wheelfactory.core.errors import InputError
from wheelfactory.wheel.inspection import describe, inspect
from wheelfactory.wheel.read import Toolchain

ENVIRON = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

HIP = library(
    fatbin=section(
        hip_bundle("gfx942", "gfx90a:sramecc+:xnack-"),
        packed(hip_bundle("gfx942", "gfx90a:sramecc+:xnack-"), 3, "zstd"),
        packed(hip_bundle(), 1, "zlib"),
    ),
    needed=("libc10.so", "libamdhip64.so.6"),
    undefined=("_ZN3c105ErrorC1Ev", "hipMalloc", "PyErr_Occurred", "somebody_s"),
    soname="libkernels.so",
    runpath="/opt/rocm/lib:$ORIGIN",
)


def as_json(path: Path, environ: Mapping[str, str] = ENVIRON) -> dict[str, Any]:
    facts = json.loads(json.dumps(inspect(path, environ).as_json()))
    assert isinstance(facts, dict)
    return facts


def test_a_wheel_of_this_factory(tmp_path: Path) -> None:
    path = finished_wheel(tmp_path, TRITON)

    facts = as_json(path)

    assert (facts["file"], facts["kind"]) == (path.name, "wheel")
    assert facts["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (facts["size"], facts["members"], facts["elf_files"]) == (path.stat().st_size, 9, [])
    assert facts["distribution"] == {
        "name": "flash-attn",
        "version": "2.8.3+rocm72torch2.13triton",
        "label": "rocm72torch2.13triton",
        "tags": ["py3-none-any"],
        "requires_python": ">=3.9",
        "requires_dist": ["einops", "torch==2.13.*"],
        "record": build_record(TRITON).model_dump(mode="json"),
        "renamed": "",
    }


def test_a_wheel_with_device_code(tmp_path: Path) -> None:
    path = make_wheel(tmp_path, name="other", members={"lib/x.so": HIP, "data.so": b"no ELF file"})

    facts = as_json(path)

    (elf,) = facts["elf_files"]
    assert (facts["distribution"]["label"], facts["distribution"]["record"]) == (None, None)
    assert (elf["name"], elf["size"], elf["soname"]) == ("lib/x.so", len(HIP), "libkernels.so")
    assert elf["needed"] == ["libc10.so", "libamdhip64.so.6"]
    assert elf["runpath"] == ["/opt/rocm/lib", "$ORIGIN"]
    assert (elf["bundles"], elf["registered"]) == (3, 3)
    assert elf["forms"] == ["CCOB v1 zlib", "CCOB v3 zstd", "plain"]
    assert elf["device_code"] == {
        "gfx90a:sramecc+:xnack-": {"objects": 2, "size": 2440},
        "gfx942": {"objects": 2, "size": 2408},
    }
    assert elf["undefined"] == {
        "HIP (by name)": ["hipMalloc"],
        "Python (by name)": ["PyErr_Occurred"],
        "torch (by name)": ["_ZN3c105ErrorC1Ev"],
        "unknown (by name)": ["somebody_s"],
    }


def test_device_code_that_waits_for_a_device_link_is_apart_from_that_of_bundles(tmp_path: Path) -> None:
    path = tmp_path / "libkernels.so"
    source = with_section(".llvm.offloading", package(("gfx942", shell())))
    path.write_bytes(library(source=source, fatbin=section(hip_bundle("gfx90a")), flags=("-nostdlib",)))

    (elf,) = as_json(path)["elf_files"]

    assert (elf["bundles"], elf["packages"], elf["relocatable_kernels"]) == (1, 1, 0)
    assert elf["forms"] == ["package v2", "plain"]
    assert elf["device_code"] == {"gfx90a": {"objects": 1, "size": 1204}}
    assert elf["packaged_code"] == {"gfx942": {"objects": 1, "size": 256}}
    (tmp_path / "kernel.co").write_bytes(code_object("gfx1100"))
    assert as_json(tmp_path / "kernel.co")["elf_files"][0]["code_for"] == "gfx1100"


def test_versioned_symbols_are_grouped_by_their_library_and_tell_the_oldest_glibc(tmp_path: Path) -> None:
    source = '#include <stdio.h>\n#include <math.h>\ndouble f(double x) { puts(""); return exp(x); }'
    path = tmp_path / "libmath.so"
    path.write_bytes(library(source=source, flags=("-O0", "-lm")))

    (elf,) = as_json(path)["elf_files"]

    assert elf["undefined"]["libm.so.6"] == ["exp"]
    assert "puts" in elf["undefined"]["libc.so.6"]
    assert elf["glibc"] == "2.29"  # exp got a new version there


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dist-info folder of a CK wheel that pip installed; tests must not change it."""
    folder = tmp_path_factory.mktemp("installed")
    wheel = finished_wheel(folder, CK, tags="py3-none-any")
    place = folder / "site-packages"
    options = ("--quiet", "--no-deps", "--no-index", "--target", place)
    subprocess.run([sys.executable, "-m", "pip", "install", *options, wheel], check=True)
    (folder,) = place.glob("*.dist-info")
    return folder


def test_an_installed_distribution_by_its_folder(installed: Path) -> None:
    facts = as_json(installed)

    assert (facts["kind"], facts["sha256"]) == ("installed", None)
    assert facts["distribution"]["label"] == "rocm64torch2.9"
    assert facts["distribution"]["record"] == build_record(CK).model_dump(mode="json")
    assert facts["size"] == sum(path.stat().st_size for path in installed.parent.rglob("*") if path.is_file())
    (elf,) = facts["elf_files"]
    assert (elf["name"], elf["bundles"]) == (extension_name(CK), 2)


def test_an_installed_distribution_by_its_name(tmp_path: Path) -> None:
    facts = as_json(Path("PyYAML"))

    assert (facts["kind"], facts["distribution"]["name"]) == ("installed", "pyyaml")
    assert facts["elf_files"]


def test_the_working_directory_is_not_searched(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(installed.parent)

    with pytest.raises(InputError, match="no such file or installed distribution: flash-attn"):
        inspect(Path("flash-attn"), ENVIRON)


def test_other_files_are_an_input_error(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "a.dist-info").mkdir()
    (tmp_path / "some.whl").touch()
    (tmp_path / "text.so").write_text("INPUT(libx.so.1)")
    (tmp_path / "damaged.so").write_bytes(HIP[:200])
    for name, what in (
        ("missing.whl", "no such file"),
        ("some.whl", "not a wheel file name"),
        ("folder", "a folder"),
        ("a.dist-info", "cannot read"),
        ("text.so", "neither a wheel nor an ELF file"),
        ("damaged.so", "damaged ELF file: damaged.so"),
        ("missing.so", "no such file"),
    ):
        with pytest.raises(InputError, match=what):
            inspect(tmp_path / name, ENVIRON)


def lines_of(path: Path) -> list[str]:
    return list(describe(inspect(path, {})))


def test_the_text_of_a_wheel_of_this_factory(tmp_path: Path) -> None:
    toolchain = Toolchain(torch="2.9.1+rocm6.4", cxx11_abi=False, glibc="2.35")
    members = payload(
        CK, undefined=("hipMalloc", "_ZN3c105ErrorC1Ev", "_ZN2at4emptyEv"), runpath="/opt/rocm/lib:$ORIGIN"
    )
    path = finished_wheel(tmp_path, members=members, record=build_record(CK, toolchain=toolchain))
    data, unpacked = path.read_bytes(), read_zip(path)

    assert lines_of(path) == [
        "flash_attn-2.8.3+rocm64torch2.9-cp311-cp311-manylinux_2_28_x86_64.whl",
        f"  sha256    {hashlib.sha256(data).hexdigest()}",
        f"  size      {len(data):,} bytes, {sum(map(len, unpacked.values())):,} unpacked in 9 files",
        "  version   2.8.3+rocm64torch2.9",
        "  label     ROCm 6.4, torch 2.9, ck",
        "  tags      cp311-cp311-manylinux_2_28_x86_64",
        "  python    >=3.9",
        "  requires  einops, torch==2.9.*",
        f"  ELF       {extension_name(CK)} ({len(unpacked[extension_name(CK)]):,} bytes)",
        "    needs   libc10.so, libamdhip64.so.6",
        "    runpath /opt/rocm/lib:$ORIGIN",
        "    glibc   any",
        "    symbols 3 undefined: HIP (by name) 1, torch (by name) 2",
        "    device  2 bundles (plain)",
        "      gfx90a     2 objects         2,408 bytes",
        "      gfx942     2 objects         2,408 bytes",
        "  record    cell fa2.8.3-rocm6.4-torch2.9.1-cp311-ck",
        "    archs     gfx90a, gfx942",
        f"    source    sha256:{'a' * 64}",
        "    torch     2.9.1+rocm6.4",
        "    cxx11_abi False",
        "    glibc     2.35",
    ]


def test_a_renamed_wheel_is_called_that(tmp_path: Path) -> None:
    path = make_wheel(tmp_path, name="einops", version="0.8.2", metadata="Name: flash-attn\nVersion: 2.8.3\n")

    assert "  renamed   METADATA says flash-attn 2.8.3, so pip refuses this file" in lines_of(path)


def test_a_wheel_of_another_project(tmp_path: Path) -> None:
    path = make_wheel(tmp_path, name="einops", version="0.8.2", members={"einops.py": b""}, metadata="Name: einops\n")

    lines = lines_of(path)

    assert "  label     none (not a label of this factory)" in lines
    assert not any("renamed" in line for line in lines)
    assert "  python    any" in lines
    assert "  requires  nothing" in lines
    assert lines[-1] == "  record    none (not a finished wheel of this factory)"


def test_a_library_with_a_packed_bundle_and_a_source_that_was_compiled_for_the_host_only(tmp_path: Path) -> None:
    fatbin = section(packed(hip_bundle("gfx942", "gfx90a:xnack-"), 2, "zlib"))
    (tmp_path / "x.so").write_bytes(extension(fatbin=fatbin, needed=(), registered=2))

    lines = lines_of(tmp_path / "x.so")

    assert "    needs   nothing" in lines
    assert "    runpath none" in lines
    assert lines[-3:] == [
        "    device  1 bundle (CCOB v2 zlib), 2 registered",
        "      gfx90a:xnack-     1 object          1,212 bytes",
        "      gfx942            1 object          1,204 bytes",
    ]


def test_an_object_of_the_new_offload_driver_with_device_code_that_waits_for_a_device_link(tmp_path: Path) -> None:
    source = with_section(".llvm.offloading", package(("gfx90a", b"BC\xc0\xde"), ("gfx942", shell())))
    kernels = with_section("llvm_offload_entries", bytes(56))
    path = tmp_path / "kernel.o"
    path.write_bytes(object_file(fatbin=b"", source=source + kernels))

    assert lines_of(path)[-3:] == [
        "    device  1 package (package v2), 1 kernel for a device link",
        "      gfx90a     1 object              4 bytes",
        "      gfx942     1 object            256 bytes",
    ]
