"""Have the missing kernels of a build compiled on a cluster, and save their objects in the store."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from wheelfactory.core.errors import BuildError
from wheelfactory.core.files import scratch_dir
from wheelfactory.core.progress import ProgressCallback, logger
from wheelfactory.kernels.compiler.costs import Ledger, predict_cost
from wheelfactory.kernels.compiler.flags import kernel_command
from wheelfactory.kernels.compiler.store import ObjectRecord, Store
from wheelfactory.kernels.compiler.survey import PLACEHOLDER, PLACEHOLDER_BYTES, Survey, SurveyPart
from wheelfactory.kernels.remote import messages_pb2 as messages
from wheelfactory.kernels.remote.action import TIMEOUT_S, RemoteAction, make_action, make_folder
from wheelfactory.kernels.remote.client import Client, ClusterLostError, MissingInputsError, ResultError
from wheelfactory.kernels.remote.samples import NOTHING_FILLED, Filled, Sample
from wheelfactory.kernels.remote.settings import Remote

COMPILER_PROPERTY = "hip-compiler"
"""The platform property of workers that holds `worker_compiler`."""

QUEUED_AHEAD = 32
"""Compiles that wait at the server, so that no worker waits for this machine. What runs comes on top of that."""

MAX_REFUSED = 3
"""Unusable results after which the cluster is not used any more."""

_EXECUTING = messages.ExecuteOperationMetadata.EXECUTING


@dataclass(frozen=True)
class Kernel:
    """One compile to have done."""

    store: Store
    part: SurveyPart
    name: str
    predicted_s: float


@dataclass
class _Running:
    kernel: Kernel
    since: float
    """When it was started, or was first executing; seconds of the monotonic clock."""
    executing: bool = False


def find_missing_kernels(survey: Survey, kernels: Path, ledger: Ledger) -> list[Kernel]:
    """List the compiles whose objects the store lacks, the most expensive first."""
    found = []
    for part in survey.parts:
        store = Store(kernels, part.key)
        store.create()
        for name in store.find_missing(part.sources):
            predicted_s = predict_cost(ledger, name, part.targets, survey.compiler).cpu_s
            found.append(Kernel(store, part, name, predicted_s))
    return sorted(found, key=lambda kernel: (-kernel.predicted_s, kernel.name, kernel.part.targets))


def fill_store(
    survey: Survey,
    missing: Sequence[Kernel],
    remote: Remote,
    report_progress: ProgressCallback,
    *,
    deadline: float | None = None,
) -> Filled:
    """Compile these kernels on the cluster and save their objects, except those of the samples.

    What the cluster cannot do is logged and left for this machine. Raises `InputError` if the server refuses access or
    executes nothing, `BuildError` if it does not answer at all.
    """
    stores = tuple({kernel.store.folder: kernel.store for kernel in missing}.values())
    if not missing:
        return NOTHING_FILLED
    return Filled(stores, asyncio.run(_Fill(survey, missing, remote, report_progress, deadline).run()))


@dataclass
class _Fill:
    survey: Survey
    missing: Sequence[Kernel]
    remote: Remote
    report_progress: ProgressCallback
    deadline: float | None
    done: int = 0
    cached: int = 0
    refused: int = 0
    made: Counter[str] = field(default_factory=Counter)
    """The number of objects by worker."""
    running: dict[asyncio.Task[None], _Running] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)

    async def run(self) -> list[Sample]:
        """Compile all. Raises the errors of `fill_store`."""
        root = Path(self.survey.root)
        headers = {name: (root / name).read_bytes() for name in self.survey.headers}
        self.headers = make_folder({**headers, PLACEHOLDER: PLACEHOLDER_BYTES})
        count = min(self.remote.sample, len(self.missing))
        self.sampled = {id(kernel) for kernel in secrets.SystemRandom().sample(list(self.missing), count)}
        kernels = self.missing[0].store.folder.parent
        async with Client(self.remote) as self.client:
            try:
                await self.client.check()
            except ClusterLostError as error:
                hint = "check the address and the server; without --remote, this machine compiles everything"
                raise BuildError("no Remote Execution server", f"{self.remote.address}: {error}", hint) from None
            with scratch_dir(kernels) as self.scratch:
                await self._run_all()
        self._log_end()
        return self.samples

    async def _run_all(self) -> None:
        watch = asyncio.create_task(self.client.watch())
        try:
            await self.client.upload(self.headers.blobs())
            await self._run_kernels(watch)
        except (ClusterLostError, ResultError) as error:
            logger.warning("the cluster %s is not used any more: %s", self.remote.address, error)
        finally:
            tasks = [watch, *self.running]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _run_kernels(self, watch: asyncio.Task[None]) -> None:
        waiting = deque(self.missing)
        self.last_progress = time.monotonic()
        while waiting or self.running:
            queued = sum(not running.executing for running in self.running.values())
            for _ in range(min(QUEUED_AHEAD - queued, len(waiting))):
                running = _Running(waiting.popleft(), time.monotonic())
                self.running[asyncio.create_task(self._compile(running))] = running
            ended, _ = await asyncio.wait({watch, *self.running}, timeout=1, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                if task is watch:
                    task.result()  # raises
                    continue
                self.last_progress = time.monotonic()
                running = self.running.pop(task)
                try:
                    task.result()
                except ResultError as error:
                    self._note_refused(running.kernel, error)
            self._require_progress()
            self.report_progress(self.done, len(self.missing), self._note())

    def _require_progress(self) -> None:
        """Raise `ClusterLostError` if nothing is to be expected of the cluster."""
        now = time.monotonic()
        if self.deadline is not None and time.time() > self.deadline:
            raise ClusterLostError("the time limit is reached")
        executing = [running for running in self.running.values() if running.executing]
        if self.running and not executing and now - self.last_progress > self.remote.no_worker_s:
            needed = ", ".join(f"{name}={value}" for name, value in self._properties().items())
            raise ClusterLostError(f"no worker took a compile for {self.remote.no_worker_s:.0f} s; they need {needed}")
        late = [running for running in executing if now - running.since > TIMEOUT_S + self.remote.no_worker_s]
        if late:
            raise ClusterLostError(f"{late[0].kernel.name} ran longer than its limit of {TIMEOUT_S // 3600} h")

    def _note_refused(self, kernel: Kernel, error: ResultError) -> None:
        self.refused += 1
        logger.warning("%s for %s: %s; compiling it on this machine", kernel.name, kernel.part.targets[0], error)
        if self.refused >= MAX_REFUSED:
            raise ClusterLostError(f"{self.refused} of its results were unusable, the last: {error}")

    async def _compile(self, running: _Running) -> None:
        """Have one kernel compiled, and save or sample its object. Raises `ResultError` if there is no usable one."""
        kernel = running.kernel
        action = self._action(kernel)
        skip_cache = self.remote.ignore_cache
        result = None if skip_cache else await self.client.find_result(action.action)
        if result is not None:
            try:
                data = await self._read_object(action, result)
            except ResultError:  # the server has kept a result longer than its object
                skip_cache = True
            else:
                self.cached += 1
                self._save(kernel, result, data)
                return
        result = await self._execute(action, running, skip_cache=skip_cache)
        self._save(kernel, result, await self._read_object(action, result))

    async def _execute(self, action: RemoteAction, running: _Running, *, skip_cache: bool) -> messages.ActionResult:
        def report_stage(stage: int) -> None:
            if stage == _EXECUTING and not running.executing:
                running.executing, running.since = True, time.monotonic()
                self.last_progress = running.since

        await self.client.upload(action.blobs)
        try:
            response = await self.client.execute(action.action, skip_cache=skip_cache, report_stage=report_stage)
        except MissingInputsError:
            self.client.forget_uploads()
            await self.client.upload([*self.headers.blobs(), *action.blobs])
            response = await self.client.execute(action.action, skip_cache=skip_cache, report_stage=report_stage)
        return response.result

    async def _read_object(self, action: RemoteAction, result: messages.ActionResult) -> bytes:
        worker = result.execution_metadata.worker or "a worker without a name"
        if result.exit_code:
            text = result.stderr_raw
            if not text and result.stderr_digest.size_bytes:
                text = await self.client.read(result.stderr_digest)
            lines = text.decode(errors="replace").strip().splitlines() or [f"exit status {result.exit_code}"]
            first = next((line for line in lines if "error:" in line), lines[-1])
            raise ResultError(f"failed on {worker}: {first[:200]}")
        outputs = [file for file in result.output_files if file.path == action.output]
        if not outputs:
            raise ResultError(f"{worker} made no object")
        data = await self.client.read(outputs[0].digest)
        # clang writes its version into the section .comment, lld keeps it
        if self.survey.comment.encode() not in data:
            raise ResultError(f"{worker} has another compiler than {self.survey.comment}")
        return data

    def _save(self, kernel: Kernel, result: messages.ActionResult, data: bytes) -> None:
        ran = result.execution_metadata
        start, end = (
            float(stamp.ToNanoseconds()) / 1e9
            for stamp in (ran.execution_start_timestamp, ran.execution_completed_timestamp)
        )
        worker, sha256 = ran.worker or "unnamed", hashlib.sha256(data).hexdigest()
        self.done += 1
        self.made[worker] += 1
        if id(kernel) in self.sampled:
            self.samples.append(Sample(kernel.store, kernel.name, sha256, worker))
            return
        path = self.scratch / f"{sha256}-{kernel.part.targets[0]}-{kernel.name[:100]}"
        path.write_bytes(data)
        # wall seconds for those of the CPU, which results do not carry; a record without memory is no measurement
        entry = ObjectRecord(
            *(kernel.name, kernel.part.targets, sha256, len(data)),
            cpu_s=max(0.0, end - start),
            peak_mib=0,
            start=start,
            end=end,
            made_by=worker,
        )
        kernel.store.save_object(path, entry)

    def _action(self, kernel: Kernel) -> RemoteAction:
        survey, source = self.survey, self.survey.sources[kernel.name]
        hipcc, *flags = kernel.part.command
        path, output = Path(survey.root, source), f"{kernel.name}.o"
        return make_action(
            kernel_command(hipcc, flags, str(path), output),
            survey.environ,
            self._properties(),
            self.headers,
            (source, path.read_bytes()),
            output,
        )

    def _properties(self) -> Mapping[str, str]:
        """What a worker must have."""
        return {COMPILER_PROPERTY: self.survey.worker_compiler, **self.remote.platform}

    def _note(self) -> str:
        executing = sum(running.executing for running in self.running.values())
        parts = [f"{len(self.running) - executing} queued", f"{executing} running", f"{self.cached} cached"]
        return ", ".join(parts) + self._workers()

    def _workers(self) -> str:
        shown = [f"{worker} {count}" for worker, count in self.made.most_common(4)]
        more = len(self.made) - len(shown)
        return f" ({', '.join(shown)}{f', {more} more workers' if more else ''})" if shown else ""

    def _log_end(self) -> None:
        left = len(self.missing) - self.done
        logger.info(
            "%d kernels from the cluster, %d of them from its cache%s; %.1f MB uploaded; %d left for this machine",
            *(self.done, self.cached, self._workers(), self.client.uploaded_bytes / 1e6, left),
        )
