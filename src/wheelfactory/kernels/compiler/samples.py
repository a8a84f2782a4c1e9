"""Compare samples with ordinary compiles before the rest is compiled: the parts put together must be the same bytes.

One source of each kind and guard is compiled in both ways. If one differs, or the compiler refuses, precompiled headers
are not used, then no empty sources; if it still differs, objects cannot be composed at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from wheelfactory.core.query import NOTICE_PREFIX
from wheelfactory.kernels.compiler.commands import ORDINARY, CompileCommands, Shortcuts
from wheelfactory.kernels.compiler.compile_run import CompileRun
from wheelfactory.kernels.compiler.costs import parse_kernel_kind, seed_cost
from wheelfactory.kernels.compiler.fat_binary import Bundler, CannotComposeError, embed, find_fat_binary
from wheelfactory.kernels.compiler.schedule import Compile, EndedCompile
from wheelfactory.kernels.compiler.targets import HOST, Guards, compiled_sources, whole_targets

MIN_COMPILES = 3
"""A header is precompiled for at least this many compiles: it costs what one or two of them save."""

Targets = tuple[str, ...]

Part = tuple[str, Targets]
"""A source, and the targets that it is compiled for."""


@dataclass
class Samples:
    """Chooses how to compile the missing parts."""

    run: CompileRun
    commands: CompileCommands
    bundler: Bundler
    missing: Sequence[Part]
    _ended: dict[Part, EndedCompile] = field(default_factory=dict)
    """The compiles of the parts to compare."""

    @cached_property
    def _targets(self) -> list[Targets]:
        """The targets of the missing parts."""
        return list(dict.fromkeys(targets for _, targets in self.missing))

    def prove(self) -> Shortcuts:
        """Compile samples, save their parts, and return the shortcuts that the rest is to take.

        Stops early if an ordinary compile fails, or does not end in time (see `CompileRun.can_go_on`). Raises
        `CannotComposeError` if a sample differs from its ordinary compile even without shortcuts.
        """
        samples = choose_samples(self.missing, self.commands.inputs.guards)
        self.run.run([self._ordinary(name) for name in samples], lambda _: None)
        fewer, shortcuts = self._ladder()
        while self.run.can_go_on:
            reason = self._compare(samples, shortcuts)
            if not reason or not self.run.can_go_on:
                break
            if not fewer:
                raise CannotComposeError(reason)
            without, shortcuts = fewer.pop(0)
            print(f"{NOTICE_PREFIX}{reason}: compiling without {without}", flush=True)
        missing = {*self.missing}
        for part, ended in self._ended.items():
            if part in missing:
                self.run.save(ended)
        return shortcuts

    def _ladder(self) -> tuple[list[tuple[str, Shortcuts]], Shortcuts]:
        """All shortcuts, and what to leave out of them, one after the other, if a sample differs."""
        headers = choose_headers(self.missing, self.commands)
        empty = any(self.commands.is_empty(*part) for part in self.missing)
        fewer = []
        if headers:
            fewer.append(("precompiled headers", Shortcuts({}, empty)))
        if empty:
            fewer.append(("empty sources", ORDINARY))
        return fewer, Shortcuts(headers, empty)

    def _compare(self, samples: Sequence[str], shortcuts: Shortcuts) -> str:
        """Compile the parts of the samples, and say why they are not the ordinary objects; empty if they are."""
        self._ended.clear()
        compiles = [self.commands.header(*item) for item in shortcuts.headers]
        self.run.run(compiles, lambda _: None, keep_going=True)
        refused = [item.name for item in compiles if not item.output.exists()]
        if refused:
            return f"the compiler does not precompile {refused[0]}"
        # also those that are kept: they may come from another machine
        parts = [
            self.commands.kernel(name, targets, self._path(name, targets), shortcuts)
            for targets in self._targets
            for name in compiled_sources(samples, targets)
        ]
        self.run.run(parts, self._keep, keep_going=True)
        return next((reason for reason in map(self._difference, samples) if reason), "")

    def _keep(self, ended: EndedCompile) -> None:
        self._ended[ended.compile.source, ended.compile.targets] = ended

    def _ordinary(self, name: str) -> Compile:
        archs = [targets[0] for targets in self._targets if targets != (HOST,)]
        targets = whole_targets(archs or self.commands.inputs.archs[:1])
        return self.commands.kernel(name, targets, self._path(name, targets))

    def _path(self, name: str, targets: Targets) -> Path:
        return self.commands.scratch / "-".join(targets) / f"{name}.o"

    def _difference(self, name: str) -> str:
        """Describe how the composed sample differs from the ordinary object; empty if they are equal."""
        ordinary = self._ordinary(name).output.read_bytes()
        archs = [targets[0] for targets in self._targets if targets != (HOST,) and compiled_sources([name], targets)]
        code = {arch: self._path(name, (arch,)) for arch in archs}
        host = self._path(name, (HOST,)) if (HOST,) in self._targets else None
        absent = [path.name for path in (*code.values(), *([host] if host else [])) if not path.exists()]
        if absent:
            return f"the compiler does not compile {absent[0]}"
        fat_binary = find_fat_binary(ordinary)
        if code and self.bundler.bundle({arch: path.read_bytes() for arch, path in code.items()}) != fat_binary:
            return f"the device code of {name} differs from an ordinary compile"
        if host and embed(host.read_bytes(), fat_binary or b"") != ordinary:
            return f"the host code of {name} differs from an ordinary compile"
        return ""


def choose_samples(missing: Iterable[Part], guards: Guards) -> list[str]:
    """Return the cheapest of the missing sources of each kind and guard."""
    costs = {name: seed_cost(name, targets).cpu_s for name, targets in missing}
    cheapest: dict[tuple[str, str], str] = {}
    for name in sorted(costs, key=lambda name: (costs[name], name)):
        cheapest.setdefault((parse_kernel_kind(name)[0], guards.get(name, "")), name)
    return list(cheapest.values())


def choose_headers(missing: Iterable[Part], commands: CompileCommands) -> dict[tuple[tuple[str, ...], Targets], Path]:
    """Return where to precompile the preambles that enough of the missing sources begin with."""
    coded = [(name, targets) for name, targets in missing if not commands.is_empty(name, targets)]
    counts = Counter((commands.preamble(name), targets) for name, targets in coded)
    return {
        (directives, targets): commands.header_path(directives, targets)
        for (directives, targets), count in counts.items()
        if directives and count >= MIN_COMPILES
    }
