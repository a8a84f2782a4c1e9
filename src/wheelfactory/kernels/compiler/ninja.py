"""Stands on PATH as ``ninja`` while setup.py runs: ``python -ISB ninja.py ARGUMENTS...``

torch calls ninja to compile everything in its build.ninja. This program compiles only what the store lacks, in order of
cost, and puts the objects together; then torch links. A shard stops before the link. Any other call goes to the real
ninja.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

# last, so that packages installed beside ours cannot shadow modules of this Python
sys.path.append(str(Path(__file__).resolve().parents[3]))

from wheelfactory.core.errors import BuildError
from wheelfactory.core.files import scratch_dir, wait_for_lock
from wheelfactory.core.query import NOTICE_PREFIX
from wheelfactory.kernels.compiler.commands import (
    ORDINARY,
    PLACEHOLDER,
    PLACEHOLDER_BYTES,
    CompileCommands,
    read_driver_bundler,
)
from wheelfactory.kernels.compiler.compile_run import CompileRun, Part, Samples, Targets
from wheelfactory.kernels.compiler.costs import Ledger, Measurement, Shard, cut_shards, shard_costs
from wheelfactory.kernels.compiler.hipcc import EARLY_INLINE, FUNCTION_CALLS
from wheelfactory.kernels.compiler.key import CompileInputs, inspect_compiles, read_edges
from wheelfactory.kernels.compiler.objects import (
    Bundler,
    CannotComposeError,
    embed,
    read_device_code,
    require_one_offload_form,
)
from wheelfactory.kernels.compiler.request import (
    FAILED,
    READY_TO_LINK,
    SHARD_DONE,
    SURVEYED,
    TIME_UP,
    CompileRequest,
    CompileResult,
    adopt_keys,
    increase_stack_limit_for_link,
    require_matching_keys,
    require_planned_sources,
    require_supported_archs,
)
from wheelfactory.kernels.compiler.store import Store
from wheelfactory.kernels.compiler.survey import write_survey
from wheelfactory.kernels.compiler.targets import HOST, compiled_sources, whole_targets

NOT_LINKED = 64
"""Exit status that stops setup.py before the link: the shard is done, the compiles are listed, or the request is
refused."""


def compile_set(request: CompileRequest, inputs: CompileInputs) -> CompileResult:
    """Compile the requested kernels in the current folder, and return the result.

    Raises `BuildError` if the request is refused, an object cannot be saved, or memory is too small for one compile
    alone; `OSError` if the compiler cannot be started.
    """
    parts = inputs.target_lists(request.targets)
    if request.newer_system:
        inputs = replace(inputs, keys=adopt_keys(inputs.keys, request.archive_keys))
    require_matching_keys([inputs.keys[targets] for targets in parts], request.archive_keys)
    if not request.targets:
        # of setup.py, which starts the linker
        increase_stack_limit_for_link(os.getppid(), inputs.outputs, inputs.environ)
    kernels = Path(request.kernels)
    with scratch_dir(kernels) as scratch:
        (scratch / PLACEHOLDER).write_bytes(PLACEHOLDER_BYTES)
        try:
            archs = [targets[0] for targets in parts if targets != (HOST,)] or inputs.archs[:1]
            bundler = read_driver_bundler(inputs, scratch, archs)
            return _Build(request, inputs, scratch, bundler, parts).compile()
        except CannotComposeError as error:
            require_supported_archs(inputs.hipcc, inputs.archs, inputs.environ)  # else that is the reason
            if request.targets:
                hint = "compile whole objects with each cell: build it without --kernels"
                raise BuildError("this compiler's objects cannot be put together", str(error), hint) from None
            print(f"{NOTICE_PREFIX}{error}: compiling whole objects the ordinary way", flush=True)
        whole = (whole_targets(inputs.archs),)
        return _Build(request, inputs, scratch, None, whole).compile()


@dataclass
class _Build:
    """One way to compile the requested kernels: the parts of each object, or whole objects."""

    request: CompileRequest
    inputs: CompileInputs
    scratch: Path
    bundler: Bundler | None
    """None for whole objects."""
    parts: Sequence[Targets]

    def compile(self) -> CompileResult:
        """Compile what the store lacks. Raises the errors of `compile_set`, and `CannotComposeError`."""
        request, inputs = self.request, self.inputs
        stores = {targets: Store(Path(request.kernels), inputs.keys[targets]) for targets in self.parts}
        selected = self._selected()
        with ExitStack() as held:
            for store in sorted(stores.values(), key=lambda store: store.folder):  # in one order, against a deadlock
                store.create()
                held.enter_context(
                    wait_for_lock(store.folder / f"lock{request.shard.replace('/', '-')}", _tell_of_wait)
                )
            needed = {targets: compiled_sources(selected, targets) for targets in stores}
            missing: list[Part] = []
            for targets, store in stores.items():
                missing += [(name, targets) for name in store.find_missing(needed[targets])]
            total, lacking = sum(map(len, needed.values())), len(missing)
            if lacking and request.newer_system and request.archive_keys:
                hint = "compile the whole sets first, in the image that `wheelfactory plan` names for the kernels"
                raise BuildError("the kernel archives are incomplete", f"{lacking} of {total} kernels", hint)
            keys = tuple(store.key.digest for store in stores.values())
            result = CompileResult(FAILED, keys, tuple(selected), total, total - lacking, 0, time.time())
            result.write(request)
            for note in _notes(request, inputs, stores, missing):
                print(f"{NOTICE_PREFIX}{note}", flush=True)
            if missing:
                require_supported_archs(inputs.hipcc, inputs.archs, inputs.environ)
            else:
                held.close()  # only bindings are left, and no other build shares them
            run = self._run(stores, missing)
        return replace(result, state=_state(request, run, lacking), compiled=len(run.saved))

    def _selected(self) -> list[str]:
        """Return the source names to compile: all, or the shard's. Every machine cuts the same shards."""
        names = compiled_sources(self.inputs.kernels, self.request.targets or (HOST,))
        if not self.request.shard:
            return names
        shard = Shard.parse(self.request.shard)
        if shard.count > len(names):
            hint = f"there are {len(names)} kernels: use --shard I/N with a smaller N"
            raise BuildError("more shards than kernels", self.request.shard, hint)
        path = self.request.shard_ledger
        costs = shard_costs(
            Ledger.read(Path(path)) if path else Ledger(), names, self.request.targets, self.inputs.guards
        )
        return sorted(cut_shards(costs, shard.count)[shard.index - 1])

    def _run(self, stores: Mapping[Targets, Store], missing: Sequence[Part]) -> CompileRun:
        ledger = _ledger(self.request, self.inputs, stores)
        commands = CompileCommands(self.inputs, ledger, self.scratch)
        bindings = [] if self.request.targets else [commands.binding(edge) for edge in self.inputs.bindings]
        composed = self.bundler is not None
        predicted = {part: commands.predicted_s(*part, empty_sources=composed) for part in missing}
        predicted.update(((item.source, item.targets), item.predicted_s) for item in bindings)
        run = CompileRun(self.request, stores, self.inputs.compiler.content, predicted)
        shortcuts = ORDINARY
        if missing and self.bundler:
            shortcuts = Samples(run, commands, self.bundler, missing).prove()
        if run.can_go_on:
            rest = [
                commands.kernel(name, targets, self.scratch / targets[0] / f"{name}.o", shortcuts)
                for name, targets in missing
                if (name, targets) not in run.saved
            ]
            rest.sort(key=lambda item: (-item.predicted_s, item.name))
            run.run([*rest, *bindings], lambda ended: run.save(ended) if ended.compile.targets else None)
        if run.can_go_on and not self.request.targets:
            for name in self.inputs.kernels:
                self._compose_object(name, stores)
            require_one_offload_form(map(Path, self.inputs.outputs))
        return run

    def _compose_object(self, name: str, stores: Mapping[Targets, Store]) -> None:
        """Put an object together in the build tree. Raises `BuildError` for one that is not of its source."""
        output = Path(self.inputs.kernels[name].output)
        output.parent.mkdir(parents=True, exist_ok=True)
        output.unlink(missing_ok=True)
        if self.bundler is None:
            shutil.copyfile(stores[self.parts[0]].object_path(name), output)
            return
        paths = {targets[0]: store.object_path(name) for targets, store in stores.items()}
        host = paths.pop(HOST).read_bytes()
        if compiled_sources([name], self.inputs.archs[:1]):
            code = read_device_code(name, host, paths, is_guarded=name in self.inputs.guards)
            host = embed(host, self.bundler.bundle(code))
        output.write_bytes(host)


def _tell_of_wait() -> None:
    print(f"{NOTICE_PREFIX}waiting for another build that compiles these kernels", flush=True)


def _state(request: CompileRequest, run: CompileRun, lacking: int) -> str:
    """The state of the result. Raises `BuildError` if a rerun would fail in the same way."""
    if run.error:
        hint = "free disk space, then run the same command again: compiled kernels are kept"
        raise BuildError("cannot save compiled kernels", run.error, hint)
    if run.failed:
        return FAILED
    if not run.late:
        return SHARD_DONE if request.targets else READY_TO_LINK
    if lacking and not run.saved:
        which = f"{lacking} kernels are missing"
        raise BuildError("too little time to compile one kernel", which, "give more hours: --budget")
    return TIME_UP


def _notes(
    request: CompileRequest,
    inputs: CompileInputs,
    stores: Mapping[Targets, Store],
    missing: Sequence[Part],
) -> Iterator[str]:
    if inputs.early_inline_disabled:
        pair = f"{EARLY_INLINE}=true with {FUNCTION_CALLS}=false"
        yield f"{inputs.compiler.version} inlines without end with {pair}: compiling kernels without early inlining"
    recorded = {(name, targets) for targets, store in stores.items() for name in store.read_records()}
    damaged = sorted({name for name, _ in recorded.intersection(missing)})
    if damaged:
        yield f"{len(damaged)} stored objects are missing or damaged, compiling them again: {damaged[0]}"
    absent = {name for name, _ in missing} - {*damaged}
    if request.archive_keys and absent:
        yield f"compiling {len(absent)} of {len(inputs.kernels)} kernels that no given archive contains"


def _ledger(request: CompileRequest, inputs: CompileInputs, stores: Mapping[Targets, Store]) -> Ledger:
    """Measurements of this machine, and the costs of stored objects, which may come from other machines."""
    content, stored = inputs.compiler.content, [store.read_records().values() for store in stores.values()]
    made = (entry for entries in stored for entry in entries)
    kept = (Measurement(one.source, one.targets, content, one.cpu_s, one.peak_mib, one.size) for one in made)
    known = (entry for entry in kept if entry.is_plausible)
    return Ledger((*Ledger.read(Path(request.ledger)).measurements, *known))


def main(arguments: list[str]) -> int:
    """Run as ninja, and return the exit status."""
    request = CompileRequest.read(os.environ)
    if "--version" in arguments or not Path("build.ninja").exists():
        os.execv(request.ninja, [request.ninja, *arguments])
    try:
        inputs = inspect_compiles(read_edges(request.ninja, Path.cwd()), os.environ)
        if inputs is None:
            os.execv(request.ninja, [request.ninja, *arguments])
        require_planned_sources(inputs.kernels, request.planned_sources)
        run = write_survey if request.survey else compile_set
        result = run(request, inputs)
    except (BuildError, OSError) as error:
        what, hint = "cannot compile kernels", "fix the cause, then run the same command again"
        refusal = error if isinstance(error, BuildError) else BuildError(what, str(error), hint)
        print(f"error: {refusal}", file=sys.stderr)
        request.write_answer({"what": refusal.what, "which": refusal.which, "hint": refusal.hint})
        return NOT_LINKED
    result.write(request)
    return {READY_TO_LINK: 0, SHARD_DONE: NOT_LINKED, SURVEYED: NOT_LINKED}.get(result.state, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
