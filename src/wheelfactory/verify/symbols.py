"""Gate: what the extension leaves undefined is defined by the torch and the HIP of its cell."""

from __future__ import annotations

import json
import mmap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from wheelfactory.elf import ElfFile, Image
from wheelfactory.elf.dynamic import Dynamic, Symbol, read_dynamic
from wheelfactory.elf.mangled import provider, qualified_name, readable, string_abi
from wheelfactory.process import capture
from wheelfactory.rocm_python import find_rocm_python, probe
from wheelfactory.verify.gate import Subject
from wheelfactory.verify.result import Finding, GateResult
from wheelfactory.wheel.record import Toolchain

_PLACES = """
import importlib.util, json, os, sys, sysconfig
torch = importlib.util.find_spec("torch").submodule_search_locations[0]
print(json.dumps([os.path.realpath(sys.executable), sysconfig.get_config_var("LIBDIR"), os.path.join(torch, "lib")]))
"""

_SYSTEM = ("/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib/aarch64-linux-gnu")
"""Where Debian and Red Hat keep shared libraries."""

_MOST = 20
"""Findings shown of one wheel; a wrong torch misses hundreds."""


@dataclass(frozen=True)
class Scope:
    """What the loader has found when it resolves an extension: which names are defined, which libraries are missing."""

    defined: frozenset[str]
    libraries: tuple[str, ...]
    missing: tuple[str, ...]


def symbols(subject: Subject) -> GateResult:
    """Resolve the undefined symbols in the libraries that the loader would load; nothing is loaded or run.

    Where a library is not at hand, such as libamdhip64 on a machine without ROCm, the symbols that it must have
    are counted and not judged; without the torch of the cell the gate does not run.
    """
    python = find_rocm_python(subject.workshop, subject.cell)
    if python is None:
        why = "needs the ROCm torch of the cell; run it where that is on PATH, or in the cell's image"
        return GateResult.not_run("symbols", why)
    toolchain = probe(python, subject.workshop)
    interpreter, *folders = json.loads(capture([python, "-c", _PLACES], environ=subject.workshop.clean_environ))
    places = [Path(folder) for folder in (*folders, *_rocm(subject), *_SYSTEM)]
    findings: list[Finding] = []
    figures = {"undefined": 0, "not at hand": 0}
    for elf in subject.wheel.elf_files:
        scope = load_scope(elf.needed, Path(interpreter), places)
        found, unknown = judge(elf, scope, toolchain)
        findings += found
        figures["undefined"] += len(elf.undefined)
        figures["not at hand"] += unknown
    versions = {"torch": str(toolchain.torch), "HIP": str(toolchain.hip)}
    return GateResult.of("symbols", findings, f"torch {toolchain.torch}", versions=versions, figures=figures)


def _rocm(subject: Subject) -> list[str]:
    root = subject.workshop.host.rocm_path
    return [f"{root}/lib"] if root else []


def load_scope(needed: Sequence[str], interpreter: Path, folders: Sequence[Path]) -> Scope:
    """The names that an extension can be resolved with: those of its libraries, of theirs, and of the interpreter."""
    defined: set[str] = set()
    found: list[str] = []
    missing: list[str] = []
    waiting = list(needed)
    seen = set(waiting)
    roots = [_dynamic(interpreter)]
    while roots or waiting:
        dynamic = roots.pop() if roots else _library(waiting.pop(), folders, found, missing)
        defined |= dynamic.defined
        new = [name for name in dynamic.needed if name not in seen]
        seen.update(new)
        waiting += new
    return Scope(frozenset(defined), tuple(sorted(found)), tuple(sorted(missing)))


def _library(name: str, folders: Sequence[Path], found: list[str], missing: list[str]) -> Dynamic:
    for folder in folders:
        if (folder / name).is_file():
            found.append(name)
            return _dynamic(folder / name)
    missing.append(name)
    return Dynamic()


def _dynamic(path: Path) -> Dynamic:
    with path.open("rb") as file:
        return read_dynamic(Image(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)))


def judge(elf: ElfFile, scope: Scope, toolchain: Toolchain) -> tuple[list[Finding], int]:
    """A finding for each symbol that nothing defines, and how many a library that is not at hand may define.

    A weak symbol may stay undefined. `toolchain` names the torch and HIP of the scope.
    """
    open_ones = [symbol for symbol in elf.undefined if not symbol.weak and symbol.name not in scope.defined]
    judged = [symbol for symbol in open_ones if not _may_be_missing(symbol, scope)]
    kin = _by_name(scope) if judged else {}
    expected = f"only symbols that torch {toolchain.torch} and HIP {toolchain.hip} define"
    findings = []
    for symbol in judged[:_MOST]:
        cure = explain(symbol.name, kin.get(qualified_name(symbol.name) or "", ()), toolchain)
        findings.append(Finding(file=elf.name, expected=expected, found=readable(symbol.name), cure=cure))
    if len(judged) > _MOST:
        found = f"{len(judged) - _MOST} more that nothing defines"
        findings.append(Finding(file=elf.name, expected=expected, found=found, cure="as for the others"))
    return findings, len(open_ones) - len(judged)


def _may_be_missing(symbol: Symbol, scope: Scope) -> bool:
    """Whether a library that is not at hand may define it: the one that its version names, or a ROCm library."""
    if symbol.library:
        return symbol.library in scope.missing
    return bool(scope.missing) and provider(symbol.name) in ("HIP", "unknown")


def _by_name(scope: Scope) -> Mapping[str, list[str]]:
    kin: dict[str, list[str]] = {}
    for symbol in scope.defined:
        name = qualified_name(symbol)
        if name:
            kin.setdefault(name, []).append(symbol)
    return kin


def explain(symbol: str, same: Sequence[str], toolchain: Toolchain) -> str:
    """Why a symbol is undefined, and the cure; `same` are the defined symbols of the same qualified name."""
    torch, name = f"torch {toolchain.torch}", qualified_name(symbol) or symbol
    again = "build against the torch of the cell's index"
    mine, theirs = string_abi(symbol), {string_abi(other) for other in same} - {None}
    if mine and theirs and mine not in theirs:
        return f"built with the {mine} C++ ABI, {torch} has the {', '.join(map(str, theirs))}: {again}"
    if same:
        return f"{torch} has {name} with other parameters, so this was built for another torch minor: {again}"
    if provider(symbol) == "torch":
        return f"{torch} has no {name}, so this was built for another torch minor: {again}"
    if provider(symbol) == "HIP":
        return f"HIP {toolchain.hip} does not have it, so this was built for another ROCm: build with the cell's ROCm"
    return "no library that it needs defines it: an object was not linked, or a library is not named"
