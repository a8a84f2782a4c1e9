"""The compiles that torch asks for -> which kernel set this is: its sources, archs, compiler and key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from wheelfactory.core.errors import BuildError
from wheelfactory.kernels.compiler.compiler import Compiler, read_compiler
from wheelfactory.kernels.compiler.edges import Edge, arguments_of
from wheelfactory.kernels.compiler.flags import EARLY_INLINE, FUNCTION_CALLS, is_runaway, kernel_flags, rocm_of
from wheelfactory.kernels.compiler.key import make_key
from wheelfactory.kernels.compiler.store import SetKey


@dataclass(frozen=True)
class Survey:
    """What is known before anything is compiled."""

    kernels: Mapping[str, Edge]
    """By the name of the source."""
    bindings: tuple[Edge, ...]
    hipcc: str
    archs: tuple[str, ...]
    compiler: Compiler
    key: SetKey
    tamed: bool
    """Whether flags were taken back with which this compiler runs away."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person should know of how kernels are compiled."""
        if not self.tamed:
            return ()
        pair = f"{EARLY_INLINE}=true with {FUNCTION_CALLS}=false"
        return (f"{self.compiler.version} runs away on {pair}: kernels are compiled without early inlining",)


def survey(edges: Sequence[Edge], launcher: str, environ: Mapping[str, str]) -> Survey | None:
    """What these compiles are; None if no generated kernel is among them.

    Raises `BuildError` if they are not compiled alike, or read what the key does not hold; `OSError` if there is no
    compiler.
    """
    kernels = [edge for edge in edges if edge.is_kernel]
    if not kernels:
        return None
    hipcc, *arguments = arguments_of(kernels, launcher)
    compiler, rocm, root = read_compiler(hipcc, environ), rocm_of(hipcc), str(Path(kernels[0].source).parents[1])
    archs = tuple(word.partition("=")[2] for word in arguments if word.startswith("--offload-arch="))
    if not archs:
        raise BuildError("no offload arch", kernels[0].name, "name one as --offload-arch=gfx942 does")
    tamed = compiler.runs_away and is_runaway(arguments)
    flags = kernel_flags(arguments, root, rocm, tame=tamed)
    return Survey(
        kernels={edge.name: edge for edge in kernels},
        bindings=tuple(edge for edge in edges if not edge.is_kernel),
        hipcc=hipcc,
        archs=archs,
        compiler=compiler,
        key=make_key([edge.source for edge in kernels], flags, archs, compiler, rocm, environ),
        tamed=tamed,
    )
