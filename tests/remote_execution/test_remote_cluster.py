"""Kernels compiled through a server of the Remote Execution API, and how that ends if something goes wrong."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import repeat
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any

import grpc
import pytest

from code_object_bytes import code_object
from remote_server import RemoteServer, remote_server
from wheelfactory import cli
from wheelfactory.core.errors import BuildError, FactoryError, InputError
from wheelfactory.core.progress import ignore_progress
from wheelfactory.kernels.compiler.costs import Ledger
from wheelfactory.kernels.compiler.store import ObjectRecord, SetKey, Store
from wheelfactory.kernels.compiler.survey import Survey, SurveyPart
from wheelfactory_remote import client, cluster, messages
from wheelfactory_remote.action import Blob
from wheelfactory_remote.cluster import RemoteCluster, fill_store
from wheelfactory_remote.kernels import Kernel, find_missing_kernels
from wheelfactory_remote.server import Remote, parse_remote

COMMENT = "clang version 19.0.0"
NAMES = tuple(f"fmha_fwd_d{dim}_fp16_{kind}" for dim in (64, 128) for kind in ("batch", "group"))


def answer(command: messages.Command, files: Mapping[str, bytes]) -> tuple[int, bytes]:
    """An object that shows the command and the files that it was made of."""
    text = " ".join(command.arguments)
    return 0, code_object(arch_of(command), code=f"{COMMENT} {text} {sorted(files)}".encode())


def arch_of(command: messages.Command) -> str:
    """The arch that a command compiles for."""
    return next(word for word in command.arguments if word.startswith("--offload-arch=")).partition("=")[2]


@pytest.fixture
def survey(tmp_path: Path) -> Survey:
    """A build of `NAMES` for two archs."""
    root = tmp_path / "source"
    files = {"csrc/ck/ck.hpp": "// ck", "csrc/ck/inner/more.hpp": "// more"}
    for path, text in {**files, **{f"build/{name}.hip": f"// {name}" for name in NAMES}}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    parts = [
        SurveyPart(
            SetKey({"targets": [arch], "flags": []}, NAMES), ("/opt/rocm/bin/hipcc", f"--offload-arch={arch}"), NAMES
        )
        for arch in ("gfx90a", "gfx942")
    ]
    sources = {name: f"build/{name}.hip" for name in NAMES}
    return Survey(str(root), tuple(files), sources, "1" * 64, "2" * 64, COMMENT, {}, tuple(parts))


@pytest.fixture
def server() -> Iterator[RemoteServer]:
    with remote_server(run=answer) as running:
        yield running


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "RETRY_S", 0.05)
    monkeypatch.setattr(client, "HEARTBEAT_S", 0.2)


def remote_of(server: RemoteServer, **settings: object) -> Remote:
    return replace(parse_remote(server.url), **settings)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Site:
    """A machine that has `NAMES` compiled by a server."""

    server: RemoteServer
    survey: Survey
    folder: Path

    def kernels(self, name: str = "kernels") -> Path:
        """A folder of stores."""
        return self.folder / name

    def missing(self) -> list[Kernel]:
        """The compiles that have no object."""
        return find_missing_kernels(self.survey, self.kernels(), Ledger())

    def fill(self, to: str = "kernels", **settings: object) -> None:
        """Fill the stores in a folder, with other settings of the server."""
        fill_with(self.survey, remote_of(self.server, **settings), self.kernels(to))

    def filled(
        self, cache: str = "", *, deadline: float | None = None, **settings: object
    ) -> AbstractContextManager[None]:
        """Fill the store of a cache, the own folder unless it is named, as the factory asks for it."""
        cluster = RemoteCluster(remote_of(self.server, **settings))
        return cluster.fill_store(self.survey, self.folder / cache, ignore_progress, deadline=deadline)

    def records(self, of: str = "kernels") -> list[ObjectRecord]:
        """The intact objects in the stores of a folder."""
        stores = [Store(self.kernels(of), part.key) for part in self.survey.parts]
        return [entry for store in stores for entry in store.read_records().values() if store.has_object(entry)]


def fill_with(survey: Survey, remote: Remote, kernels: Path) -> None:
    fill_store(survey, find_missing_kernels(survey, kernels, Ledger()), remote, ignore_progress)


@pytest.fixture
def site(server: RemoteServer, survey: Survey, tmp_path: Path) -> Site:
    return Site(server, survey, tmp_path)


def test_each_kernel_is_compiled_for_each_target_and_saved_with_its_worker(site: Site) -> None:
    site.fill()
    found = site.records()
    assert sorted((entry.source, entry.targets) for entry in found) == sorted(
        (name, (arch,)) for name in NAMES for arch in ("gfx90a", "gfx942")
    )
    assert {entry.made_by for entry in found} == {"worker1"}


def test_an_action_is_a_relative_command_with_all_headers_one_source_and_the_compiler_of_the_build(
    server: RemoteServer, survey: Survey, tmp_path: Path
) -> None:
    remote = remote_of(server, platform={"container-image": "rocm"})
    fill_with(survey, remote, tmp_path / "kernels")
    command = next(command for command in server.executed if "--offload-arch=gfx942" in command.arguments)
    name = command.output_paths[0].removesuffix(".o")
    assert list(command.arguments) == [
        *("/opt/rocm/bin/hipcc", "--offload-arch=gfx942", f"-cuid={name}", "-x", "hip"),
        *("-c", f"build/{name}.hip", "-o", f"{name}.o"),
    ]
    properties = {item.name: item.value for item in command.platform.properties}
    assert properties == {"hip-compiler": survey.worker_compiler, "container-image": "rocm"}
    store = Store(tmp_path / "kernels", survey.parts[1].key)
    files = [f"build/{name}.hip", "csrc/ck/ck.hpp", "csrc/ck/inner/more.hpp", "placeholder"]
    assert f" {files}".encode() in store.object_path(name).read_bytes()


def test_the_most_expensive_kernel_is_first(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "QUEUED_AHEAD", 1)  # those that are sent together overtake each other
    site.server.workers = 1
    site.server.stop()
    site.server.start()
    site.fill()
    dims = ["_d128_" in command.output_paths[0] for command in site.server.executed]
    assert dims == [True] * 4 + [False] * 4


def test_a_second_run_takes_all_from_the_cache_of_the_server(site: Site) -> None:
    site.fill("one")
    count = len(site.server.executed)
    site.fill("two")
    assert (count, len(site.server.executed)) == (8, 8)
    assert [(entry.made_by, entry.cached) for entry in site.records("two")] == [("worker1", True)] * 8


def test_a_result_that_another_client_had_made_since_counts_as_cached(site: Site) -> None:
    site.fill("one")
    site.server.failing["GetActionResult"] = grpc.StatusCode.NOT_FOUND
    site.fill("two")
    assert all(entry.cached for entry in site.records("two"))


def test_headers_are_uploaded_once(site: Site) -> None:
    Path(site.survey.root, "csrc/ck/ck.hpp").write_bytes(os.urandom(5 << 20))
    site.fill("one")
    site.fill("two", ignore_cache=True)
    assert site.server.calls["Write"] == 1  # larger than a message


def test_what_the_server_has_removed_is_uploaded_again(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "QUEUED_AHEAD", 1)
    site.server.drop_inputs = 1
    site.fill()
    assert len(site.records()) == 8


def test_a_server_that_takes_no_files_is_not_used(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    site.server.blobs = None  # type: ignore[assignment]
    site.fill()
    assert "is not used any more: UNKNOWN" in caplog.text


@pytest.mark.parametrize("forget", [False, True])
def test_a_lost_stream_is_taken_up_again(site: Site, forget: bool) -> None:
    site.server.lose_streams, site.server.forget = 3, forget
    site.fill()
    assert len(site.records()) == 8
    assert site.server.calls["WaitExecution"] == 3
    assert site.server.calls["Execute"] == (11 if forget else 8)


def test_a_server_that_restarts_is_waited_for(site: Site) -> None:
    site.server.hold.clear()

    def restart() -> None:
        wait_until(lambda: site.server.calls["Execute"] > 0)
        site.server.stop()
        site.server.operations.clear()
        time.sleep(1)
        site.server.hold.set()
        site.server.start()

    thread = threading.Thread(target=restart)
    thread.start()
    site.fill()
    thread.join()
    assert len(site.records()) == 8


def test_many_actions_are_done_once_each_with_few_in_flight(site: Site) -> None:
    names = tuple(f"fmha_fwd_d64_fp16_{number}" for number in range(300))
    for name in names:
        Path(site.survey.root, f"build/{name}.hip").write_text(f"// {name}")
    part = replace(site.survey.parts[0], key=SetKey({"targets": ["gfx90a"], "flags": []}, names), sources=names)
    survey = replace(site.survey, sources={name: f"build/{name}.hip" for name in names}, parts=(part,))
    replace(site, survey=survey).fill()
    assert sorted(command.output_paths[0] for command in site.server.executed) == sorted(f"{name}.o" for name in names)
    assert site.server.peak <= cluster.QUEUED_AHEAD + site.server.workers


def test_a_compile_is_queued_as_soon_as_a_worker_takes_one(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "QUEUED_AHEAD", 1)
    site.server.workers = 8
    site.server.stop()
    site.server.start()
    site.server.hold.clear()
    loops: list[str] = []

    def report(_done: int, _total: int, note: str = "", /) -> None:
        loops.append(note)
        if note.startswith("0 queued, 8 running"):
            site.server.hold.set()

    fill_store(site.survey, site.missing(), remote_of(site.server), report)
    assert len([note for note in loops if ", 0 cached" in note and "(" not in note]) <= 5, loops


def test_tls_trusts_the_given_certificate_and_no_other(site: Site) -> None:
    key, certificate = site.folder / "key.pem", site.folder / "cert.pem"
    make = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost")
    names = ("-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", certificate)
    subprocess.run([*make, *names], check=True, capture_output=True)
    site.server.stop()
    site.server.port = 0
    site.server.start(grpc.ssl_server_credentials([(key.read_bytes(), certificate.read_bytes())]))
    remote = parse_remote(f"grpcs://localhost:{site.server.port}", ca=certificate)
    fill_with(site.survey, remote, site.folder / "kernels")
    assert len(site.records()) == 8
    with pytest.raises(BuildError, match="no Remote Execution server"):
        fill_with(site.survey, replace(remote, ca=None, away_s=1), site.folder / "other")


def test_the_messages_are_those_that_the_generator_makes_of_the_description(tmp_path: Path) -> None:
    folder = Path(str(messages.__file__)).parent
    options = ["--proto_path=.", f"--descriptor_set_out={tmp_path}/messages.pb", f"--pyi_out={tmp_path}"]
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *options, "messages.proto"], cwd=folder, check=True)
    assert (tmp_path / "messages.pb").read_bytes() == (folder / "messages.pb").read_bytes()
    assert (tmp_path / "messages_pb2.pyi").read_bytes() == (folder / "messages.pyi").read_bytes()


# endings


def test_without_a_worker_it_ends_and_says_which_properties_workers_need(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.server.workers = 0
    site.server.stop()
    site.server.start()
    site.fill(no_worker_s=1)
    assert "no worker took a compile for 1 s" in caplog.text
    assert f"hip-compiler={site.survey.worker_compiler}" in caplog.text
    assert site.records() == []
    assert len(site.server.cancelled) == 8


def test_workers_that_die_with_their_compiles_end_it(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    site.server.requeue = True
    site.fill(no_worker_s=1)
    assert "no worker took a compile for 1 s" in caplog.text
    assert len(site.server.cancelled) == 8


@pytest.mark.parametrize("method", ["FindMissingBlobs", "Execute", "Read"])
def test_a_part_of_the_server_that_is_away_ends_it_though_the_rest_answers(
    site: Site, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    site.server.failing[method] = grpc.StatusCode.UNAVAILABLE
    site.fill(away_s=1)
    assert f"is not used any more: it did not answer for 1 s: no {method}" in caplog.text


def test_a_busy_server_is_waited_for_as_long_as_for_a_worker(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    site.server.failing["Execute"] = grpc.StatusCode.RESOURCE_EXHAUSTED
    thread = start_when(lambda: site.server.calls["Execute"] > 8 * 5, site.server.failing.clear)
    site.fill("one", away_s=0.1)
    thread.join()
    assert len(site.records("one")) == 8
    site.server.failing["FindMissingBlobs"] = grpc.StatusCode.RESOURCE_EXHAUSTED
    site.fill("two", away_s=0.1, no_worker_s=1)
    assert "is not used any more: it was busy for 1 s: no FindMissingBlobs" in caplog.text


def test_a_server_that_goes_away_ends_it_and_the_rest_is_left_for_this_machine(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "wheelfactory")
    site.server.hold.clear()
    thread = start_when(lambda: site.server.calls["Execute"] > 0, lambda: site.server.stop())
    site.fill(away_s=1)
    thread.join()
    site.server.hold.set()
    site.server.start()
    assert "is not used any more: it did not answer for 1 s" in caplog.text
    assert "8 left for this machine" in caplog.text


def test_a_server_that_is_not_there_is_an_error(survey: Survey, tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"no Remote Execution server: 127\.0\.0\.1:1: it did not answer for 1 s"):
        fill_with(survey, replace(parse_remote("grpc://127.0.0.1:1"), away_s=1), tmp_path / "kernels")


def test_an_object_of_another_compiler_is_refused(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    site.server.run = lambda _command, _files: (0, b"clang version 18.0.0")
    site.fill()
    assert f"not made by {COMMENT}; compiling it on this machine" in caplog.text
    assert f"{cluster.MAX_REFUSED} of its results were unusable" in caplog.text
    assert site.records() == []


OTHER_ARCH = {"gfx90a": "gfx942", "gfx942": "gfx90a"}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        pytest.param(lambda arch: COMMENT.encode(), "no ELF magic", id="text"),
        pytest.param(lambda arch: answer_for(OTHER_ARCH[arch]), "its header is of another arch", id="another arch"),
        pytest.param(lambda arch: answer_for(arch)[:-9], "outside the file", id="half of it"),
        pytest.param(lambda arch: answer_for(arch) + b"more", "4 bytes at", id="more than it"),
        pytest.param(
            lambda arch: answer_for(arch, b"\0__hip_cuid_5ca1ab1e\0"),
            "compiled from another source",
            id="another kernel",
        ),
    ],
)
def test_what_is_no_object_for_its_target_is_refused_and_not_saved(
    site: Site, caplog: pytest.LogCaptureFixture, make: Callable[[str], bytes], message: str
) -> None:
    """It names the compiler, which is all that was asked before."""
    site.server.run = lambda command, _files: (0, make(arch_of(command)))
    site.fill()
    assert "worker1 made no object for gfx9" in caplog.text
    assert message in caplog.text
    assert site.records() == []


def answer_for(arch: str, more: bytes = b"") -> bytes:
    """A code object of the compiler of the build."""
    return code_object(arch, code=COMMENT.encode() + more)


def result(field: str, value: object, *more: object) -> dict[str, object]:
    """A server that sets fields of each result; `more` are further fields and values."""

    def change(response: messages.ExecuteResponse) -> None:
        fields = (field, value, *more)
        for name, new in zip(fields[::2], fields[1::2], strict=True):
            *way, last = str(name).split(".")
            found: Any = response
            for part in way:
                found = found[0] if part == "0" else getattr(found, part)
            setattr(found, last, new)

    return {"change": change}


def operation(change: Callable[[Any], object]) -> dict[str, object]:
    """A server that changes the operation with each result."""
    return {"change_operation": change}


CODES = grpc.StatusCode
FILE, TIMES, OUTPUT = "result.output_files.0", "result.execution_metadata", "result.stderr_digest"
NO_MESSAGE = "the server sent something that is no message"
HOSTILE: tuple[tuple[str, dict[str, object], str], ...] = (
    ("garbage for FindMissingBlobs", {"garbage": "FindMissingBlobs"}, NO_MESSAGE),
    ("garbage for Execute", {"garbage": "Execute"}, NO_MESSAGE),
    ("garbage for Read", {"garbage": "Read"}, NO_MESSAGE),
    ("an empty response", operation(lambda found: found.ClearField("response")), "unnamed worker made no object"),
    ("an error beside the response", operation(lambda found: setattr(found.error, "code", 3)), "cannot execute it: 3"),
    ("a start in the year 1,116,918", result(f"{TIMES}.execution_start_timestamp.seconds", 1 << 45), "invalid times"),
    ("an end before all time", result(f"{TIMES}.execution_completed_timestamp.seconds", -(1 << 63)), "invalid times"),
    ("a path above", result(f"{FILE}.path", "../x.o"), "worker1 made no object"),
    ("a negative size", result(f"{FILE}.digest.size_bytes", -1), "is damaged"),
    ("a large size", result(f"{FILE}.digest.size_bytes", 1 << 24), "is damaged"),
    ("the largest size", result(f"{FILE}.digest.size_bytes", (1 << 63) - 1), "too large"),
    ("a path for a hash", result(f"{FILE}.digest.hash", "../../etc/passwd"), "cannot be read"),
    ("a negative status", result("result.exit_code", -1), "failed on worker1: exit status -1"),
    ("an output that is no text", result("result.exit_code", 1, "result.stderr_raw", b"\xff\r"), "worker1: \ufffd"),
    ("an output that is not there", result("result.exit_code", 1, f"{OUTPUT}.size_bytes", 9), "cannot be read"),
    ("a code of no cause", result("status.code", 13), "cannot execute it: 13"),
    ("no execution", {"failing": {"Execute": CODES.UNIMPLEMENTED}}, "UNIMPLEMENTED: no Execute"),
    ("half of each object", {"parts": lambda data: [data[: len(data) // 2]]}, "is damaged"),
    ("objects without end", {"parts": lambda data: repeat(data)}, "is damaged"),
)


@pytest.mark.parametrize(("behaviour", "message"), [row[1:] for row in HOSTILE], ids=[row[0] for row in HOSTILE])
def test_a_hostile_server_leaves_the_kernels_to_this_machine(
    site: Site, behaviour: dict[str, object], message: str, caplog: pytest.LogCaptureFixture
) -> None:
    for name, value in behaviour.items():
        setattr(site.server, name, value)
    site.fill()
    assert message in caplog.text
    assert "; compiling it on this machine" in caplog.text or "is not used any more" in caplog.text
    # the server of this test logs that its client went away
    assert [one for one in caplog.records if one.exc_info and one.name != "grpc._cython.cygrpc"] == []
    assert site.records() == []
    assert not list((site.folder / "kernels").rglob("*.o"))


def test_all_objects_together_have_a_limit(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    size = len(answer_for("gfx942"))
    site.server.run = lambda command, _files: (0, answer_for(arch_of(command)))
    monkeypatch.setattr(cluster, "SPARE_BYTES", 3 * size)
    monkeypatch.setattr(cluster, "SIZE_LIMIT", 0)
    monkeypatch.setattr(cluster, "MAX_REFUSED", 100)
    site.fill()
    assert len(site.records()) == 3
    assert f"its object is too large: {size} bytes" in caplog.text


def test_a_token_that_the_server_sends_back_is_masked(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    site.server.token = "S" * 20

    def send_back(response: messages.ExecuteResponse) -> None:
        response.result.execution_metadata.worker = site.server.token
        if "gfx942" in str(site.server.executed[-1]):
            response.status.code, response.status.message = 13, site.server.token

    token = site.folder / "token"
    token.write_text(site.server.token)
    site.server.change = send_back
    site.fill(token=token)
    assert f"cannot execute it: {'*' * 20}" in caplog.text
    assert site.server.token not in caplog.text
    assert {entry.made_by for entry in site.records()} <= {"*" * 20}


def fill_and_measure(survey: Survey, url: str, kernels: Path, peaks: Queue[int]) -> None:
    """Fill in a process of its own, and put its largest anonymous memory in MiB into `peaks`."""
    peak, done = 0, threading.Event()

    def measure() -> None:
        nonlocal peak
        while not done.wait(0.01):
            found = re.search(r"RssAnon:\s+(\d+)", Path("/proc/self/status").read_text())
            peak = max(peak, int(found[1]) >> 10 if found else 0)

    cluster.MAX_REFUSED = 100
    thread = threading.Thread(target=measure)
    thread.start()
    fill_with(survey, parse_remote(url), kernels)
    done.set()
    thread.join()
    peaks.put(peak)


def test_objects_are_not_held_in_memory(site: Site) -> None:
    data = COMMENT.encode() + bytes(80 << 20)
    site.server.run = lambda _command, _files: (0, data)
    context = multiprocessing.get_context("spawn")
    peaks: Queue[int] = context.Queue()
    child = context.Process(
        target=fill_and_measure, args=(site.survey, site.server.url, site.folder / "kernels", peaks)
    )
    child.start()
    child.join(300)
    assert site.server.calls["Read"] == 8
    assert peaks.get(timeout=10) < 300, "of 640 MiB"
    assert site.records() == []


@pytest.mark.parametrize(("fault", "message"), [("drop_outputs", "cannot be read"), ("damage_outputs", "is damaged")])
def test_a_missing_or_damaged_object_is_refused_and_made_anew_from_the_cache(
    site: Site, fault: str, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    setattr(site.server, fault, 2)
    site.fill()
    assert caplog.text.count(message) == 2
    assert len(site.records()) == 6
    site.fill()  # the cache still has those results
    assert len(site.records()) == 8


def test_a_compile_that_fails_is_left_for_this_machine_with_the_error_of_the_worker(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    def fail_one(command: messages.Command, files: Mapping[str, bytes]) -> tuple[int, bytes]:
        fails = command.output_paths[0] == f"{NAMES[0]}.o" and "--offload-arch=gfx942" in command.arguments
        return (1, b"hipcc: error: no space left\n") if fails else answer(command, files)

    site.server.run = fail_one
    site.fill()
    assert f"{NAMES[0]} for gfx942: failed on worker1: hipcc: error: no space left" in caplog.text
    assert len(site.records()) == 7


def test_a_refused_token_is_an_error_and_a_renewed_one_is_sent(site: Site) -> None:
    site.server.token = "new"  # noqa: S105
    token = site.folder / "token"
    token.write_text("old\n")
    remote = parse_remote(site.server.url, token=token)
    with pytest.raises(InputError, match=r"the server refuses access: .*: token expired"):
        fill_with(site.survey, remote, site.folder / "kernels")
    token.write_text("new\n")
    fill_with(site.survey, remote, site.folder / "kernels")
    assert len(site.records()) == 8


def test_a_token_refused_in_the_middle_is_an_error(server: RemoteServer, survey: Survey, tmp_path: Path) -> None:
    server.hold.clear()
    token = tmp_path / "token"
    token.write_text("old\n")
    thread = start_when(lambda: server.calls["Execute"] > 3, lambda: setattr(server, "token", "new"))
    with pytest.raises(InputError, match="the server refuses access"):
        fill_with(survey, parse_remote(server.url, token=token), tmp_path / "kernels")
    thread.join()
    server.hold.set()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_cancels_what_runs(site: Site, number: signal.Signals) -> None:
    before = signal.signal(signal.SIGTERM, cli._interrupt)  # as the command does
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a program started in the background ignores it
    site.server.hold.clear()

    def interrupt() -> None:
        time.sleep(1)  # an execution can be cancelled once its name has reached the client
        os.kill(os.getpid(), number)

    thread = start_when(lambda: site.server.calls["Execute"] >= 8, interrupt)
    with pytest.raises(KeyboardInterrupt):
        site.fill()
    signal.signal(signal.SIGTERM, before)
    thread.join()
    site.server.hold.set()
    assert len(site.server.cancelled) == 8


def test_an_execution_is_cancelled_though_its_caller_is_cancelled_twice(server: RemoteServer) -> None:
    """After SIGTERM asyncio cancels all tasks, and then the one that started an execution cancels it again."""

    async def interrupt() -> None:
        async with client.Client(remote_of(server), max_bytes=0) as connected:
            named = asyncio.Event()
            execution = asyncio.create_task(
                connected.execute(Blob(b"an action"), skip_cache=False, report_stage=lambda _: named.set())
            )
            await named.wait()
            for _ in range(2):
                execution.cancel()
                await asyncio.sleep(0)  # the task sees it
            await asyncio.wait({execution})
            assert execution.cancelled()

    server.hold.clear()
    asyncio.run(interrupt())
    server.hold.set()
    assert len(server.cancelled) == 1


def test_a_run_that_another_cell_stopped_ends_at_the_next_progress(site: Site) -> None:
    def report(_done: int, _total: int, _note: str = "", /) -> None:
        if site.server.calls["Execute"] == 8:
            raise FactoryError("interrupted", "another cell stopped the run", "run it again")

    site.server.hold.clear()
    missing = site.missing()
    with pytest.raises(FactoryError, match="interrupted"):
        fill_store(site.survey, missing, remote_of(site.server), report)
    site.server.hold.set()
    assert len(site.server.cancelled) == 8


def test_it_ends_at_the_time_limit(site: Site) -> None:
    site.server.hold.clear()
    with site.filled(deadline=time.time() + 0.5):
        site.server.hold.set()
    assert len(site.server.cancelled) == 8


# trust


def test_with_the_cache_ignored_the_server_is_told_to_execute_all_anew(site: Site) -> None:
    site.fill("one")
    site.fill("two", ignore_cache=True)
    assert len(site.server.executed) == 16
    assert not any(entry.cached for entry in site.records("two"))


def test_with_the_cache_ignored_objects_that_an_earlier_run_took_from_it_are_made_anew(site: Site) -> None:
    site.fill("one/kernels")
    site.fill("two/kernels")
    for cache, executed in (("one", 8), ("two", 16)):
        with site.filled(cache, ignore_cache=True):
            assert len(site.server.executed) == executed
    assert not any(entry.cached for entry in site.records("two/kernels"))


def test_a_cached_result_of_a_server_that_was_told_to_execute_is_refused(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.fill("one")
    site.server.ignore_skip = True
    site.fill("two", ignore_cache=True)
    assert "the server took the result from its cache, and was told not to" in caplog.text
    assert site.records("two") == []


def compile_here(site: Site, other: bytes = b"") -> None:
    """Save an object of this machine for each kernel without one: the same as that of the cluster, or another."""
    for kernel in site.missing():
        path = kernel.store.folder / "made"
        data = other or answer_for(kernel.part.targets[0])
        path.write_bytes(data)
        digest = hashlib.sha256(data).hexdigest()
        kernel.store.save_object(
            path, ObjectRecord(kernel.name, kernel.part.targets, digest, len(data), 1.0, 1, 0.0, 1.0)
        )


def test_a_sample_is_left_for_this_machine_and_compared(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "wheelfactory")
    site.server.run = lambda command, _files: (0, answer_for(arch_of(command)))
    with site.filled(sample=3):
        assert len(site.records()) == 5
        compile_here(site)
    assert "3 of 3 sampled kernels compiled here, too: same bytes" in caplog.text


def test_a_sample_that_differs_removes_all_objects_of_the_cluster_however_the_compile_ends(site: Site) -> None:
    error = r"the cluster made another object than this machine: .* by worker1"
    with pytest.raises(BuildError, match=error), site.filled(sample=1):
        compile_here(site, b"other")
        raise BuildError("linking failed", "one", "")
    assert [entry.made_by for entry in site.records()] == [""]


def test_the_progress_tells_what_is_queued_running_and_cached_by_worker(site: Site) -> None:
    notes: list[str] = []
    site.server.hold.clear()
    missing = site.missing()

    def report(done: int, total: int, note: str = "", /) -> None:
        notes.append(f"{done}/{total} {note}")
        if "0/8 4 queued, 4 running, 0 cached" in notes:
            site.server.hold.set()

    fill_store(site.survey, missing, remote_of(site.server), report)
    assert notes[-1] == "8/8 0 queued, 0 running, 0 cached (worker1 8)"


def start_when(condition: Callable[[], bool], action: Callable[[], object]) -> threading.Thread:
    """Call `action` in a thread once the condition holds."""
    thread = threading.Thread(target=lambda: action() if wait_until(condition) else None)
    thread.start()
    return thread


def wait_until(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)
    return True
