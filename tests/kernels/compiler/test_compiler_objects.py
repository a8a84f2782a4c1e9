"""An object put together from its parts has the bytes of an ordinary one; whatever is not understood is refused."""

from __future__ import annotations

import hashlib
import os
import shlex
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from code_object_bytes import bundle as bundle_bytes
from code_object_bytes import code_object
from elf_factory import hip_bundle, object_file, packed, with_section
from hip_rocm import make_hip_rocm
from hip_toolchain import DECLARATIONS, HipToolchain
from kernel_project import HIPCC
from wheelfactory.kernels.compiler.objects import (
    NEW_DRIVER,
    NEW_DRIVER_RDC,
    OLD_DRIVER,
    OLD_DRIVER_RDC,
    Bundler,
    CannotComposeError,
    embed,
    find_fat_binary,
    find_offload_form,
    read_bundler,
)
from wheelfactory.wheel.elf.offload import read_bundles

# objects

PROGBITS, STRTAB, NOBITS = 1, 3, 8
CODE = b"code for several archs " * 300


@dataclass(frozen=True)
class Section:
    """A section of an object; one of the type `NOBITS` has `size` bytes, but none in the file."""

    name: bytes
    content: bytes
    align: int = 1
    type: int = PROGBITS
    size: int = 0


def made(fat_binary: bytes | None) -> bytes:
    """An object in clang's layout, with this fat binary between other sections."""
    sections = [
        Section(b".text", b"\x90" * 37, 16),
        *([] if fat_binary is None else [Section(b".hip_fatbin", fat_binary, 4096)]),
        Section(b".bss", b"", 8, NOBITS, 4000),
        Section(b".hipFatBinSegment", bytes(range(24)), 8),
        Section(b".rodata", b"text", 1),
    ]
    return elf(sections)


def elf(sections: Sequence[Section]) -> bytes:
    """An ELF64 object of these sections, and of one with their names; the section headers are at its end."""
    texts, body, headers = b"\0", bytearray(64), [bytes(64)]
    names = Section(b".strtab", b"", 1, STRTAB)
    everything = [*sections, names]
    starts = []
    for section in everything:
        starts.append(len(texts))
        texts += section.name + b"\0"
    for section, start in zip([*sections, replace(names, content=texts)], starts, strict=True):
        body += bytes(-len(body) % section.align)
        size = section.size or len(section.content)
        headers.append(struct.pack("<IIQQQQIIQQ", start, section.type, 2, 0, len(body), size, 0, 0, section.align, 0))
        body += section.content
    body += bytes(-len(body) % 8)
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    count = len(headers)
    body[:64] = ident + struct.pack("<HHIQQQIHHHHHH", 1, 62, 1, 0, 0, len(body), 0, 64, 0, 0, 64, count, count - 1)
    return bytes(body) + b"".join(headers)


def test_the_fat_binary_replaces_the_content_of_its_section_and_nothing_else() -> None:
    for code in (b"", b"x", CODE, bytes(4096)):
        assert embed(made(b"\0"), code) == made(code)
        assert find_fat_binary(made(code)) == code
    assert embed(made(None), CODE) == made(None), "without device code"
    assert find_fat_binary(made(None)) is None


@pytest.mark.parametrize("source", ["", 'int counter[99]; const char *text(void) { return "text"; }'])
def test_the_object_of_a_real_compiler_keeps_its_other_sections(source: str) -> None:
    whole = object_file(fatbin=CODE, source=source)
    assert find_fat_binary(whole) == CODE
    assert find_fat_binary(embed(whole, b"other")) == b"other"
    assert embed(embed(whole, b"other"), CODE) == embed(whole, CODE)


def test_every_truncated_object_is_refused() -> None:
    whole = made(b"code")
    for length in range(len(whole)):
        with pytest.raises(CannotComposeError):
            embed(whole[:length], CODE)
        with pytest.raises(CannotComposeError):
            find_fat_binary(whole[:length])


def test_another_format_is_refused() -> None:
    for start in (b"BC\xc0\xde", b"\x7fELF\x01\x01", b"\x7fELF\x02\x02", b"__CLANG_OFFLOAD_BUNDLE__"):
        with pytest.raises(CannotComposeError, match="an object of the compiler is damaged: n"):
            embed(start + made(CODE)[len(start) :], CODE)


# the form of the device code in an object

ARCHS = ("gfx90a", "gfx942")


def form_of(folder: Path, data: bytes) -> str:
    path = folder / "kernel.o"
    path.write_bytes(data)
    return find_offload_form(path)


def test_the_form_is_read_from_the_ids_of_a_bundle_or_from_the_name_of_a_section(tmp_path: Path) -> None:
    new = bundle_bytes([(HOST, b""), ("hip-amdgcn-amd-amdhsa--gfx942", code_object())])
    assert form_of(tmp_path, object_file(fatbin=hip_bundle(*ARCHS))) == OLD_DRIVER
    assert form_of(tmp_path, object_file(fatbin=new)) == NEW_DRIVER
    for section, form in (
        (".llvm.offloading", NEW_DRIVER_RDC),
        ("__CLANG_OFFLOAD_BUNDLE__hip-amdgcn-amd-amdhsa--gfx942", OLD_DRIVER_RDC),
    ):
        assert form_of(tmp_path, object_file(fatbin=b"", source=with_section(section, b"code"))) == form
    for data in (object_file(fatbin=b""), object_file(fatbin=packed(hip_bundle(*ARCHS))), b"BC\xc0\xde", b""):
        assert form_of(tmp_path, data) == "", "no device code, or a compressed bundle"


# the bundler

HOST, DEVICE = "host-x86_64-unknown-linux-gnu-", "hipv4-amdgcn-amd-amdhsa--"
BUNDLER = Bundler("/rocm/llvm/bin/clang-offload-bundler", 4096, HOST, DEVICE)
OPTIONS = (
    "-type=o",
    "-bundle-align=4096",
    f"-targets={HOST},{DEVICE}gfx90a,{DEVICE}gfx942",
    "-input=/dev/null",
    "-input=/build/a-gfx90a.out",
    "-input=/build/a-gfx942.out",
    "-output=/build/a.hipfb",
)


def read(folder: Path, *options: str, lines: int = 1) -> Bundler:
    """Ask a driver that starts the bundler `lines` times with these options."""
    driver, program = folder / "hipcc", folder / "clang-offload-bundler"
    if not program.exists():
        program.write_text(HIPCC)
        program.chmod(0o755)
    command = " ".join(f'"{word}"' for word in (program, *options))
    text = "\n".join(["clang version 19.0.0", ' "/rocm/clang" "-cc1"', *[f" {command}"] * lines])
    driver.write_text(f"#!/bin/sh\n[ $2 = -### ] && echo {shlex.quote(text)} >&2\n")
    driver.chmod(0o755)
    return read_bundler([str(driver), "-O3"], str(folder), {"PATH": "/bin"}, ARCHS)


def test_the_bundler_and_its_options_are_those_of_the_driver(tmp_path: Path) -> None:
    assert replace(read(tmp_path, *OPTIONS), program=BUNDLER.program) == BUNDLER
    short = [word.replace(HOST, HOST[:-1]) for word in OPTIONS]
    assert replace(read(tmp_path, *short), program=BUNDLER.program) == BUNDLER, "the name that is written"


@pytest.mark.parametrize(
    "options",
    [
        (*OPTIONS, "-compress"),
        ("-compress", *OPTIONS),
        (*OPTIONS, "-verbose=1"),
        (OPTIONS[0], *OPTIONS[2:]),
        ("-type=bc", *OPTIONS[1:]),
        (*OPTIONS[:4], OPTIONS[5], OPTIONS[4], *OPTIONS[6:], "-input=/build/more"),
        (*OPTIONS[:2], f"-targets={HOST},{DEVICE}gfx942,{DEVICE}gfx90a", *OPTIONS[3:]),
        (*OPTIONS[:2], f"-targets={HOST},{DEVICE}gfx90a", *OPTIONS[3:]),
        (*OPTIONS[:3], "-input=/build/host.out", *OPTIONS[4:]),
        (),
    ],
    ids=[
        *("compression", "compression first", "another option", "no alignment", "another type", "more inputs"),
        *("another order", "an arch less", "a host object", "none"),
    ],
)
def test_a_driver_that_bundles_in_another_way_is_refused(tmp_path: Path, options: tuple[str, ...]) -> None:
    with pytest.raises(CannotComposeError, match="clang-offload-bundler has other options than expected"):
        read(tmp_path, *options)


def test_a_driver_that_does_not_start_one_bundler_is_refused(tmp_path: Path) -> None:
    for lines in (0, 2):
        with pytest.raises(CannotComposeError, match="does not start clang-offload-bundler once"):
            read(tmp_path, *OPTIONS, lines=lines)


def test_the_new_offload_driver_is_refused_by_name_and_the_message_names_the_option_for_the_old_one(
    tmp_path: Path,
) -> None:
    """clang 22 and 23 name the bundler in the command of the wrapper, and do not start it."""
    driver = tmp_path / "hipcc"
    wrapper = '"/rocm/clang-linker-wrapper" "--linker-path=/rocm/clang-offload-bundler" "--emit-fatbin-only"'
    driver.write_text(f"#!/bin/sh\necho {shlex.quote(wrapper)} >&2\n")
    driver.chmod(0o755)
    with pytest.raises(CannotComposeError, match=r"the new offload driver .*--no-offload-new-driver"):
        read_bundler([str(driver)], str(tmp_path), {"PATH": "/bin"}, ARCHS)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo 'error: no such arch' >&2; exit 1", "failed: error: no such arch"),
        ('for word; do last=$word; done; echo __CLANG_OFFLOAD_BUNDLE__ > "${last#-output=}"', "an unknown format"),
    ],
)
def test_a_bundler_that_writes_something_else_than_we_do_is_refused(tmp_path: Path, script: str, message: str) -> None:
    program = tmp_path / "clang-offload-bundler"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    with pytest.raises(CannotComposeError, match=f"clang-offload-bundler .*{message}"):
        read(tmp_path, *OPTIONS)


def test_a_bundle_has_the_code_of_each_arch_in_order() -> None:
    code = {arch: code_object(arch) for arch in ("gfx942", "gfx90a")}
    (found,) = read_bundles(memoryview(BUNDLER.bundle(code)))
    assert [(str(entry.target), entry.sha256) for entry in found.entries[1:]] == [
        (arch, hashlib.sha256(data).hexdigest()) for arch, data in code.items()
    ]


# the drivers of a real compiler

OLD_OPTION, NEW_OPTION = "--no-offload-new-driver", "--offload-new-driver"


def kernel_source(folder: Path) -> Path:
    path = folder / "kernel.hip"
    path.write_text(f"{DECLARATIONS}__global__ void kernel() {{}}\n")
    return path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "form"),
    [
        ((OLD_OPTION,), OLD_DRIVER),
        ((NEW_OPTION,), NEW_DRIVER),
        ((OLD_OPTION, "-fgpu-rdc"), OLD_DRIVER_RDC),
        ((NEW_OPTION, "-fgpu-rdc"), NEW_DRIVER_RDC),
    ],
)
def test_the_form_of_a_real_object_shows_its_driver(
    hip: HipToolchain, tmp_path: Path, flags: tuple[str, ...], form: str
) -> None:
    assert find_offload_form(hip.compile(kernel_source(tmp_path), ARCHS, "-nogpuinc", *flags)) == form


@pytest.mark.slow
def test_objects_of_a_real_compiler_are_composed_with_the_old_driver_and_not_with_the_new_one(
    hip: HipToolchain, tmp_path: Path
) -> None:
    rocm = make_hip_rocm(hip, tmp_path / "rocm", tmp_path)
    archs = [f"--offload-arch={arch}" for arch in ARCHS]
    files = ["-c", str(kernel_source(tmp_path)), "-o", str(tmp_path / "kernel.o")]
    command = [str(rocm / "bin/hipcc"), *archs, "-nogpuinc", *files]

    bundler = read_bundler([*command, OLD_OPTION], str(tmp_path), os.environ, ARCHS)
    assert bundler.device == DEVICE
    with pytest.raises(CannotComposeError, match="the new offload driver"):
        read_bundler([*command, NEW_OPTION], str(tmp_path), os.environ, ARCHS)
