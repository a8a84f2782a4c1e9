"""Objects of kernels: put one together from its parts, and reject what is damaged or of another source.

The device code of all archs is bundled, and that fat binary is embedded into the host code's object, which is compiled
with a placeholder in its section ``.hip_fatbin``. Replacing the content of a section moves all sections behind it, and
changes nothing else. Source: the ELF specification (ELF64, little-endian), and clang's documentation of the offload
bundler.
"""

from __future__ import annotations

import hashlib
import mmap
import re
import shlex
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from wheelfactory.core.errors import BuildError
from wheelfactory.kernels.compiler.hipcc import run_tool
from wheelfactory.kernels.compiler.targets import HOST
from wheelfactory.wheel.elf.code_object import read_kernel_names, read_registered_names
from wheelfactory.wheel.elf.image import SECTION_HEADER, Buffer, DamagedElfError, ElfImage

SECTION = b".hip_fatbin"
"""The section of an object with the code for all archs."""

OLD_DRIVER, NEW_DRIVER = "bundles of the old offload driver", "bundles of the new offload driver"
OLD_DRIVER_RDC = "relocatable device code of the old offload driver"
NEW_DRIVER_RDC = "relocatable device code of the new offload driver"
"""The forms of device code in an object. Relocatable device code needs a device link before the ordinary one."""

RELOCATABLE = (OLD_DRIVER_RDC, NEW_DRIVER_RDC)

# how clang 21 to 23 name the entries of a bundle, and the sections with relocatable device code
_BUNDLE_IDS = {b"hipv4-amdgcn": OLD_DRIVER, b"hip-amdgcn": NEW_DRIVER}
_BUNDLE_MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
_BUNDLE_ENTRY = struct.Struct("<QQQ")  # offset, size, length of the name, which follows
_RDC_SECTIONS = {_BUNDLE_MAGIC: OLD_DRIVER_RDC, b".llvm.offloading": NEW_DRIVER_RDC}
# bytes of a bundle that hold at least the ids of the host and of one arch
_BUNDLE_HEAD = 512

_HEADER = 64
_SHT_NULL, _SHT_NOBITS = 0, 8
_SECTIONS_AT = 40


class CannotComposeError(Exception):
    """This compiler's objects cannot be put together from their parts; the message says why."""


@dataclass(frozen=True)
class Bundler:
    """The offload bundler of a compiler, and the options that the compiler's driver gives it."""

    program: str
    alignment: int
    host: str
    """The target of the host, such as ``host-x86_64-unknown-linux-gnu-``."""
    device: str
    """The target of an arch without the arch: ``hipv4-amdgcn-amd-amdhsa--``."""

    def command(self, code: Mapping[str, Path], output: Path) -> list[str]:
        """The command that bundles the code objects of these archs."""
        targets = f"-targets={','.join([self.host, *(f'{self.device}{arch}' for arch in code)])}"
        inputs = [f"-input={path}" for path in ("/dev/null", *code.values())]
        return [self.program, "-type=o", f"-bundle-align={self.alignment}", targets, *inputs, f"-output={output}"]

    def bundle(self, code: Mapping[str, bytes]) -> bytes:
        """Bundle the code objects of these archs, in order, as the bundler does, without starting it for each kernel.

        Source: the layout of a code object bundle in clang's documentation.
        """
        entries = [(self.host, b""), *((f"{self.device}{arch}", data) for arch, data in code.items())]
        table = bytearray(struct.pack("<24sQ", _BUNDLE_MAGIC, len(entries)))
        made = bytearray(len(table) + sum(_BUNDLE_ENTRY.size + len(name) for name, _ in entries))
        for name, data in entries:
            made += bytes(-len(made) % self.alignment)
            table += _BUNDLE_ENTRY.pack(len(made), len(data), len(name)) + name.encode()
            made += data
        made[: len(table)] = table
        return bytes(made)


def read_bundler(command: Sequence[str], folder: str, environ: Mapping[str, str], archs: Sequence[str]) -> Bundler:
    """Ask the driver how it bundles the code of these archs in this compile.

    Raises `CannotComposeError` if it does so in another way than `Bundler` does.
    """
    done = run_tool([*command, "-###"], environ, folder)
    if "clang-linker-wrapper" in done.stderr:
        # it links the code of an arch with other options than a compile for that arch alone
        raise CannotComposeError(
            "the new offload driver makes device code that a compile for one arch does not make "
            "(--no-offload-new-driver in HIPCC_COMPILE_FLAGS_APPEND selects the old driver)"
        )
    lines = [line for line in done.stderr.splitlines() if "clang-offload-bundler" in line]
    if len(lines) != 1:
        raise CannotComposeError("the compiler does not start clang-offload-bundler once for an object")
    program, *options = shlex.split(lines[0])
    values = dict(option.partition("=")[::2] for option in options if not option.startswith("-input="))
    host, _, devices = values.get("-targets", "").partition(",")
    device, alignment = devices.partition(",")[0].removesuffix(archs[0]), values.get("-bundle-align", "")
    bundler = Bundler(program, int(alignment) if alignment.isdecimal() else 1, host, device)
    inputs = [Path(option.partition("=")[2]) for option in options if option.startswith("-input=")][1:]
    expected = bundler.command(dict(zip(archs, inputs)), Path(values.get("-output", "")))  # noqa: B905 - compared below
    if [program, *options] != expected:
        raise CannotComposeError(f"clang-offload-bundler has other options than expected: {shlex.join(options)[:200]}")
    return _with_written_host(bundler, folder, environ, archs)


def _with_written_host(bundler: Bundler, folder: str, environ: Mapping[str, str], archs: Sequence[str]) -> Bundler:
    """Return the same bundler, with the name of the host that it writes into a bundle.

    Raises `CannotComposeError` unless it writes what `Bundler.bundle` makes.
    """
    with TemporaryDirectory(dir=folder) as name:
        code = {arch: Path(name, arch) for arch in archs}
        for arch, path in code.items():
            path.write_text(arch)
        command = bundler.command(code, Path(name, "bundle"))
        done = run_tool(command, environ)
        if done.returncode:
            raise CannotComposeError(f"clang-offload-bundler failed: {done.stderr.strip()[:200]}")
        written = Path(name, "bundle").read_bytes()
    # LLVM 21 writes ``host-x86_64-unknown-linux-gnu-`` for the same name without the last dash
    for found in (bundler, replace(bundler, host=f"{bundler.host}-")):
        if found.bundle({arch: arch.encode() for arch in archs}) == written:
            return found
    raise CannotComposeError("clang-offload-bundler writes an unknown format")


def find_fat_binary(data: bytes) -> bytes | None:
    """Return the content of the section `SECTION` of an object; None if it has none, because it has no device code.

    Raises `CannotComposeError` for anything but an object.
    """
    with _reading_object(data) as image:
        section = image.find_section(SECTION)
        return bytes(image.section_bytes(section)) if section else None


def find_offload_form(path: Path) -> str:
    """Return the form of an object's device code; empty without device code, and where the form does not show it.

    The latter are compressed bundles, which both drivers write alike, and files that are no objects.
    """
    if not path.stat().st_size:
        return ""
    with path.open("rb") as file, suppress(CannotComposeError):
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        with _reading_object(data) as image:
            for name, section in image.named_sections():
                found = next((form for prefix, form in _RDC_SECTIONS.items() if name.startswith(prefix)), "")
                if name == SECTION:
                    head = bytes(image.section_bytes(section)[:_BUNDLE_HEAD])
                    is_plain = head.startswith(_BUNDLE_MAGIC)
                    found = next((form for text, form in _BUNDLE_IDS.items() if is_plain and text in head), "")
                if found:
                    return found
    return ""


def embed(host: bytes, fat_binary: bytes) -> bytes:
    """Return the object of host code with another content in its section `SECTION`; unchanged if it has none.

    Raises `CannotComposeError` for anything but an object.
    """
    with _reading_object(host) as image:
        named = list(image.named_sections())
        kept = [b"" if section.type == _SHT_NOBITS else bytes(image.section_bytes(section)) for _, section in named]
        headers = [list(row) for row in image.unpack_table(SECTION_HEADER, image.table_ranges[2][0], len(named))]
    made = bytearray(host[:_HEADER])
    for at in sorted(range(len(named)), key=lambda at: headers[at][4]):
        header, (name, _) = headers[at], named[at]
        if header[1] == _SHT_NULL:  # the unused first one
            continue
        content = fat_binary if name == SECTION else kept[at]
        header[5] = len(content) if name == SECTION else header[5]
        made += bytes(-len(made) % (header[8] or 1))
        header[4] = len(made)
        made += content
    made += bytes(-len(made) % 8)
    struct.pack_into("<Q", made, _SECTIONS_AT, len(made))
    return bytes(made) + b"".join(SECTION_HEADER.pack(*header) for header in headers)


@contextmanager
def _reading_object(data: Buffer) -> Iterator[ElfImage]:
    """Open an object. Raises `CannotComposeError` for other data, and for errors of reading in the block."""
    try:
        yield ElfImage(data)
    except DamagedElfError as error:
        raise CannotComposeError(f"an object of the compiler is damaged: {error}") from None


_RELOCATABLE_FILE = 1
"""The type of an object file. Source: System V ABI, chapter 4."""


# clang defines this symbol in host and device code; older ones define none. The digits are the low half of the MD5 of
# what -cuid= names. Source: clang 19, CodeGenModule.cpp and Cuda.cpp of the driver; objects of it
_COMPILE_ID = re.compile(rb"\0__hip_cuid_([0-9a-f]{1,16})(?=\0)")


def require_one_offload_form(objects: Iterable[Path]) -> None:
    """Raise `BuildError` if these objects hold device code in several forms, or in one that needs a device link.

    Only headers are read.
    """
    # the ordinary linker accepts both: it drops relocatable device code of the new driver, and reports nothing
    by_form = {form: path for path in sorted(objects, reverse=True) if (form := find_offload_form(path))}
    if len(by_form) > 1 or any(form in RELOCATABLE for form in by_form):
        which = "; ".join(f"{path.name}: {form}" for form, path in sorted(by_form.items()))
        hint = "compile kernels and bindings with the same driver option (--offload-new-driver or "
        hint += "--no-offload-new-driver) and with -fno-gpu-rdc: clear the build folder and build again"
        raise BuildError("objects with device code in a form that cannot be linked", which, hint)


def require_object(path: Path, source: str, target: str, comment: str = "") -> None:
    """Raise `DamagedElfError` unless this is an object of host code, or a whole code object of the arch `target`.

    An object that names the source that it was compiled from must name `source`, and its compiler must be `comment`.
    """
    if not path.stat().st_size:
        raise DamagedElfError("an empty file")
    with path.open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)  # not in memory: an object can have a gigabyte
    # clang writes its version into the section .comment, lld keeps it
    if data.find(comment.encode()) < 0:
        raise DamagedElfError(f"not made by {comment}")
    if target != HOST:
        read_kernel_names(data, target)
    elif (kind := ElfImage(data).type) != _RELOCATABLE_FILE:
        raise DamagedElfError(f"a file of type {kind}")
    digest = hashlib.md5(source.encode(), usedforsecurity=False).digest()
    expected = f"{int.from_bytes(digest[:8], 'little'):x}"
    if others := {found.decode() for found in _COMPILE_ID.findall(data)} - {expected}:
        raise DamagedElfError(f"compiled from another source: its id is {min(others)}, not {expected}")


def read_device_code(source: str, host: bytes, device: Mapping[str, Path], *, is_guarded: bool) -> dict[str, bytes]:
    """Read the code objects of a source, by arch, which must have exactly the kernels that its host code registers.

    The objects come from a store, which an archive or a worker may have filled. An arch that the guard of a source
    excludes has none of its kernels. Raises `BuildError` for a damaged object, or one of another source.
    """
    hint = "remove it, then run the same command again: it is compiled here"
    try:
        registered = read_registered_names(ElfImage(host))
    except DamagedElfError as error:
        raise BuildError("damaged kernel object", f"{source} for {HOST}: {error}", hint) from None
    code = {arch: path.read_bytes() for arch, path in device.items()}
    for arch, path in device.items():
        try:
            found = frozenset(read_kernel_names(code[arch], arch))
        except DamagedElfError as error:
            raise BuildError("damaged kernel object", f"{path} for {arch}: {error}", hint) from None
        if found != registered and (found or not is_guarded):
            which = min(found ^ registered)[:80]
            raise BuildError("kernel object of another source", f"{path} for {arch}: {which} differs", hint)
    return code
