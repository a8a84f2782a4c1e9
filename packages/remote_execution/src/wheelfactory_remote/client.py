"""A client of the Remote Execution API v2, for one run of compiles."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import grpc
import grpc.aio

from wheelfactory.core.errors import InputError
from wheelfactory_remote import messages
from wheelfactory_remote.action import Blob
from wheelfactory_remote.server import (
    Attempts,
    ClusterLostError,
    Remote,
    ResultError,
    make_method,
    open_channel,
    read_message,
    read_token,
    require_message,
    result_error,
)

BATCH_BYTES = 3 << 20
"""Bytes of blobs in one message; gRPC's default limit is 4 MiB. A larger blob is streamed."""

BATCH_COUNT = 400
"""Maximum number of blobs in one message."""

CALL_S = 60.0
"""Seconds after which a call that transfers little counts as lost."""

HEARTBEAT_S = 10.0
"""Seconds between two questions whether the server is there."""

RETRY_S = 1.0
"""Seconds between two attempts to reach a server."""

MAX_READS = 2
"""Objects that are read at the same time: gRPC holds a message of each, of up to 4 MiB, in memory."""

_Answer = TypeVar("_Answer")


class Client:
    """A connection to a server; use as an asynchronous context manager.

    It saves at most `max_bytes` of all that it reads, so that no server fills the disk.
    """

    def __init__(self, remote: Remote, max_bytes: int) -> None:
        self.remote = remote
        self._room = max_bytes
        self.uploaded_bytes = 0
        self._known: set[str] = set()
        self._channel = open_channel(remote)
        self._reads = asyncio.Semaphore(MAX_READS)
        self._token = b""

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close()

    async def check(self) -> None:
        """Ask the server for what it can do. Raises `InputError` if it executes nothing, and those of every call:

        `InputError` if it refuses the token, `ClusterLostError` if it does not answer for `Remote.away_s`.
        """
        query = messages.GetCapabilitiesRequest(instance_name=self.remote.instance)
        try:
            found = await self._call("GetCapabilities", query, messages.ServerCapabilities, HEARTBEAT_S)
        except ResultError:  # the method is optional
            return
        if not found.execution_capabilities.exec_enabled:
            hint = "use a server with workers, or its other instance: grpcs://HOST:PORT/INSTANCE"
            raise InputError("the server executes nothing", self.remote.address, hint)

    async def watch(self) -> None:
        """Poll the server until cancelled. Raises as `check`."""
        # a stream that says nothing for an hour may be a compile, or a connection that is dead
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            await self.check()

    async def upload(self, blobs: Iterable[Blob]) -> None:
        """Upload those blobs that the server lacks."""
        waiting = {blob.digest.hash: blob for blob in blobs if blob.digest.hash not in self._known}
        if not waiting:
            return
        query = messages.FindMissingBlobsRequest(
            instance_name=self.remote.instance, blob_digests=[blob.digest for blob in waiting.values()]
        )
        answer = await self._call("FindMissingBlobs", query, messages.FindMissingBlobsResponse)
        missing = [waiting[digest.hash] for digest in answer.missing_blob_digests if digest.hash in waiting]
        for blob in missing:
            if len(blob.data) > BATCH_BYTES:
                await self._retry(partial(self._write, blob))
        for batch in _batches([blob for blob in missing if len(blob.data) <= BATCH_BYTES]):
            await self._upload_batch(batch)
        self.uploaded_bytes += sum(len(blob.data) for blob in missing)
        self._known.update(waiting)

    def forget_uploads(self) -> None:
        """Assume nothing about what the server has: it may have removed blobs."""
        self._known.clear()

    async def find_result(self, action: Blob) -> messages.ActionResult | None:
        """The server's cached result of this action; None if it has none."""
        query = messages.GetActionResultRequest(instance_name=self.remote.instance, action_digest=action.digest)
        with contextlib.suppress(ResultError):
            return await self._call("GetActionResult", query, messages.ActionResult)
        return None

    async def execute(
        self, action: Blob, *, skip_cache: bool, report_stage: Callable[[int], None]
    ) -> messages.ExecuteResponse:
        """Execute an uploaded action, wait for its end, and call `report_stage` with each stage that it reaches.

        A lost connection is taken up again. If the caller is cancelled, so is the execution. Raises `ResultError` if
        the server cannot execute it.
        """
        request = messages.ExecuteRequest(
            instance_name=self.remote.instance, action_digest=action.digest, skip_cache_lookup=skip_cache
        )
        name, attempts = "", Attempts(self.remote, self._hide)
        try:
            while True:
                try:
                    async for operation in self._operations(request, name):
                        attempts.note_answer()
                        name = require_message(operation).name or name
                        if operation.done:
                            return _read_response(operation)
                        metadata = operation.metadata.value
                        report_stage(read_message(messages.ExecuteOperationMetadata, metadata).stage)
                except grpc.aio.AioRpcError as error:
                    if name and error.code() is grpc.StatusCode.NOT_FOUND:
                        name = ""  # the server has forgotten it, such as after a restart
                    else:
                        attempts.note_failure(error)
                await asyncio.sleep(RETRY_S)
        except asyncio.CancelledError:
            if name:
                await self._cancel(name)
            raise

    def _operations(self, request: messages.ExecuteRequest, name: str) -> Any:
        if name:
            return self._start("WaitExecution", messages.WaitExecutionRequest(name=name), messages.Operation, None)
        return self._start("Execute", request, messages.Operation, None)

    async def read(self, digest: messages.Digest, path: Path) -> None:
        """Save a blob to `path`, and verify it. Raises `ResultError` if it is missing or damaged."""
        if digest.size_bytes > self._room:
            raise ResultError(f"its object is too large: {digest.size_bytes} bytes")
        self._room -= max(0, digest.size_bytes)
        try:
            async with self._reads:
                found = await self._retry(partial(self._read, digest, path))
        except ResultError as error:
            raise ResultError(f"its object cannot be read ({error})") from None
        if found != (digest.size_bytes, digest.hash):
            raise ResultError("its object is damaged")

    async def _read(self, digest: messages.Digest, path: Path) -> tuple[int, str]:
        name = f"{self.remote.instance}/blobs/{digest.hash}/{digest.size_bytes}".lstrip("/")
        size, sha256 = 0, hashlib.sha256()
        stream = self._start("Read", messages.ReadRequest(resource_name=name), messages.ReadResponse, 10 * CALL_S)
        with path.open("wb") as file:
            async for part in stream:
                data = require_message(part).data
                size += len(data)
                if size > digest.size_bytes:
                    stream.cancel()
                    break
                sha256.update(data)
                file.write(data)
        return size, sha256.hexdigest()

    async def _write(self, blob: Blob) -> None:
        digest = blob.digest
        name = f"{self.remote.instance}/uploads/{uuid.uuid4()}/blobs/{digest.hash}/{digest.size_bytes}".lstrip("/")

        async def parts() -> AsyncIterator[messages.WriteRequest]:
            for at in range(0, len(blob.data), 1 << 20):
                data = blob.data[at : at + (1 << 20)]
                is_last = at + len(data) == len(blob.data)
                yield messages.WriteRequest(resource_name=name, write_offset=at, finish_write=is_last, data=data)

        await self._start("Write", parts(), messages.WriteResponse, 10 * CALL_S)

    async def _upload_batch(self, batch: list[Blob]) -> None:
        requests = [messages.BatchUpdateBlobsRequest.Request(digest=blob.digest, data=blob.data) for blob in batch]
        request = messages.BatchUpdateBlobsRequest(instance_name=self.remote.instance, requests=requests)
        answer = await self._call("BatchUpdateBlobs", request, messages.BatchUpdateBlobsResponse)
        refused = [response.status.message for response in answer.responses if response.status.code]
        if refused:
            raise ClusterLostError(f"it stores no files: {refused[0]}")

    async def _cancel(self, name: str) -> None:
        query = messages.CancelOperationRequest(name=name)
        call = asyncio.ensure_future(self._start("CancelOperation", query, messages.Empty, 5))
        while not call.done():
            # after SIGTERM the caller is cancelled twice, and the channel is closed when it ends
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({call})
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.CancelledError):
            call.result()  # the server may be away; its own limits end the execution then

    async def _call(self, name: str, query: object, answer: type[_Answer], timeout_s: float = CALL_S) -> _Answer:
        """Call a method that neither takes nor returns a stream, as `_retry` does."""
        return await self._retry(partial(self._start, name, query, answer, timeout_s))

    async def _retry(self, call: Callable[[], Awaitable[_Answer]]) -> _Answer:
        """Call until the server answers. Raises `ResultError` for an answer that is an error."""
        attempts = Attempts(self.remote, self._hide)
        while True:
            try:
                return require_message(await call())
            except grpc.aio.AioRpcError as error:
                attempts.note_failure(error)
                await asyncio.sleep(RETRY_S)

    def _start(self, name: str, query: object, answer: type[_Answer], timeout_s: float | None) -> Any:
        """Call a method once; `answer` is the class of the message, or of each in a stream, that it returns."""
        metadata = []
        if self.remote.token:
            self._token = read_token(self.remote.token).encode()
            metadata = [("authorization", f"Bearer {self._token.decode()}")]
        method = make_method(self._channel, name, answer, self._hide)
        return method(query, timeout=timeout_s, metadata=metadata)

    def _hide(self, answer: bytes) -> bytes:
        """Mask the token in an answer: a server can send it back, and messages and records quote answers."""
        return answer.replace(self._token, b"*" * len(self._token)) if self._token else answer


def _batches(blobs: Iterable[Blob]) -> Iterable[list[Blob]]:
    batch: list[Blob] = []
    size = 0
    for blob in blobs:
        if batch and (len(batch) == BATCH_COUNT or size + len(blob.data) > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(blob)
        size += len(blob.data)
    if batch:
        yield batch


def _read_response(operation: messages.Operation) -> messages.ExecuteResponse:
    response: messages.ExecuteResponse = read_message(messages.ExecuteResponse, operation.response.value)
    for status in (operation.error, response.status):
        if status.code:
            raise result_error(status.code, f"the server cannot execute it: {status.message or status.code}")
    return response
