"""Read the build.ninja that torch wrote, and identify the kernel set that it compiles."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from wheelfactory.core.errors import BuildError
from wheelfactory.core.strict import parse_json
from wheelfactory.kernels.compiler.hipcc import (
    Compiler,
    appended_flags,
    has_runaway_flags,
    is_kernel_source,
    kernel_flags,
    kernel_name,
    read_compiler,
    rocm_root,
    source_root,
)
from wheelfactory.kernels.compiler.key import make_keys
from wheelfactory.kernels.compiler.store import SetKey
from wheelfactory.kernels.compiler.targets import (
    ARCH_OPTION,
    Guards,
    read_guard,
    split_targets,
    target_flags,
    whole_targets,
)


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
        hint = "this flash-attn release needs a change in wheelfactory.kernels.compiler.edges"
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
    )
