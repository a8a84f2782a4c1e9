"""Gate: what the extension leaves undefined is defined by the torch and the HIP of its cell."""

from __future__ import annotations

from collections.abc import Sequence

from wheelfactory.verify.cell_python import find_cell_python, no_python_result
from wheelfactory.verify.gate import Subject
from wheelfactory.verify.result import Finding, GateResult
from wheelfactory.wheel.build_record import Toolchain
from wheelfactory.wheel.elf.dynamic import Symbol
from wheelfactory.wheel.elf.mangled import find_qualified_name, find_string_abi, format_symbol, guess_provider
from wheelfactory.wheel.elf.read import ElfFile
from wheelfactory.wheel.elf.scope import Scope

_MOST = 20
"""Findings shown of one wheel; a wrong torch misses hundreds."""


def check_symbols(subject: Subject) -> GateResult:
    """Resolve the undefined symbols in the libraries that the loader would load; nothing is loaded or run.

    Where a library is not at hand, such as libamdhip64 on a machine without ROCm, the symbols that it must have
    are counted and not judged; without the torch of the cell the gate does not run.
    """
    python = find_cell_python(subject)
    if python is None:
        return no_python_result("symbols")
    toolchain = python.toolchain
    findings: list[Finding] = []
    figures = {"undefined": 0, "not at hand": 0}
    for elf in subject.wheel.elf_files:
        found, unknown = judge(elf, python.read_scope(elf.needed), toolchain)
        findings += found
        figures["undefined"] += len(elf.undefined)
        figures["not at hand"] += unknown
    versions = {"torch": str(toolchain.torch), "HIP": str(toolchain.hip)}
    return GateResult.from_findings("symbols", findings, f"torch {toolchain.torch}", versions=versions, figures=figures)


def judge(elf: ElfFile, scope: Scope, toolchain: Toolchain) -> tuple[list[Finding], int]:
    """A finding for each symbol that nothing defines, and how many a library that is not at hand may define.

    A weak symbol may stay undefined. `toolchain` names the torch and HIP of the scope.
    """
    open_ones = [symbol for symbol in elf.undefined if not symbol.weak and symbol.name not in scope.defined]
    judged = [symbol for symbol in open_ones if not _may_be_missing(symbol, scope)]
    kin: dict[str, list[str]] = {}
    for other in scope.defined if judged else ():
        if name := find_qualified_name(other):
            kin.setdefault(name, []).append(other)
    expected = f"only symbols that torch {toolchain.torch} and HIP {toolchain.hip} define"
    findings = []
    for symbol in judged[:_MOST]:
        cure = explain(symbol.name, kin.get(find_qualified_name(symbol.name) or "", ()), toolchain)
        findings.append(Finding(file=elf.name, expected=expected, found=format_symbol(symbol.name), remedy=cure))
    if len(judged) > _MOST:
        found = f"{len(judged) - _MOST} more that nothing defines"
        findings.append(Finding(file=elf.name, expected=expected, found=found, remedy="as for the others"))
    return findings, len(open_ones) - len(judged)


def _may_be_missing(symbol: Symbol, scope: Scope) -> bool:
    """Whether a library that is not at hand may define it: the one that its version names, or a ROCm library."""
    if symbol.library:
        return symbol.library in scope.missing
    return bool(scope.missing) and guess_provider(symbol.name) in ("HIP", "unknown")


def explain(symbol: str, same: Sequence[str], toolchain: Toolchain) -> str:
    """Why a symbol is undefined, and the cure; `same` are the defined symbols of the same qualified name."""
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
    return "no library that it needs defines it: an object was not linked, or a library is not named"
