"""The facts as text: everything once, symbols and bundles counted."""

from __future__ import annotations

import hashlib
from pathlib import Path

from elf_factory import hip_bundle, object_file, package, packed, section, shell, with_section
from wheel_factory import CK, build_record, extension, extension_name, finished_wheel, make_wheel, payload, read_zip
from wheelfactory.wheel.build_record import Toolchain
from wheelfactory.wheel.inspect.facts import inspect
from wheelfactory.wheel.inspect.facts_text import describe


def lines_of(path: Path) -> list[str]:
    return list(describe(inspect(path, {})))


def test_a_wheel_of_this_factory(tmp_path: Path) -> None:
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
    assert "  python    any" in lines
    assert not any("renamed" in line for line in lines)
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
