"""The kernel set of a build: read the build.ninja of torch, compute the key from what can change its objects."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from wheelfactory.core.errors import BuildError
from wheelfactory.core.files import files_sha256
from wheelfactory.core.strict import parse_json
from wheelfactory.kernels.compiler.hipcc import (
    COMPILER_ENVIRONMENT,
    HEADER_OPTIONS,
    Compiler,
    appended_flags,
    has_runaway_flags,
    is_kernel_source,
    kernel_flags,
    kernel_name,
    read_compiler,
    rocm_root,
    source_root,
    split_options,
)
from wheelfactory.kernels.compiler.store import SetKey
from wheelfactory.kernels.compiler.targets import (
    ARCH_OPTION,
    Guards,
    compiled_sources,
    read_guard,
    split_targets,
    target_flags,
    whole_targets,
)

ROCM_PLACEHOLDER = "ROCM"
"""Replaces ROCm's folder in the key: the compiler is identified by content, not by path."""

# names that kernels must not use: `hipcc.kernel_flags` drops these macros, and the key does not contain the time
FORBIDDEN_IN_KERNELS = re.compile(
    rb"\b(TORCH_\w+|PYBIND11_\w+|_GLIBCXX_USE_CXX11_ABI|HIP_ENABLE_WARP_SYNC_BUILTINS|HIPIFY_V2"
    rb"|__DATE__|__TIME__|__TIMESTAMP__|__(?:shfl|ballot|all|any|match|reduce)\w*_sync)\b"
)

# maximum length of a value in an error
_LONGEST_VALUE = 48


def make_keys(
    sources: Sequence[str],
    flags: Sequence[str],
    target_lists: Iterable[tuple[str, ...]],
    compiler: Compiler,
    rocm: str,
    environ: Mapping[str, str],
) -> dict[tuple[str, ...], SetKey]:
    """Make the key of these generated sources (paths) for each list of targets, by targets.

    `flags` are relative to the sources' root. Raises `BuildError` if a source or header uses a name in
    `FORBIDDEN_IN_KERNELS`.
    """
    root = Path(sources[0]).parent.parent
    paths = header_paths(flags, root)
    placed = [flag.replace(rocm, ROCM_PLACEHOLDER) for flag in (*flags, *appended_flags(environ))]
    shared = {
        "compiler": asdict(compiler),
        "environment": key_environment(environ, rocm),
        "sources": files_sha256(_read_allowed((kernel_name(path), Path(path)) for path in sorted(sources))),
        "headers": files_sha256(_read_allowed((str(path.relative_to(root)), path) for path in paths)),
        "rocm headers": rocm_headers_sha256(rocm),
    }
    return {
        targets: SetKey(
            {**shared, "flags": target_flags(placed, targets), "targets": list(targets)},
            tuple(compiled_sources(map(kernel_name, sources), targets)),
        )
        for targets in target_lists
    }


def rocm_headers_sha256(rocm: str) -> str:
    """The digest of the HIP headers in ROCm's folder, which kernels include."""
    paths = list_source_files([Path(rocm, "include/hip")])
    return files_sha256((str(path.relative_to(rocm)), path.read_bytes()) for path in paths)


def key_environment(environ: Mapping[str, str], rocm: str) -> dict[str, str]:
    """The variables that change objects, without those that name the ROCm folder of the compiler itself."""
    found = {name: environ[name] for name in COMPILER_ENVIRONMENT if environ.get(name)}
    own = os.path.realpath(rocm)
    return {name: value for name, value in found.items() if os.path.realpath(value) != own}


def header_paths(flags: Sequence[str], root: Path) -> list[Path]:
    """List the files of the header folders below `root` that these flags name, sorted."""
    named = [value for option, value in split_options(flags) if option in HEADER_OPTIONS]
    return list_source_files(Path(root, folder) for folder in named if not Path(folder).is_absolute())


def list_source_files(folders: Iterable[Path]) -> list[Path]:
    """List the files below these folders, sorted."""
    # the generator is beside the headers, and running it leaves .pyc files, which differ from Python to Python
    found = {path for folder in folders for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    return sorted(found)


def _read_allowed(files: Iterable[tuple[str, Path]]) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of each file. Raises `BuildError` if one uses a name in `FORBIDDEN_IN_KERNELS`."""
    for name, path in files:
        data = path.read_bytes()
        found = FORBIDDEN_IN_KERNELS.search(data)
        if found:
            which = f"{found[0].decode()} in {name}"
            hint = "this flash-attn release needs a change in wheelfactory.kernels.compiler.hipcc"
            raise BuildError("a kernel uses a name that the factory does not define for it", which, hint)
        yield name, data


def diff_key_parts(parts: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """List the differences between the parts of two keys, such as ``compiler: HIP 6.3, other HIP 6.4``."""
    found: list[str] = []
    for name in sorted({*parts, *other}):
        one, two = parts.get(name), other.get(name)
        if isinstance(one, Mapping) and isinstance(two, Mapping):
            found += [f"{name}.{difference}" for difference in diff_key_parts(one, two)]
        elif _plain(one) != _plain(two):
            found.append(f"{name}: {_describe_difference(one, two)}, other {_describe_difference(two, one)}")
    return found


def _plain(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _describe_difference(value: Any, other: Any) -> str:
    """Describe a value; of two lists that share items, only ``with`` the items that `other` lacks."""
    if not (isinstance(value, (list, tuple)) and isinstance(other, (list, tuple))):
        return _short(value)
    missing = [item for item in value if item not in other]
    if len(missing) == len(value) or not (missing or [item for item in other if item not in value]):
        return _short(value)
    return f"with {_short(missing)}" if missing else "without"


def _short(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        value = " ".join(map(str, value)) or None
    if value is None:
        return "nothing"
    text = value if isinstance(value, str) else _plain(value)
    if re.fullmatch("[0-9a-f]{40,}", text):
        return f"{text[:12]}..."
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 3]}..."


@dataclass(frozen=True)
class Edge:
    """One compile of a build.ninja: its shell command, its source and its object."""

    command: str
    source: str
    output: str

    @property
    def name(self) -> str:
        """The name of the source without extension."""
        return kernel_name(self.source)

    @property
    def is_kernel(self) -> bool:
        """Whether the source is a generated kernel."""
        return is_kernel_source(self.source)

    def arguments(self) -> list[str]:
        """hipcc and its arguments. Raises `BuildError` if another program starts hipcc."""
        words = shlex.split(self.command)
        if Path(words[0]).name != "hipcc":
            hint = "unset variables that replace the compiler (PYTORCH_NVCC)"
            raise BuildError("hipcc is not started directly", words[0], hint)
        return words

    @property
    def pattern(self) -> str:
        """The command with placeholders for source and object, to compare compiles by."""
        return self.command.replace(self.output, "OUTPUT").replace(self.source, "SOURCE")


def read_edges(ninja: str, folder: Path) -> list[Edge]:
    """Read the compiles of the build.ninja in a folder, as ninja itself parses it."""
    compdb = subprocess.run([ninja, "-t", "compdb"], cwd=folder, stdout=subprocess.PIPE, check=True).stdout
    return [
        Edge(entry["command"], str(folder / entry["file"]), str(folder / entry["output"]))
        for entry in parse_json(compdb)
    ]


@dataclass(frozen=True)
class CompileInputs:
    """The compiles of a build, and the kernels that they make."""

    kernels: Mapping[str, Edge]
    """By source name."""
    bindings: tuple[Edge, ...]
    hipcc: str
    flags: tuple[str, ...]
    """The flags of every kernel, without archs."""
    archs: tuple[str, ...]
    """In the order in which the driver bundles them."""
    compiler: Compiler
    keys: Mapping[tuple[str, ...], SetKey]
    """By targets: each one alone, and all of them for whole objects."""
    early_inline_disabled: bool
    """Whether early inlining is disabled, because it blows up in this compiler."""
    guards: Guards
    environ: Mapping[str, str]
    """Of setup.py, and of the compiles."""

    def target_lists(self, requested: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
        """The lists of targets to compile for: the requested one, else each arch and the host.

        Raises `BuildError` if this build has no such target.
        """
        if requested and requested not in self.keys:
            raise BuildError("not a target of this build", " ".join(requested), f"it has {', '.join(self.archs)}")
        return (requested,) if requested else split_targets(self.archs)

    @property
    def outputs(self) -> list[str]:
        """All objects that are linked."""
        return [edge.output for edge in (*self.kernels.values(), *self.bindings)]

    @property
    def root(self) -> str:
        """The folder in which kernels are compiled."""
        return source_root(next(iter(self.kernels.values())).source)


def inspect_compiles(edges: Sequence[Edge], environ: Mapping[str, str]) -> CompileInputs | None:
    """Identify the kernel set of these compiles; None if there are no kernels among them.

    Raises `BuildError` if the kernels are not compiled alike, or read something that the key does not contain;
    `OSError` if the compiler cannot be started.
    """
    kernels = [edge for edge in edges if edge.is_kernel]
    if not kernels:
        return None
    first = kernels[0]
    other = next((edge for edge in kernels if edge.pattern != first.pattern), None)
    if other:
        hint = "this flash-attn release needs a change in wheelfactory.kernels.compiler.key"
        raise BuildError("kernels of one set are compiled with different flags", f"{first.name} and {other.name}", hint)
    hipcc, *arguments = first.arguments()
    compiler, rocm, root = read_compiler(hipcc, environ), rocm_root(hipcc), str(Path(first.source).parents[1])
    # sorted as the driver does: the order of the options changes no object
    archs = tuple(sorted({word.removeprefix(ARCH_OPTION) for word in arguments if word.startswith(ARCH_OPTION)}))
    if not archs:
        raise BuildError("no offload arch in the compile command", first.name, "set PYTORCH_ROCM_ARCH, such as gfx942")
    tamed = compiler.has_runaway_inlining and has_runaway_flags(arguments)
    flags = kernel_flags(arguments, root, rocm, disable_early_inline=tamed)
    target_lists = (*split_targets(archs), whole_targets(archs))
    return CompileInputs(
        kernels={edge.name: edge for edge in kernels},
        bindings=tuple(edge for edge in edges if not edge.is_kernel),
        hipcc=hipcc,
        flags=tuple(target_flags([*flags, *appended_flags(environ)], whole_targets(archs))),
        archs=archs,
        compiler=compiler,
        keys=make_keys([edge.source for edge in kernels], flags, target_lists, compiler, rocm, environ),
        early_inline_disabled=tamed,
        guards={edge.name: guard for edge in kernels if (guard := read_guard(edge.source))},
        environ=environ,
    )
