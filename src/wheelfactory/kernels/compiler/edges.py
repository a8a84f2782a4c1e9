"""The build.ninja that torch wrote -> its compiles, and which kernel set they are: sources, archs, compiler and key."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from wheelfactory.core.errors import BuildError
from wheelfactory.kernels.compiler import launcher
from wheelfactory.kernels.compiler.compiler import Compiler, read_compiler
from wheelfactory.kernels.compiler.flags import (
    find_kernel_source,
    has_runaway_flags,
    kernel_flags,
    kernel_name,
    rocm_root,
)
from wheelfactory.kernels.compiler.key import make_key
from wheelfactory.kernels.compiler.store import SetKey


@dataclass(frozen=True)
class Edge:
    """One compile: the command line as ninja would give it to a shell, its source, its object."""

    command: str
    source: str
    output: str

    @property
    def name(self) -> str:
        """The name of its source, without extension."""
        return kernel_name(self.source)

    @property
    def is_kernel(self) -> bool:
        """Whether its source is a generated kernel."""
        return find_kernel_source(["-c", self.source]) is not None

    def arguments(self) -> list[str]:
        """hipcc and its arguments. Raises `BuildError` if hipcc is not behind the launcher."""
        words = shlex.split(self.command)
        if launcher.LAUNCHER_PATH in words:
            return words[words.index(launcher.LAUNCHER_PATH) + 1 :]
        raise BuildError("the compiler is not started by the launcher", words[0], "unset what replaces PYTORCH_NVCC")

    @property
    def pattern(self) -> str:
        """The command without what differs from source to source."""
        return self.command.replace(self.output, "OUTPUT").replace(self.source, "SOURCE")


def read_edges(ninja: str, folder: Path) -> list[Edge]:
    """The compiles of the build.ninja in a folder, as ninja itself understands it."""
    said = subprocess.run([ninja, "-t", "compdb"], cwd=folder, stdout=subprocess.PIPE, check=True).stdout
    return [
        Edge(entry["command"], str(folder / entry["file"]), str(folder / entry["output"])) for entry in json.loads(said)
    ]


@dataclass(frozen=True)
class CompileInputs:
    """What is known before anything is compiled."""

    kernels: Mapping[str, Edge]
    """By the name of the source."""
    bindings: tuple[Edge, ...]
    hipcc: str
    archs: tuple[str, ...]
    compiler: Compiler
    key: SetKey
    early_inline_disabled: bool
    """Whether flags were taken back with which this compiler runs away."""


def inspect_compiles(edges: Sequence[Edge], environ: Mapping[str, str]) -> CompileInputs | None:
    """What these compiles are; None if no generated kernel is among them.

    Raises `BuildError` if they are not compiled alike, or read what the key does not hold; `OSError` if there is no
    compiler.
    """
    kernels = [edge for edge in edges if edge.is_kernel]
    if not kernels:
        return None
    first = kernels[0]
    other = next((edge for edge in kernels if edge.pattern != first.pattern), None)
    if other:
        raise BuildError(
            "kernels of one set are compiled with different flags",
            f"{first.name} and {other.name}",
            "this flash-attn release needs a change in wheelfactory.kernels.compiler.edges",
        )
    hipcc, *arguments = first.arguments()
    compiler, rocm, root = read_compiler(hipcc, environ), rocm_root(hipcc), str(Path(first.source).parents[1])
    archs = tuple(word.partition("=")[2] for word in arguments if word.startswith("--offload-arch="))
    if not archs:
        raise BuildError("no offload arch", first.name, "name one as --offload-arch=gfx942 does")
    tamed = compiler.has_runaway_inlining and has_runaway_flags(arguments)
    flags = kernel_flags(arguments, root, rocm, disable_early_inline=tamed)
    return CompileInputs(
        kernels={edge.name: edge for edge in kernels},
        bindings=tuple(edge for edge in edges if not edge.is_kernel),
        hipcc=hipcc,
        archs=archs,
        compiler=compiler,
        key=make_key([edge.source for edge in kernels], flags, archs, compiler, rocm, environ),
        early_inline_disabled=tamed,
    )
