"""Gates: the extension needs only libraries of torch, ROCm and the system, and these define its symbols."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from auditwheel.architecture import Architecture
from auditwheel.libc import Libc
from auditwheel.policy import WheelPolicies
from packaging.version import Version

from wheelfactory.core.cell import Cell, major_minor
from wheelfactory.core.files import write_atomic
from wheelfactory.core.published import version_key
from wheelfactory.verify.cell_python import no_python_result
from wheelfactory.verify.gate import Subject
from wheelfactory.verify.result import MAX_FINDINGS, Finding, GateResult
from wheelfactory.wheel.elf.dynamic import Scope, Symbol
from wheelfactory.wheel.elf.mangled import find_qualified_name, find_string_abi, format_symbol, guess_provider
from wheelfactory.wheel.elf.read import ElfFile
from wheelfactory.wheel.read import Toolchain
from wheelfactory.wheel.repair import SYSTEM_LIBRARIES

# what a CK extension needs of torch. Source: its cpp_extension.py for HIP, and extensions that it linked
_TORCH = ("libc10.so", "libc10_hip.so", "libtorch.so", "libtorch_cpu.so", "libtorch_hip.so", "libtorch_python.so")


def check_symbols(subject: Subject) -> GateResult:
    """Resolve the undefined symbols in the libraries that the loader would load, without loading them.

    Symbols of a missing library, such as libamdhip64 on a machine without ROCm, are only counted. Without the cell's
    torch the gate does not run.
    """
    python = subject.python
    if python is None:
        return no_python_result("symbols")
    toolchain = python.toolchain
    findings: list[Finding] = []
    defined: set[str] = set()
    figures = {"undefined": 0, "not at hand": 0}
    for elf in subject.wheel.elf_files:
        scope = python.read_scope(elf.needed)
        defined |= scope.defined
        found, unknown = check_file(elf, scope, toolchain)
        findings += found
        figures["undefined"] += len(elf.undefined)
        figures["not at hand"] += unknown
    kept = symbols_path(subject.cache, subject.cell)
    if toolchain.matches(subject.cell) and not kept.exists():
        write_atomic(kept, "\n".join(sorted(name for name in defined if guess_provider(name) == "torch")).encode())
    versions = {"torch": str(toolchain.torch), "HIP": str(toolchain.hip)}
    return GateResult.from_findings("symbols", findings, f"torch {toolchain.torch}", versions=versions, figures=figures)


def symbols_path(cache: Path, cell: Cell) -> Path:
    """The file with the symbols that the libraries of a cell's torch define, one a line."""
    builder = "-amd" if cell.amd_torch else ""
    return cache / "torch-symbols" / f"rocm{cell.rocm}-{cell.python}{builder}" / f"{cell.torch}.txt"


def cached_symbols(cache: Path, cell: Cell) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the other torches for the ROCm and Python of a cell that gates have read, each with what it defines."""
    own = symbols_path(cache, cell)
    for path in sorted(own.parent.glob("*.txt"), key=lambda path: version_key(path.stem)):
        if major_minor(path.stem) != major_minor(cell.torch):
            yield path.stem, frozenset(path.read_text().split("\n"))


def check_file(elf: ElfFile, scope: Scope, toolchain: Toolchain) -> tuple[list[Finding], int]:
    """Return a finding for each unresolved symbol, and the number of symbols that a missing library may define.

    Weak symbols may stay undefined. `toolchain` has the torch and HIP versions of the scope.
    """
    unresolved = [symbol for symbol in elf.undefined if not symbol.weak and symbol.name not in scope.defined]
    missing = [symbol for symbol in unresolved if not _may_be_missing(symbol, scope)]
    same_names: dict[str, list[str]] = {}
    for other in scope.defined if missing else ():
        if name := find_qualified_name(other):
            same_names.setdefault(name, []).append(other)
    expected = f"only symbols that torch {toolchain.torch} and HIP {toolchain.hip} define"
    findings = []
    for symbol in missing[:MAX_FINDINGS]:
        remedy = explain_symbol(symbol.name, same_names.get(find_qualified_name(symbol.name) or "", ()), toolchain)
        findings.append(Finding(elf.name, expected, format_symbol(symbol.name), remedy))
    if len(missing) > MAX_FINDINGS:
        more = f"{len(missing) - MAX_FINDINGS} more that nothing defines"
        findings.append(Finding(elf.name, expected, more, "see the other findings"))
    return findings, len(unresolved) - len(missing)


def _may_be_missing(symbol: Symbol, scope: Scope) -> bool:
    """Return whether a missing library may define it: the library in its version, or a ROCm library."""
    if symbol.library:
        return symbol.library in scope.missing
    # without a version only the name is known; "unknown" may be a C function of any ROCm library
    return bool(scope.missing) and guess_provider(symbol.name) in ("HIP", "unknown")


def explain_symbol(symbol: str, same: Sequence[str], toolchain: Toolchain) -> str:
    """Explain why a symbol is undefined, with a remedy; `same` are the defined symbols of the same qualified name."""
    torch, name = f"torch {toolchain.torch}", find_qualified_name(symbol) or symbol
    again = "build against the torch of the cell's index"
    mine, theirs = find_string_abi(symbol), {find_string_abi(other) for other in same} - {None}
    if mine and theirs and mine not in theirs:
        return f"built with the {mine} C++ ABI, {torch} has the {', '.join(map(str, theirs))}: {again}"
    if same:
        return f"{torch} has {name} with other parameters, so this was built for another torch minor: {again}"
    if guess_provider(symbol) == "torch":
        return f"{torch} has no {name}, so this was built for another torch minor: {again}"
    if guess_provider(symbol) == "HIP":
        return f"HIP {toolchain.hip} does not have it, so this was built for another ROCm: build with the cell's ROCm"
    return "no needed library defines it: link the missing object, or name the library at link time"


def check_linking(subject: Subject) -> GateResult:
    """Compare NEEDED, RUNPATH and symbol versions with the allowed libraries and the platform tag."""
    files, promised = subject.wheel.elf_files, subject.wheel.glibc
    findings = [finding for elf in files for finding in _library_findings(elf, subject.cell.rocm)]
    if promised:
        findings += [finding for elf in files for finding in _version_findings(elf, promised)]
    needed = {name for elf in files for name in elf.needed}
    return GateResult.from_findings(
        "linking", findings, f"needs {len(needed)} libraries", figures={"libraries": len(needed)}
    )


def _version_findings(elf: ElfFile, glibc: Version) -> Iterator[Finding]:
    for library, allowed, found in (("glibc", glibc, elf.glibc), ("GLIBCXX", _newest_glibcxx(glibc), elf.glibcxx)):
        if found and found > allowed:
            remedy = "run `wheelfactory repair` on the raw wheel: the tag includes systems that cannot load it"
            yield Finding(elf.name, f"symbols of {library} {allowed}", f"{library} {found}", remedy)


@cache
def _newest_glibcxx(glibc: Version) -> Version:
    """The newest symbols of libstdc++ on systems with this glibc. Source: the policies of auditwheel."""
    policies = [policy for policy in WheelPolicies(libc=Libc.GLIBC, arch=Architecture.x86_64) if policy.symbol_versions]
    # their names are manylinux_2_17_x86_64 and the like
    older = (one for one in policies if Version(".".join(one.name.split("_")[1:3])) <= glibc)
    return max((Version(symbol) for one in older for symbol in one.symbol_versions["GLIBCXX"]), default=Version("3.4"))


def hip_library(rocm: str) -> str:
    """The SONAME of a ROCm release's HIP runtime. ROCm 10.0 and 7 have the same. Source: a ROCm 10 Containerfile."""
    return f"libamdhip64.so.{min(int(rocm.partition('.')[0]), 7)}"


def _library_findings(elf: ElfFile, rocm: str) -> Iterator[Finding]:
    for name in dict.fromkeys(elf.needed):
        if name not in (*_TORCH, hip_library(rocm), *SYSTEM_LIBRARIES, "ld-linux-x86-64.so.2"):
            expected = f"libraries of torch, {hip_library(rocm)} of ROCm {rocm}, and the system"
            remedy = "link it statically, or not at all: users of the wheel do not have it"
            yield Finding(elf.name, expected, name, remedy)
    if elf.soname not in (None, elf.name):
        yield Finding(elf.name, "no SONAME, or the file's", elf.soname or "''", "link it as torch's cpp_extension does")
    for path in elf.runpath:
        if not re.fullmatch(r"\$ORIGIN(/[A-Za-z0-9_+-][A-Za-z0-9._+-]*)*", path):
            # an absolute path of the build machine, or one out of the environment, may hold anything elsewhere
            yield Finding(elf.name, "no RUNPATH, or one below $ORIGIN", path or "''", "link without -rpath")
