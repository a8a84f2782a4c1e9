"""Gate: a wheel holds what its backend is made of, nothing else that is compiled, and as much as it should."""

from __future__ import annotations

from collections.abc import Iterator

from wheelfactory.core.cell import Backend
from wheelfactory.verify.gate import Subject
from wheelfactory.verify.result import Finding, GateResult
from wheelfactory.wheel.activation.members import EXTENSION, added_members


def contents(subject: Subject) -> GateResult:
    """Check which compiled files there are, and the size of the wheel."""
    of_backend = _compiled if subject.cell.backend is Backend.CK else _pure
    size = subject.wheel.path.stat().st_size
    figures = {"bytes": size, "unpacked bytes": sum(subject.wheel.sizes.values())}
    findings = [*of_backend(subject), *_grafted(subject), *_size(subject, size)]
    return GateResult.of("contents", findings, f"{size:,} bytes", figures=figures)


def _compiled(subject: Subject) -> Iterator[Finding]:
    """One extension, at the top of the wheel, named so that the Python of the cell finds it, with its entry."""
    tag = subject.cell.python_tag.removeprefix("cp")
    expected = f"{EXTENSION}.cpython-{tag}-x86_64-linux-gnu.so"
    files = {elf.name: elf for elf in subject.wheel.elf_files}
    if expected not in files:
        found = ", ".join(files) or "no compiled file"
        cure = "the build did not compile the backend, or for another Python: read its log"
        yield Finding(file=subject.wheel.path.name, expected=expected, found=found, cure=cure)
    elif f"PyInit_{EXTENSION}" not in files[expected].defined:
        cure = "this is no Python module of that name: build it again"
        yield Finding(file=expected, expected=f"PyInit_{EXTENSION}", found="no such symbol", cure=cure)
    for name in files:
        if name != expected:
            cure = "the extension is all that is compiled; libraries come with torch and ROCm"
            yield Finding(file=name, expected="no further compiled file", found="an ELF file", cure=cure)


def _pure(subject: Subject) -> Iterator[Finding]:
    """No compiled file, and the module that stands in for one."""
    for name, data in added_members(Backend.TRITON).items():
        if name not in subject.wheel.sizes or subject.wheel.read(name) != data:
            found = "another file of that name" if name in subject.wheel.sizes else "no such file"
            cure = "the wheel would need an environment variable to be imported: repair the raw wheel again"
            yield Finding(file=name, expected="the module that activates Triton", found=found, cure=cure)
    for elf in subject.wheel.elf_files:
        cure = "a Triton wheel is compiled on the GPU it runs on; build it with the Triton backend alone"
        yield Finding(file=elf.name, expected="no compiled file in a Triton wheel", found="an ELF file", cure=cure)


def _grafted(subject: Subject) -> Iterator[Finding]:
    for name in subject.wheel.sizes:
        if ".libs/" in name:
            cure = "two copies of HIP or torch in one process break; repair the raw wheel with this factory"
            yield Finding(file=name, expected="no grafted library", found="a file of a .libs folder", cure=cure)


def _size(subject: Subject, size: int) -> Iterator[Finding]:
    release = subject.matrix.flash_attn[subject.cell.flash_attn]
    backend = release.backend(subject.cell.backend)
    if backend and size not in backend.wheel_bytes:
        cure = "kernels are missing, or something was added: compare `wheelfactory inspect` with a good wheel"
        name = subject.wheel.path.name
        yield Finding(file=name, expected=backend.wheel_size, found=f"{size:,} bytes", cure=cure)
