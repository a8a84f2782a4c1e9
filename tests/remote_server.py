"""A server of the Remote Execution API in this process, with one worker, which fails in the ways that a test asks for.

It holds blobs and results in memory, runs commands for real in a folder of their inputs, or gives a test's own result.
"""

from __future__ import annotations

import asyncio
import hashlib
import subprocess
import threading
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc
import grpc.aio

from wheelfactory_remote import messages

_STAGES = messages.ExecuteOperationMetadata
Run = Callable[[messages.Command, Mapping[str, bytes]], "tuple[int, bytes]"]
"""What a worker does with a command and its input files: the exit status, and the output file or what it printed."""


def run_command(command: messages.Command, files: Mapping[str, bytes]) -> tuple[int, bytes]:
    """Run a command as a worker does."""
    with TemporaryDirectory() as folder:
        for name, data in files.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        environ = {item.name: item.value for item in command.environment_variables}
        done = subprocess.run(list(command.arguments), cwd=folder, env=environ, capture_output=True)
        output = Path(folder, command.output_paths[0])
        return done.returncode, done.stderr if done.returncode else output.read_bytes()


@dataclass
class RemoteServer:
    """What the server holds, what it was asked, and how it behaves. Attributes can change while it runs."""

    run: Run = run_command
    blobs: dict[str, bytes] = field(default_factory=dict)
    results: dict[str, messages.ActionResult] = field(default_factory=dict)
    operations: dict[str, str] = field(default_factory=dict)
    """Actions by the name of their execution."""
    calls: Counter[str] = field(default_factory=Counter)
    executed: list[messages.Command] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    peak: int = 0
    """The largest number of executions that waited or ran at the same time."""
    streams: int = 0
    token: str = ""
    """Refuse calls without this token."""
    workers: int = 4
    """Number of compiles at the same time; 0 to queue for ever."""
    lose_streams: int = 0
    """The number of streams to break once the operation is named."""
    forget: bool = False
    """Whether to forget the operation of a broken stream."""
    drop_inputs: int = 0
    """The number of executions before which all inputs are removed."""
    drop_outputs: int = 0
    """The number of outputs to lose."""
    omit_outputs: int = 0
    """The number of results without an output."""
    damage_outputs: int = 0
    """The number of outputs to damage."""
    failing: dict[str, grpc.StatusCode] = field(default_factory=dict)
    """The code with which a method fails, by its name."""
    garbage: str = ""
    """The method whose answers are bytes that are no message."""
    change: Callable[[messages.ExecuteResponse], None] = lambda _: None
    """What happens to the result of an execution before it is sent."""
    change_operation: Callable[[messages.Operation], None] = lambda _: None
    """The same to the message with the result."""
    parts: Callable[[bytes], Iterable[bytes]] = lambda data: [
        data[at : at + (1 << 20)] for at in range(0, len(data), 1 << 20)
    ]
    """The pieces in which a blob is read."""
    requeue: bool = False
    """Whether each worker dies with its compile, which is then queued again for ever."""
    ignore_skip: bool = False
    """Whether to take results from the cache although the client asks for an execution."""
    hold: threading.Event = field(default_factory=threading.Event)
    """Executions wait for it."""
    port: int = 0

    def __post_init__(self) -> None:
        self.hold.set()
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)

    def start(self, credentials: grpc.ServerCredentials | None = None) -> None:
        """Listen on `port`, or on a free one."""

        async def start() -> None:
            self.server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
            self.slots = asyncio.Semaphore(self.workers)
            self.server.add_generic_rpc_handlers(_handlers(self))
            address = f"127.0.0.1:{self.port}"
            self.port = (
                self.server.add_secure_port(address, credentials)
                if credentials
                else self.server.add_insecure_port(address)
            )
            await self.server.start()

        asyncio.run_coroutine_threadsafe(start(), self.loop).result(10)

    def stop(self) -> None:
        """Break all connections."""
        asyncio.run_coroutine_threadsafe(self.server.stop(0), self.loop).result(10)

    @property
    def url(self) -> str:
        """The address without encryption."""
        return f"grpc://127.0.0.1:{self.port}"

    def files(self, digest: messages.Digest, prefix: str = "") -> dict[str, bytes]:
        """The files of an input root."""
        directory = messages.Directory.FromString(self.blobs[digest.hash])
        names = [node.name for node in directory.files]
        assert names == sorted(names)
        found = {f"{prefix}{node.name}": self.blobs[node.digest.hash] for node in directory.files}
        for inner in directory.directories:
            found |= self.files(inner.digest, f"{prefix}{inner.name}/")
        return found

    def keep(self, data: bytes) -> messages.Digest:
        """Store a blob."""
        name = hashlib.sha256(data).hexdigest()
        self.blobs[name] = data
        return messages.Digest(hash=name, size_bytes=len(data))

    # methods of the API

    async def get_capabilities(self, _request: Any, _context: Any) -> messages.ServerCapabilities:
        answer = messages.ServerCapabilities()
        answer.execution_capabilities.exec_enabled = True
        return answer

    async def find_missing_blobs(self, request: Any, _context: Any) -> messages.FindMissingBlobsResponse:
        missing = [digest for digest in request.blob_digests if digest.hash not in self.blobs]
        return messages.FindMissingBlobsResponse(missing_blob_digests=missing)

    async def batch_update_blobs(self, request: Any, _context: Any) -> messages.BatchUpdateBlobsResponse:
        response = messages.BatchUpdateBlobsResponse()
        for item in request.requests:
            assert self.keep(item.data) == item.digest
            response.responses.add(digest=item.digest)
        return response

    async def write(self, requests: Any, _context: Any) -> messages.WriteResponse:
        data, name, is_finished = b"", "", False
        async for request in requests:
            assert request.write_offset == len(data)
            data, name, is_finished = data + request.data, request.resource_name or name, request.finish_write
        assert is_finished
        digest = self.keep(data)
        assert name.endswith(f"/blobs/{digest.hash}/{digest.size_bytes}")
        return messages.WriteResponse(committed_size=len(data))

    async def read(self, request: Any, context: Any) -> AsyncIterator[messages.ReadResponse]:
        name = request.resource_name.split("/")[-2]
        if name not in self.blobs:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no blob {name[:8]}")
        for data in self.parts(self.blobs[name]):
            yield messages.ReadResponse(data=data)

    async def get_action_result(self, request: Any, context: Any) -> messages.ActionResult:
        if request.action_digest.hash not in self.results:
            await context.abort(grpc.StatusCode.NOT_FOUND, "not cached")
        return self.results[request.action_digest.hash]

    async def execute(self, request: Any, context: Any) -> AsyncIterator[messages.Operation]:
        if self.drop_inputs:
            self.drop_inputs -= 1
            self.blobs.clear()
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "missing inputs")
        if request.action_digest.hash in self.results and (self.ignore_skip or not request.skip_cache_lookup):
            result = self.results[request.action_digest.hash]
            yield _done("cached", messages.ExecuteResponse(result=result, cached_result=True))
            return
        name = str(uuid.uuid4())
        self.operations[name] = request.action_digest.hash
        self.streams += 1
        self.peak = max(self.peak, self.streams)
        async for operation in self._operate(name, context):
            yield operation
        self.streams -= 1

    async def wait_execution(self, request: Any, context: Any) -> AsyncIterator[messages.Operation]:
        if request.name not in self.operations:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such operation")
        async for operation in self._operate(request.name, context):
            yield operation

    async def cancel_operation(self, request: Any, _context: Any) -> messages.Empty:
        self.cancelled.append(request.name)
        return messages.Empty()

    async def _operate(self, name: str, context: Any) -> AsyncIterator[messages.Operation]:
        yield _operation(name, _STAGES.QUEUED)
        if self.lose_streams:
            self.lose_streams -= 1
            if self.forget:
                del self.operations[name]
            await context.abort(grpc.StatusCode.UNAVAILABLE, "connection lost")
        async with self.slots:
            yield _operation(name, _STAGES.EXECUTING)
            while self.requeue:
                yield _operation(name, _STAGES.QUEUED)
                await asyncio.sleep(0.1)
            while not self.hold.is_set():
                await asyncio.sleep(0.02)
            key = self.operations[name]
            action = messages.Action.FromString(self.blobs[key])
            command = messages.Command.FromString(self.blobs[action.command_digest.hash])
            self.executed.append(command)
            files = self.files(action.input_root_digest)
            code, data = await asyncio.get_running_loop().run_in_executor(None, self.run, command, files)
        self.results[key] = result = messages.ActionResult(exit_code=code)
        result.execution_metadata.worker = "worker1"
        if code:
            result.stderr_raw = data
        else:
            result.output_files.add(path=command.output_paths[0], digest=self.keep(data))
            self._spoil(result)
        response = messages.ExecuteResponse(result=result)
        self.change(response)
        operation = _done(name, response)
        self.change_operation(operation)
        yield operation

    def _spoil(self, result: messages.ActionResult) -> None:
        name = result.output_files[0].digest.hash
        if self.omit_outputs:
            self.omit_outputs -= 1
            del result.output_files[:]
        elif self.drop_outputs:
            self.drop_outputs -= 1
            del self.blobs[name]
        elif self.damage_outputs:
            self.damage_outputs -= 1
            self.blobs[name] = self.blobs[name][:-1] + b"!"


def _operation(name: str, stage: Any) -> messages.Operation:
    operation = messages.Operation(name=name)
    operation.metadata.Pack(messages.ExecuteOperationMetadata(stage=stage))
    return operation


def _done(name: str, response: messages.ExecuteResponse) -> messages.Operation:
    operation = _operation(name, _STAGES.COMPLETED)
    operation.done = True
    operation.response.Pack(response)
    return operation


@contextmanager
def remote_server(**settings: Any) -> Iterator[RemoteServer]:
    """Run a server for the duration of the block."""
    server = RemoteServer(**settings)
    server.thread.start()
    try:
        server.start()
        yield server
        server.stop()
    finally:
        server.loop.call_soon_threadsafe(server.loop.stop)
        server.thread.join()
        server.loop.close()


def _handlers(server: RemoteServer) -> tuple[grpc.GenericRpcHandler, ...]:
    """The methods of the server, each of which counts its calls and verifies the token."""
    unary, to_stream = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
    from_stream = grpc.stream_unary_rpc_method_handler
    re = "build.bazel.remote.execution.v2"
    cas, execution = f"{re}.ContentAddressableStorage", f"{re}.Execution"
    methods: tuple[tuple[str, str, Any, Any, Any], ...] = (
        (f"{re}.Capabilities", "GetCapabilities", unary, messages.GetCapabilitiesRequest, server.get_capabilities),
        (cas, "FindMissingBlobs", unary, messages.FindMissingBlobsRequest, server.find_missing_blobs),
        (cas, "BatchUpdateBlobs", unary, messages.BatchUpdateBlobsRequest, server.batch_update_blobs),
        (f"{re}.ActionCache", "GetActionResult", unary, messages.GetActionResultRequest, server.get_action_result),
        (execution, "Execute", to_stream, messages.ExecuteRequest, server.execute),
        (execution, "WaitExecution", to_stream, messages.WaitExecutionRequest, server.wait_execution),
        (
            *("google.longrunning.Operations", "CancelOperation", unary, messages.CancelOperationRequest),
            server.cancel_operation,
        ),
        ("google.bytestream.ByteStream", "Read", to_stream, messages.ReadRequest, server.read),
        ("google.bytestream.ByteStream", "Write", from_stream, messages.WriteRequest, server.write),
    )
    return tuple(
        grpc.method_handlers_generic_handler(
            service,
            {
                name: kind(
                    _checked(server, name, method, is_stream=kind is to_stream),
                    request_deserializer=request.FromString,
                    response_serializer=lambda message, name=name: (
                        b"\xff" if name == server.garbage else message.SerializeToString()
                    ),
                )
            },
        )
        for service, name, kind, request, method in methods
    )


def _checked(server: RemoteServer, name: str, method: Any, *, is_stream: bool) -> Any:
    async def check(context: Any) -> None:
        server.calls[name] += 1
        if server.token and ("authorization", f"Bearer {server.token}") not in context.invocation_metadata():
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "token expired")
        if name in server.failing:
            await context.abort(server.failing[name], f"no {name}")

    async def unary(request: Any, context: Any) -> Any:
        await check(context)
        return await method(request, context)

    async def stream(request: Any, context: Any) -> Any:
        await check(context)
        async for answer in method(request, context):
            yield answer

    return stream if is_stream else unary
