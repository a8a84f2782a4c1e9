"""The command lines of one build: kernels for each target, precompiled headers, whole objects, bindings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType

from wheelfactory.kernels.compiler.costs import HEADER_CPU_S, Ledger, predict_cost
from wheelfactory.kernels.compiler.edges import CompileInputs, Edge
from wheelfactory.kernels.compiler.flags import APPEND_VARIABLE, kernel_command
from wheelfactory.kernels.compiler.schedule import Compile
from wheelfactory.kernels.compiler.targets import HOST, target_flags, target_options

BINDING_CPU_S = 60.0
"""CPU seconds to assume for a binding; a guess, not measured."""

# bytes of a source in which its first includes must be: a licence and a note of the generator precede them
_MAX_PREAMBLE = 4096
_COMMENT_OR_SPACE = rb"(?://[^\n]*\n|\s)*"
_FIRST_INCLUDES = re.compile(rb'(?:%b#include "[^"\n]+")*' % _COMMENT_OR_SPACE)
_INCLUDE = re.compile(rb'#include "([^"\n]+)"')

PLACEHOLDER = "placeholder"
"""The file in the scratch folder that host code embeds until the device code is there."""


Headers = Mapping[tuple[tuple[str, ...], tuple[str, ...]], Path]
"""Precompiled headers, by what they include, in order, and the targets."""


@cache
def first_includes(source: str) -> tuple[str, ...]:
    """Return the project's headers that a source (a path) includes before anything else, in order."""
    with Path(source).open("rb") as file:
        found = _FIRST_INCLUDES.match(file.read(_MAX_PREAMBLE))
    return tuple(name.decode() for name in _INCLUDE.findall(found[0] if found else b""))


@dataclass(frozen=True)
class CompileCommands:
    """Makes the compiles of a build; `scratch` takes what is not kept."""

    inputs: CompileInputs
    environ: Mapping[str, str]
    ledger: Ledger
    scratch: Path

    def header(self, includes: tuple[str, ...], targets: tuple[str, ...]) -> Compile:
        """The compile that precompiles these headers as one, for one target."""
        output = self.header_path(includes, targets)
        source = output.with_suffix(".hip")
        source.write_text("".join(f'#include "{include}"\n' for include in includes), encoding="utf-8")
        options = ("-fsyntax-only", *_to_clang("-emit-pch", "-o", str(output)))
        argv = [*self._hipcc(targets), "-cuid=header", "-x", "hip", *options, str(source)]
        return self._compile(f"{includes[-1]} for {targets[0]}", includes[-1], (), output, argv, HEADER_CPU_S)

    def header_path(self, includes: tuple[str, ...], targets: tuple[str, ...]) -> Path:
        """Where that compile writes the precompiled header."""
        return self.scratch / f"{'-'.join(Path(include).stem for include in includes)}.{targets[0]}.pch"

    def first_includes(self, name: str) -> tuple[str, ...]:
        """The headers that a kernel includes before anything else, in order."""
        return first_includes(self.inputs.kernels[name].source)

    def kernel(
        self, name: str, targets: tuple[str, ...], output: Path, headers: Headers = MappingProxyType({})
    ) -> Compile:
        """The compile of a kernel for one target, with its precompiled header if there is one; or of a whole object."""
        command, header = self._hipcc(targets), headers.get((self.first_includes(name), targets))
        if header:
            # else a macro of the file name is absolute where it was relative
            prefix = [f"-fmacro-prefix-map={self.inputs.root}/="] if HOST in targets else []
            command += [*prefix, *_to_clang("-include-pch", str(header))]
        argv = kernel_command(command[0], command[1:], self.inputs.kernels[name].source, str(output))
        predicted_s = predict_cost(self.ledger, name, targets, self.inputs.compiler.content).cpu_s
        label = f"{name} for {targets[0]}" if len(targets) == 1 else name
        return self._compile(label, name, targets, output, argv, predicted_s)

    def binding(self, edge: Edge) -> Compile:
        """The compile of a binding, as setup.py wants it."""
        argv = ["/bin/sh", "-c", edge.command]
        return Compile(edge.name, edge.name, (), Path(edge.output), argv, str(Path.cwd()), self.environ, BINDING_CPU_S)

    def _hipcc(self, targets: tuple[str, ...]) -> list[str]:
        options = target_options(targets, self.inputs.archs, str(self.scratch / PLACEHOLDER))
        return [self.inputs.hipcc, *target_flags(self.inputs.flags, targets), *options]

    def _compile(
        self, name: str, source: str, targets: tuple[str, ...], output: Path, argv: list[str], predicted_s: float
    ) -> Compile:
        # the flags of that variable are on the command line already
        environ = {key: value for key, value in self.environ.items() if key != APPEND_VARIABLE}
        return Compile(name, source, targets, output, argv, self.inputs.root, environ, predicted_s)


def _to_clang(*options: str) -> list[str]:
    """Options that the driver hands over to the compiler itself."""
    return [word for option in options for word in ("-Xclang", option)]
