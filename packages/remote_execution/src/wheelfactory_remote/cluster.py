"""Have the missing kernels of a build compiled on a cluster, save their objects in the store, and verify samples.

This is what wheelfactory asks of a cluster (`kernels.setup_env.Cluster`).
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from wheelfactory.core.errors import BuildError
from wheelfactory.core.files import scratch_dir
from wheelfactory.core.progress import ProgressCallback, logger
from wheelfactory.kernels.compiler.commands import PLACEHOLDER, PLACEHOLDER_BYTES
from wheelfactory.kernels.compiler.costs import Ledger
from wheelfactory.kernels.compiler.hipcc import kernel_command
from wheelfactory.kernels.compiler.survey import Survey
from wheelfactory.kernels.setup_env import ledger_path, store_folder
from wheelfactory_remote import messages
from wheelfactory_remote.action import TIMEOUT_S, RemoteAction, make_action, make_folder
from wheelfactory_remote.client import Client
from wheelfactory_remote.kernels import (
    NOTHING_FILLED,
    Filled,
    Kernel,
    Sample,
    find_missing_kernels,
    make_record,
    read_object,
    verify_samples,
    worker_name,
)
from wheelfactory_remote.server import ClusterLostError, MissingInputsError, Remote, ResultError

COMPILER_PROPERTY = "hip-compiler"
"""The platform property of workers that holds `worker_compiler`."""

QUEUED_AHEAD = 32
"""Compiles that wait at the server, so that no worker waits for this machine. What runs comes on top of that."""

MAX_REFUSED = 3
"""Unusable results after which the cluster is not used any more."""

SPARE_BYTES, SIZE_LIMIT = 1 << 30, 8
"""What all objects of a cluster may take on this disk: these bytes, and this many times their predicted sizes."""

_STAGES = messages.ExecuteOperationMetadata


@dataclass
class _Running:
    kernel: Kernel
    executing: bool = False
    taken_at: float | None = None
    """When a worker first took it, in seconds of the monotonic clock; None before."""

    def note_stage(self, stage: int) -> bool:
        """Note a stage of its execution; return whether a worker has taken it just now."""
        is_taken = stage == _STAGES.EXECUTING and not self.executing
        if is_taken:
            self.executing = True
            self.taken_at = self.taken_at or time.monotonic()
        elif stage == _STAGES.QUEUED:  # again, if its worker has died
            self.executing = False
        return is_taken


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
        max_bytes = SPARE_BYTES + SIZE_LIMIT * sum(kernel.predicted.size for kernel in self.missing)
        async with Client(self.remote, max_bytes) as self.client:
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
        self.waiting = deque(self.missing)
        self.last_progress = time.monotonic()
        while self.waiting or self.running:
            self._queue_more()
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

    def _queue_more(self) -> None:
        """Start compiles, so that `QUEUED_AHEAD` wait at the server."""
        queued = sum(not running.executing for running in self.running.values())
        for _ in range(min(QUEUED_AHEAD - queued, len(self.waiting))):
            running = _Running(self.waiting.popleft())
            self.running[asyncio.create_task(self._compile(running))] = running

    def _require_progress(self) -> None:
        """Raise `ClusterLostError` if nothing is to be expected of the cluster."""
        now = time.monotonic()
        if self.deadline is not None and time.time() > self.deadline:
            raise ClusterLostError("the time limit is reached")
        executing = [running for running in self.running.values() if running.executing]
        if self.running and not executing and now - self.last_progress > self.remote.no_worker_s:
            needed = ", ".join(f"{name}={value}" for name, value in self._properties().items())
            raise ClusterLostError(f"no worker took a compile for {self.remote.no_worker_s:.0f} s; they need {needed}")
        # counted from the first worker, so that a compile which kills each worker ends, too
        limit = TIMEOUT_S + self.remote.no_worker_s
        late = [running for running in self.running.values() if running.taken_at and now - running.taken_at > limit]
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
                saved = await self._read_object(kernel, result)
            except ResultError:  # the server has kept a result longer than its object
                skip_cache = True
            else:
                self._save(kernel, result, *saved, is_cached=True)
                return
        response = await self._execute(action, running, skip_cache=skip_cache)
        if skip_cache and response.cached_result:
            raise ResultError("the server took the result from its cache, and was told not to")
        saved = await self._read_object(kernel, response.result)
        self._save(kernel, response.result, *saved, is_cached=response.cached_result)

    async def _execute(self, action: RemoteAction, running: _Running, *, skip_cache: bool) -> messages.ExecuteResponse:
        def report_stage(stage: int) -> None:
            if running.note_stage(stage):
                self.last_progress = time.monotonic()
                self._queue_more()  # at once: an idle cluster takes what waits faster than the loop looks

        await self.client.upload(action.blobs)
        try:
            return await self.client.execute(action.action, skip_cache=skip_cache, report_stage=report_stage)
        except MissingInputsError:
            self.client.forget_uploads()
            await self.client.upload([*self.headers.blobs(), *action.blobs])
            return await self.client.execute(action.action, skip_cache=skip_cache, report_stage=report_stage)

    async def _read_object(self, kernel: Kernel, result: messages.ActionResult) -> tuple[Path, messages.Digest]:
        (target,) = kernel.part.targets
        path = self.scratch / f"{id(kernel)}.o"
        try:
            return path, await read_object(self.client, result, kernel.name, path, self.survey.comment, target)
        except BaseException:
            path.unlink(missing_ok=True)  # what is refused must not fill the disk
            raise

    def _save(
        self, kernel: Kernel, result: messages.ActionResult, path: Path, digest: messages.Digest, *, is_cached: bool
    ) -> None:
        entry = make_record(kernel.name, kernel.part.targets, result, digest, is_cached=is_cached)
        self.done += 1
        self.cached += is_cached
        self.made[worker_name(result)] += 1
        if id(kernel) in self.sampled:
            self.samples.append(Sample(kernel.store, kernel.name, entry.sha256, entry.made_by))
            return
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


@dataclass(frozen=True)
class RemoteCluster:
    """A `Cluster` behind a server of the Remote Execution API."""

    remote: Remote

    @contextmanager
    def fill_store(
        self, survey: Survey, cache: Path, report_progress: ProgressCallback, *, deadline: float | None
    ) -> Iterator[None]:
        """See `Cluster`."""
        ledger = Ledger.read(ledger_path(cache))
        missing = find_missing_kernels(survey, store_folder(cache), ledger, ignore_cache=self.remote.ignore_cache)
        filled = fill_store(survey, missing, self.remote, report_progress, deadline=deadline)
        try:
            yield
        finally:
            verify_samples(filled)
