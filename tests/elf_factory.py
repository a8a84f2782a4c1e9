"""Build ELF libraries with the system's compiler, and offload bundles byte by byte in LLVM's layout."""

from __future__ import annotations

import struct
import subprocess
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import zstandard

from code_object_bytes import bundle, code_object
from wheelfactory.wheel.elf.code_object import MACHINES
from wheelfactory.wheel.elf.image import DamagedElfError
from wheelfactory.wheel.elf.offload import read_bundles

HOST = "host-x86_64-unknown-linux-gnu-"
NUMBERS = {arch: number for number, arch in MACHINES.items()}


def shell(arch: str = "gfx942", size: int = 256) -> bytes:
    """Return what only looks like a code object: an ELF header of an AMD GPU, padded to `size` bytes."""
    ident = b"\x7fELF" + bytes([2, 1, 1, 64, 4]) + bytes(7)
    header = struct.pack("<HHIQQQIHHHHHH", 3, 224, 1, 0, 0, 0, NUMBERS[arch.partition(":")[0]], 64, 56, 0, 64, 0, 0)
    return (ident + header).ljust(size, b"*")


def hip_bundle(*targets: str, objects: Mapping[str, bytes] | None = None) -> bytes:
    """Return the bundle of a HIP compiler: an empty host entry, and a code object for each target."""
    contents = {target: code_object(target) for target in targets} | dict(objects or {})
    return bundle([(HOST, b""), *((f"hipv4-amdgcn-amd-amdhsa--{name}", data) for name, data in contents.items())])


def packed(plain: bytes, version: int = 3, method: str = "zstd") -> bytes:
    """Compress a bundle like a compiler."""
    body = zlib.compress(plain) if method == "zlib" else zstandard.ZstdCompressor().compress(plain)
    form = {1: "<IQ", 2: "<IIQ", 3: "<QQQ"}[version]
    total = 8 + struct.calcsize(form) + len(body)
    sizes = (len(plain), 7) if version == 1 else (total, len(plain), 7)
    return b"CCOB" + struct.pack("<HH", version, ["zlib", "zstd"].index(method)) + struct.pack(form, *sizes) + body


def package(*images: tuple[str, bytes], version: int = 2, kind: int = 4) -> bytes:
    """Return an offload package of archs and images, in the layout of clang 21 (version 1, one image) or clang 23."""
    row, entries_at = {1: 16, 2: 24}[version], 32
    keys_at = entries_at + 40 * len(images)
    texts_at = keys_at + 2 * row * len(images)
    values = [("arch", arch) for arch, _ in images] + [("triple", "amdgcn-amd-amdhsa")]
    words = list(dict.fromkeys(word for pair in values for word in pair))
    texts = b"".join(word.encode() + b"\0" for word in words)
    offset = {word: texts_at + len("".join(words[:place])) + place for place, word in enumerate(words)}
    images_at = texts_at + len(texts) + -(texts_at + len(texts)) % 8
    entries, keys, body = b"", b"", b""
    for arch, content in images:
        place = (keys_at + len(keys), 2, images_at + len(body), len(content))
        entries += struct.pack("<HHIQQQQ", 2, kind, 0, *place)
        for key, value in (("arch", arch), ("triple", "amdgcn-amd-amdhsa")):
            keys += struct.pack("<QQ", offset[key], offset[value])
            keys += struct.pack("<Q", len(value)) if version == 2 else b""
        body += content + bytes(-len(content) % 8)
    tables = (entries + keys + texts).ljust(images_at - entries_at, b"\0")
    size = images_at + len(body)
    number = len(images) if version == 2 else 40
    return b"\x10\xff\x10\xad" + struct.pack("<IQQQ", version, size, entries_at, number) + tables + body


def section(*bundles: bytes) -> bytes:
    """Join the bundles of several objects as a linker does: each starts at a page."""
    return b"".join(data + bytes(-len(data) % 4096) for data in bundles)


@cache
def library(
    *,
    fatbin: bytes = b"",
    needed: tuple[str, ...] = (),
    undefined: tuple[str, ...] = (),
    weak: tuple[str, ...] = (),
    defined: tuple[str, ...] = (),
    soname: str = "",
    runpath: str = "",
    source: str = "",
    flags: tuple[str, ...] = (),
    registered: int | None = None,
    kernels: tuple[str, ...] | None = None,
) -> bytes:
    """Build a shared library for this machine with exactly these symbols and this ``.hip_fatbin`` section.

    Its start-up code registers `registered` bundles and `kernels`, by default all.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "device.bin").write_bytes(fatbin)
        for library_name in needed:
            _compile("", folder / library_name, "-shared", "-nostdlib", f"-Wl,-soname,{library_name}")
        links = [f"-l:{library_name}" for library_name in needed]
        options = [f"-Wl,-soname,{soname}"] * bool(soname) + [f"-Wl,-rpath,{runpath}"] * bool(runpath)
        text = "\n".join([source, *_symbols(undefined, weak, defined), _device(folder, registered, kernels)])
        options += ["-shared", "-fPIC", f"-L{folder}", "-Wl,--no-as-needed", *flags, *links]
        _compile(text, folder / "made.so", *options, *([] if source else ["-nostdlib"]))
        return (folder / "made.so").read_bytes()


def with_section(name: str, content: bytes) -> str:
    """Return the source of a library or an object with one more section; give `library` the flag ``-nostdlib``."""
    lines = [f'.section {name},"a",@progbits', f".byte {','.join(map(str, content))}", ".text"]
    text = "\\n".join(lines).replace('"', '\\"')
    return f'__asm__("{text}");'


def object_file(*, fatbin: bytes, source: str = "", flags: tuple[str, ...] = ()) -> bytes:
    """Build an object file for this machine with this ``.hip_fatbin`` section."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "device.bin").write_bytes(fatbin)
        _compile(f"{source}\n{_device(folder, None, None)}", folder / "made.o", "-c", "-fPIC", *flags)
        return (folder / "made.o").read_bytes()


def _compile(text: str, output: Path, *flags: str) -> None:
    # the source precedes the libraries, because the linker searches them for symbols undefined so far
    subprocess.run(["cc", "-x", "c", "-", "-x", "none", "-o", output, *flags], input=text, text=True, check=True)


def _symbols(undefined: Sequence[str], weak: Sequence[str], defined: Sequence[str]) -> list[str]:
    lines = [f'extern void u{i}(void) __asm__("{name}");' for i, name in enumerate(undefined)]
    lines += [f'extern void w{i}(void) __asm__("{name}") __attribute__((weak));' for i, name in enumerate(weak)]
    used = [f"u{i}" for i in range(len(undefined))] + [f"w{i}" for i in range(len(weak))]
    lines += [f"void *used[] = {{{', '.join(used)}}};"] * bool(used)
    for i, name in enumerate(defined):
        lines += [f'void d{i}(void) __asm__("{name}");', f"void d{i}(void) {{}}"]
    return lines


def _device(folder: Path, registered: int | None, kernels: Sequence[str] | None) -> str:
    """Return the assembly of what a HIP compiler writes: device code, its registrations, and the names of kernels."""
    data = (folder / "device.bin").read_bytes()
    try:
        bundles = read_bundles(memoryview(data))
    except DamagedElfError:
        bundles = ()
    starts = [f"device_code+{bundle.offset}" for bundle in bundles] if data else []
    count = len(starts) if registered is None else registered
    found = {name for bundle in bundles for entry in bundle.entries for name in entry.kernels}
    lines = ['.section .hip_fatbin,"a",@progbits', ".p2align 12", "device_code:", f'.incbin "{folder}/device.bin"']
    lines = lines * bool(data) + ['.section .hipFatBinSegment,"aw",@progbits'] * bool(count)
    # a row without a bundle has nothing to point to
    lines += [f".long 0x48495046,1; .quad {start},0" for start in [*starts, *["0"] * count][:count]]
    lines += ['.section .rodata,"a",@progbits', '.asciz ""']
    lines += [f'.asciz "{name}"' for name in (sorted(found) if kernels is None else kernels)]
    text = "\\n".join([*lines, ".text"]).replace('"', '\\"')
    return f'__asm__("{text}");'
