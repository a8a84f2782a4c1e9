"""The command lines of one build: kernels for each target, precompiled headers, whole objects, bindings."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

from wheelfactory.core.files import content_key
from wheelfactory.kernels.compiler.costs import HEADER_CPU_S, Ledger, predict_cost
from wheelfactory.kernels.compiler.hipcc import APPEND_VARIABLE, kernel_command
from wheelfactory.kernels.compiler.key import CompileInputs, Edge
from wheelfactory.kernels.compiler.objects import Bundler, read_bundler
from wheelfactory.kernels.compiler.schedule import Compile
from wheelfactory.kernels.compiler.targets import HOST, NO_GUARDS, is_empty, target_flags, target_options, whole_targets

BINDING_CPU_S = 60.0
"""CPU seconds to assume for a binding; a guess, not measured."""

# bytes of a source in which its first includes must be: a licence and a note of the generator precede them
_MAX_PREAMBLE = 4096
_DIRECTIVE = re.compile(rb'(?://[^\n]*\n|\s)*#((?:include "[^"\n]+"|define \w+ \w+|undef \w+))[ \t]*(?=\n)')

# the folder of torch's package among the includes
_TORCH = re.compile(r"(?:-I|-isystem )(\S+)/torch/include(?=\s)")

PLACEHOLDER = "placeholder"
"""The file in the folder of a compile that host code embeds until the device code is there."""

PLACEHOLDER_BYTES = b"\0"


@dataclass(frozen=True)
class Shortcuts:
    """Ways to compile less that the samples have proved."""

    headers: Mapping[tuple[tuple[str, ...], tuple[str, ...]], Path] = field(default_factory=dict)
    """Precompiled headers, by preamble and targets."""
    empty_sources: bool = False
    """Whether an arch that a source has no code for gets the device code of an empty source."""


ORDINARY = Shortcuts()


@cache
def preamble(source: str) -> tuple[str, ...]:
    """Return the directives that a source (a path) begins with, up to the last ``#include`` of the project's headers.

    Macros may be among them: setup.py prepends two to the sources for Radeon.
    """
    with Path(source).open("rb") as file:
        text, end, found = file.read(_MAX_PREAMBLE), 0, list[str]()
    while match := _DIRECTIVE.match(text, end):
        found.append(match[1].decode())
        end = match.end()
    while found and not found[-1].startswith("include"):
        del found[-1]
    return tuple(found)


@dataclass(frozen=True)
class CompileCommands:
    """Makes the compiles of a build; `scratch` takes what is not kept."""

    inputs: CompileInputs
    ledger: Ledger
    scratch: Path

    def header(self, directives: tuple[str, ...], targets: tuple[str, ...]) -> Compile:
        """The compile that precompiles a preamble as one header, for one target."""
        output = self.header_path(directives, targets)
        source = output.with_suffix(".hip")
        source.write_text("".join(f"#{directive}\n" for directive in directives), encoding="utf-8")
        options = ("-fsyntax-only", *_to_clang("-emit-pch", "-o", str(output)))
        argv = [*self._hipcc(targets), "-cuid=header", "-x", "hip", *options, str(source)]
        header = directives[-1].split('"')[1]
        name, folder = f"{header} for {targets[0]}", self.inputs.root
        return Compile(name, header, (), output, argv, folder, self._kernel_environ, HEADER_CPU_S)

    def header_path(self, directives: tuple[str, ...], targets: tuple[str, ...]) -> Path:
        """Where that compile writes the precompiled header."""
        return self.scratch / f"{content_key(' '.join(directives))}.{targets[0]}.pch"

    def preamble(self, name: str) -> tuple[str, ...]:
        """The directives that a kernel begins with (`preamble`)."""
        return preamble(self.inputs.kernels[name].source)

    def predicted_s(self, name: str, targets: tuple[str, ...], *, empty_sources: bool) -> float:
        """Predict the CPU seconds of a kernel; `empty_sources` as in `Shortcuts`."""
        guards = self.inputs.guards if empty_sources else NO_GUARDS
        return predict_cost(self.ledger, name, targets, self.inputs.compiler.content, guards).cpu_s

    def is_empty(self, name: str, targets: tuple[str, ...]) -> bool:
        """Whether a kernel has no device code for this target."""
        return is_empty(self.inputs.guards.get(name, ""), targets)

    def kernel(self, name: str, targets: tuple[str, ...], output: Path, shortcuts: Shortcuts = ORDINARY) -> Compile:
        """Return the command that compiles one kernel for one target, or as a whole object."""
        source, folder = self.inputs.kernels[name].source, self.inputs.root
        command, header = self._hipcc(targets), shortcuts.headers.get((self.preamble(name), targets))
        empty = shortcuts.empty_sources and self.is_empty(name, targets)
        if empty:
            # as deep as the source is below setup.py, so that the command is the same but for its folder
            folder = str(self.scratch / "empty")
            source = str(self.scratch / "empty/build" / Path(source).name)
            Path(source).parent.mkdir(parents=True, exist_ok=True)
            Path(source).touch()
        elif header:
            # else a macro of the file name is absolute where it was relative
            prefix = [f"-fmacro-prefix-map={self.inputs.root}/="] if HOST in targets else []
            command += [*prefix, *_to_clang("-include-pch", str(header))]
        argv = kernel_command(command[0], command[1:], source, str(output))
        predicted_s = self.predicted_s(name, targets, empty_sources=empty)
        label = f"{name} for {targets[0]}" if len(targets) == 1 else name
        return Compile(label, name, targets, output, argv, folder, self._kernel_environ, predicted_s, empty)

    def binding(self, edge: Edge) -> Compile:
        """The compile of a binding as setup.py wants it, but with the same object on another tree and beside torch."""
        # messages of torch's headers have the paths of files, and clang hashes that of the source into a symbol
        roots = [self.inputs.root, *_TORCH.findall(edge.command)]
        options = [f"-cuid={edge.name}", *(f"-ffile-prefix-map={root}/=" for root in dict.fromkeys(roots))]
        argv = ["/bin/sh", "-c", " ".join([edge.command, *map(shlex.quote, options)])]
        folder, environ = str(Path.cwd()), self.inputs.environ
        return Compile(edge.name, edge.name, (), Path(edge.output), argv, folder, environ, BINDING_CPU_S)

    def _hipcc(self, targets: tuple[str, ...]) -> list[str]:
        options = target_options(targets, self.inputs.archs, str(self.scratch / PLACEHOLDER))
        return [self.inputs.hipcc, *target_flags(self.inputs.flags, targets), *options]

    @cached_property
    def _kernel_environ(self) -> Mapping[str, str]:
        # the flags of that variable are on the command line already
        return {key: value for key, value in self.inputs.environ.items() if key != APPEND_VARIABLE}


def _to_clang(*options: str) -> list[str]:
    """Options that the driver hands over to the compiler itself."""
    return [word for option in options for word in ("-Xclang", option)]


def read_driver_bundler(inputs: CompileInputs, scratch: Path, archs: Sequence[str]) -> Bundler:
    """Read how the driver bundles device code. Raises `CannotComposeError` if that is another way than ours."""
    commands = CompileCommands(inputs, Ledger(), scratch)
    asked = commands.kernel(next(iter(inputs.kernels)), whole_targets(archs), scratch / "asked.o")
    return read_bundler(asked.argv, asked.folder, asked.environ, archs)
