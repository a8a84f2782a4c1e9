"""Execute the kernels of a set on an emulator, and write what ran beside the set's archive.

The set's own host code chooses and launches the kernels, for calls as flash-attn's bindings make them; the emulator
executes the launched code objects byte for byte as they are in the set. Results are compared with float64.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from wheelfactory.build.environments import make_numpy_environment
from wheelfactory.build.executor import BuildCommand, Executor
from wheelfactory.build.setup_py import log_path
from wheelfactory.build.sources import unpack_source
from wheelfactory.core.errors import BuildError, InputError
from wheelfactory.core.files import PACKAGE_DIR, content_key, file_sha256, scratch_dir, write_atomic
from wheelfactory.core.process import failure_reason, run
from wheelfactory.core.progress import ProgressCallback, logger
from wheelfactory.core.strict import parse_json, read_record
from wheelfactory.emulator.ck_calls import Call, CallReport
from wheelfactory.emulator.ck_names import suggest_calls
from wheelfactory.emulator.code_object import read_kernels
from wheelfactory.emulator.findings import emulator_id
from wheelfactory.kernels.archive import find_archives, read_archive_manifest
from wheelfactory.kernels.compile import choose_recipe, merge_set
from wheelfactory.kernels.compiler import record_calls
from wheelfactory.kernels.compiler.key import ROCM_PLACEHOLDER
from wheelfactory.kernels.compiler.record_calls import Job, Recording
from wheelfactory.kernels.compiler.store import Store
from wheelfactory.kernels.kernel_set import KernelSet, Proof, proof_path, sample_sources
from wheelfactory.kernels.setup_env import store_folder
from wheelfactory.matrix.facts import Context

EXECUTE = PACKAGE_DIR / "emulator" / "execute_calls.py"
_PART = 16
"""Calls that one process executes: about 10 seconds, which is what a call that is ended loses on each core."""


@dataclass(frozen=True)
class Descriptor:
    """A kernel of a set: its source and code object, and the bytes of each argument."""

    source: str
    code: Path
    sizes: tuple[str, ...]


@dataclass(frozen=True)
class _Proving:
    """A set to prove: its kernels by name, and the stores of its device code and of its host code."""

    kernel_set: KernelSet
    device: Store
    host: Store
    descriptors: Mapping[str, Descriptor]


def prove_kernels(
    executor: Executor,
    kernel_set: KernelSet,
    host_sets: Iterable[KernelSet],
    folder: Path,
    report_progress: ProgressCallback,
    *,
    every: bool = False,
    context: Context,
) -> Path:
    """Execute the set's kernels, write the proof beside the set's archive in `folder`, and return its path.

    `every` kernel that the bindings can call, else a sample. What ran is cached, so an ended call continues.

    `folder` must have the archives of the set, and of one of `host_sets`, which have the host code of the same sources;
    shards are merged. Raises as `merge_set` does if one is missing, `InputError` for a set without device code,
    `BuildError` if the calls cannot be recorded, or if a kernel computes something wrong.
    """
    host_set = next((each for each in host_sets if find_archives(folder, each.id)), None)
    if host_set is None:
        hint = f"name the set of an arch, and put the archives of its host code into {folder}"
        raise InputError("no host code to execute the kernels with", kernel_set.id, hint)
    device, host = (_open_store(item, folder, context.cache) for item in (kernel_set, host_set))
    proving = _Proving(kernel_set, device, host, read_descriptors(device))
    sources = sorted({each.source for each in proving.descriptors.values()})  # those of other archs have no kernel
    calls = [call for source in (sources if every else sample_sources(sources)) for call in suggest_calls(source)]
    with scratch_dir(context.cache) as scratch:
        recorded = _record(executor, proving, calls, scratch, report_progress, context)
        chosen = choose_calls(calls, recorded)
        if any(each.error == record_calls.NOT_MODELLED for each in recorded.values()):
            logger.warning("no backward kernel was executed: %s", record_calls.NOT_MODELLED)
        reports: list[CallReport] = []
        for done in _execute_parts(chosen, recorded, proving.descriptors, scratch, context):
            reports += done
            report_progress(len(reports), len(chosen), "calls executed")
    return _write_proof(proving, reports, folder)


def _write_proof(proving: _Proving, reports: Sequence[CallReport], folder: Path) -> Path:
    """Write the proof of a set, log it, and return its path. Raises `BuildError` if a kernel is wrong."""
    proof = Proof(
        set=proving.kernel_set.id,
        key=proving.device.key.digest,
        host_key=proving.host.key.digest,
        executed_by=emulator_id(),
        archs=proving.kernel_set.archs,
        kernels=len(proving.descriptors),
        executed={name: proving.descriptors[name].source for report in reports for name in report.kernels},
        calls=tuple(reports),
        faults=tuple(fault for report in reports for fault in report.faults),
    )
    path = proof_path(folder, proof.set, proof.key)
    write_atomic(path, json.dumps(asdict(proof), indent=1, sort_keys=True).encode() + b"\n")
    logger.info("%s", proof)
    for reason in sorted({report.not_run for report in proof.calls if report.not_run}):
        logger.warning("%s", reason)
    if proof.faults:
        raise BuildError("kernels compute something wrong", "; ".join(proof.faults[:3]), f"all of them are in {path}")
    return path


def _open_store(kernel_set: KernelSet, folder: Path, cache: Path) -> Store:
    """Merge the archives of a set, and open the store with its objects. Raises as `merge_set` does."""
    archive = merge_set(folder, kernel_set.id, store_folder(cache))
    return Store.open(store_folder(cache), read_archive_manifest(archive).key)


def read_descriptors(store: Store) -> dict[str, Descriptor]:
    """Return every kernel of a set for one arch, by name."""
    found = {}
    for source in store.key.sources:
        code = store.object_path(source)
        for name, kernel in read_kernels(code.read_bytes()).items():
            sizes = (str(each.size) for each in kernel.arguments if not each.kind.startswith("hidden_"))
            found[name] = Descriptor(source, code, tuple(sizes))
    return found


def _record(
    executor: Executor,
    proving: _Proving,
    calls: Iterable[Call],
    scratch: Path,
    report_progress: ProgressCallback,
    context: Context,
) -> dict[str, Recording]:
    """Make the calls on the build host, with the set's host code; return what each launched. Raises `BuildError`."""
    kernel_set, host, descriptors = proving.kernel_set, proving.host, proving.descriptors
    recipe, source = choose_recipe(executor, kernel_set.cells, context=context)
    build_host = executor.prepare_host(recipe.cell, report_progress)
    (arch,) = kernel_set.archs
    objects = [host.object_path(name) for name in host.key.sources]
    rocm = f"{build_host.machine.rocm_path}/"
    job = Job(
        hipcc=f"{rocm}bin/hipcc",
        flags=tuple(flag.replace(f"{ROCM_PLACEHOLDER}/", rocm) for flag in host.key.parts["flags"]),
        root=str(unpack_source(source, scratch / "source")),
        objects=tuple(map(str, objects)),
        arch=arch,
        kernels={name: (str(each.code), *each.sizes) for name, each in descriptors.items()},
        calls={each.name: each.request() for call in calls for each in (call, call.forward) if each},
        output=str(scratch),
    )
    job_file, log = scratch / "record.json", log_path(context.cache, f"{kernel_set.id}-calls")
    job_file.write_text(json.dumps(asdict(job)))
    command = BuildCommand(
        name=log.stem,
        argv=(str(build_host.python), "-ISB", str(Path(record_calls.__file__)), str(job_file)),
        environ=build_host.environ,
        log=log,
        reads=(PACKAGE_DIR, *{path.parent for path in (*objects, *(each.code for each in descriptors.values()))}),
        writes=(scratch,),
    )
    build_host.run(command, report_progress)
    recorded = parse_json((scratch / "launches.json").read_bytes())
    return {name: read_record(Recording, found) for name, found in recorded.items()}


def choose_calls(calls: Iterable[Call], recorded: Mapping[str, Recording]) -> list[Call]:
    """Choose the calls that launch a kernel which no earlier one launches; one that failed launches none."""
    chosen, seen = [], set[str]()
    for call in calls:
        runs = [recorded[each.name] for each in (call.forward, call) if each]
        launched = {line.split()[1] for run in runs for line in run.launches}
        if launched - seen and not any(run.error for run in runs):
            chosen.append(call)
            seen |= launched
    return chosen


def _execute_parts(
    calls: Sequence[Call],
    recorded: Mapping[str, Recording],
    descriptors: Mapping[str, Descriptor],
    scratch: Path,
    context: Context,
) -> Iterator[list[CallReport]]:
    """Execute parts of calls on all cores, and yield their reports in order; after an error no further one begins."""
    parts = [calls[at : at + _PART] for at in range(0, len(calls), _PART)]
    codes = {name: each.code for name, each in descriptors.items()}
    with ThreadPoolExecutor(context.host.cores) as pool:
        try:
            yield from pool.map(partial(execute_calls, recorded, codes, scratch, context.cache), parts)
        finally:
            pool.shutdown(cancel_futures=True)


def execute_calls(
    recorded: Mapping[str, Recording], codes: Mapping[str, Path], scratch: Path, cache: Path, calls: Sequence[Call]
) -> list[CallReport]:
    """Return a report for each call: from the cache, or executed in a Python with numpy. Raises `BuildError`."""
    launches = {each.name: recorded[each.name].launches for call in calls for each in (call, call.forward) if each}
    launched = sorted({line.split()[1] for lines in launches.values() for line in lines})
    job = {"calls": [asdict(call) for call in calls], "launches": launches}
    digests = [file_sha256(codes[name]) for name in launched]
    key = content_key(json.dumps([emulator_id(), job, digests]))
    kept = cache / "proofs" / f"calls-{key}.json"
    with suppress(OSError, TypeError, ValueError):  # missing or damaged: executed again
        return _read_reports(kept.read_bytes())
    file = scratch / f"{kept.stem}.json"
    files = {name: (str(codes[name]), str(scratch / f"{codes[name].name}.s")) for name in launched}
    file.write_text(json.dumps({**job, "kernels": files}))
    done = run([make_numpy_environment(cache).python, "-I", "-B", EXECUTE, file], cwd=scratch)
    if done.returncode:
        raise BuildError("the emulator ended", failure_reason(done), "run the same command again")
    write_atomic(kept, done.stdout.encode())
    return _read_reports(done.stdout.encode())


def _read_reports(data: bytes) -> list[CallReport]:
    return [read_record(CallReport, report) for report in parse_json(data)]
