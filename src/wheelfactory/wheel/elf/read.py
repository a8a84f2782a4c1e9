"""Read an ELF file: loading, symbols and device code in one value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

from wheelfactory.wheel.elf.code_object import arch_from_flags
from wheelfactory.wheel.elf.dynamic import Dynamic, read_dynamic
from wheelfactory.wheel.elf.image import EM_AMDGPU, Buffer, ElfImage
from wheelfactory.wheel.elf.linker_layout import find_layout_faults
from wheelfactory.wheel.elf.offload import Bundle, DeviceCode, read_bundles, sum_device_code
from wheelfactory.wheel.elf.offload_package import read_packages
from wheelfactory.wheel.elf.registration import FATBIN, Registration, read_registration

_PACKAGES, _SHT_LLVM_OFFLOADING = b".llvm.offloading", 0x6FFF4C0B
"""The section with device code that waits for a device link, which LLVM finds by its type."""

_WAITING_KERNELS, _WAITING_KERNEL_SIZE = b"llvm_offload_entries", 56
"""The section that names kernels of relocatable device code; it stays in a library whose linker dropped that code.

Source: objects of clang 21 to 23. Without relocatable device code there is none, or (clang 21) one for each object,
with a longer name.
"""

_MAX_LAYOUT_FAULTS = 10


@dataclass(frozen=True, kw_only=True)
class ElfFile(Dynamic):
    """What an ELF file tells the loader, and its device code."""

    name: str
    size: int
    """Bytes."""
    bundles: tuple[Bundle, ...]
    registration: Registration
    """What the start-up code gives the HIP runtime; more bundles than `bundles` if an object has no device code."""
    packages: tuple[Bundle, ...]
    """Device code that waits for a device link: the HIP runtime does not find it."""
    relocatable_kernels: int
    """The number of kernels that were compiled as relocatable device code by the new offload driver."""
    layout_faults: tuple[tuple[str, str], ...]
    """What a linker must write, and what the file has instead (`linker_layout.find_layout_faults`)."""
    code_for: str | None
    """The arch if the file is itself a code object, else None."""

    @property
    def device_code(self) -> Mapping[str, DeviceCode]:
        """The code in `bundles` by target id, such as ``gfx90a:xnack-``."""
        return sum_device_code(self.bundles)


def read_elf(name: str, data: Buffer) -> ElfFile:
    """Read an ELF file. Raises `DamagedElfError` if its tables or bundles are damaged."""
    image = ElfImage(data)
    section = image.find_section(FATBIN)
    kernels = image.find_section(_WAITING_KERNELS)
    bundles = read_bundles(image.section_bytes(section)) if section else ()
    known = {kernel for bundle in bundles for entry in bundle.entries for kernel in entry.kernels}
    return ElfFile(
        **vars(read_dynamic(image)),
        name=name,
        size=len(image.data),
        bundles=bundles,
        registration=read_registration(image, known),
        packages=_read_packages(image),
        relocatable_kernels=kernels.size // _WAITING_KERNEL_SIZE if kernels else 0,
        # a hostile file may have millions of faults
        layout_faults=tuple(islice(find_layout_faults(image), _MAX_LAYOUT_FAULTS)),
        code_for=arch_from_flags(image.flags) if image.machine == EM_AMDGPU else None,
    )


def _read_packages(image: ElfImage) -> tuple[Bundle, ...]:
    found = next((item for item in image.sections() if item.type == _SHT_LLVM_OFFLOADING), None)
    section = found or image.find_section(_PACKAGES)
    return read_packages(image.section_bytes(section)) if section else ()
