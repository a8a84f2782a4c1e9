"""The program in front of hipcc: what it runs, what it tells the coordinator, and when it does not go on."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from wheelfactory.kernels.compiler import launcher
from wheelfactory.kernels.compiler.flags import APPENDED
from wheelfactory.kernels.compiler.launcher import SOCKET, STOPPED, TAME, Conversation, compile_command

NAME = "fmha_fwd_d64_fp16"
PAIR = ("-mllvm", "-amdgpu-early-inline-all=true", "-mllvm", "-amdgpu-function-calls=false")


class Work:
    """A kernel, a compiler that is a shell script, and the coordinator's end of the conversation."""

    def __init__(self, folder: Path) -> None:
        self.hipcc, self.source, self.output = folder / "rocm/bin/hipcc", folder / f"build/{NAME}.hip", folder / "it.o"
        for path in (self.hipcc, self.source):
            path.parent.mkdir(parents=True)
        self.source.write_text("// kernel\n")
        self.listener = socket.socket(socket.AF_UNIX)
        self.address = os.path.relpath(folder / "socket")  # an absolute one may be longer than Linux takes
        self.listener.bind(self.address)
        self.listener.listen()
        self.listener.settimeout(30)

    def does(self, script: str) -> None:
        """What the compiler does."""
        self.hipcc.write_text(f"#!/bin/sh\n{script}\n")
        self.hipcc.chmod(0o755)

    def start(self) -> subprocess.Popen[str]:
        """Start the launcher as ninja does: in a process group of its own."""
        arguments = map(str, (launcher.__file__, self.hipcc, "-c", self.source, "-o", self.output))
        command = [sys.executable, "-ISB", *arguments]
        environ = {"PATH": os.environ["PATH"], SOCKET: self.address}
        return subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True, start_new_session=True)

    def talk(self, answers: Sequence[str]) -> tuple[int, str, list[list[str]]]:
        """Answer the launcher's lines with these; its exit status, what it says, and its lines as words."""
        with self.start() as process, closing(self.listener.accept()[0]) as connection:
            heard = []
            for answer, line in zip(answers, connection.makefile(), strict=False):
                heard.append(line.rstrip("\n").split("\t"))
                connection.sendall(f"{answer}\n".encode())
            _, said = process.communicate(timeout=30)
        return process.returncode, said, heard


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Work]:
    work = Work(tmp_path)
    with closing(work.listener):
        yield work


def test_it_asks_before_the_compile_and_tells_what_became_of_it(work: Work) -> None:
    work.does(f"echo object > {work.output}")
    code, said, heard = work.talk(["go", "kept"])
    assert (code, said) == (0, "")
    assert heard[0] == ["start", NAME]
    verb, status, _, memory_kib, start, cached, output = heard[1]
    assert (verb, status, cached, output) == ("end", "0", "0", str(work.output))
    assert int(memory_kib) > 0
    assert float(start) == pytest.approx(work.output.stat().st_mtime, abs=30)


def test_the_time_that_the_system_works_for_the_compiler_counts(work: Work) -> None:
    work.does(f"dd if=/dev/zero of=/dev/null bs=1M count=2000 2> /dev/null; times > {work.output}")
    _, _, (_, ended) = work.talk(["go", "kept"])
    minutes, seconds = work.output.read_text().split()[-1].rstrip("s").split("m")  # of the system for dd
    assert float(ended[2]) >= 60 * int(minutes) + float(seconds) - 0.01


def test_without_leave_to_start_nothing_is_compiled(work: Work) -> None:
    work.does(f"touch {work.output}")
    code, said, _ = work.talk(["later"])
    assert code == STOPPED
    assert said == f"not started: {NAME}: later\n"
    assert not work.output.exists()


def test_a_compile_is_done_again_as_often_as_it_is_told(work: Work) -> None:
    work.does(f"echo once >> {work.output}; kill -KILL $$")
    code, _, heard = work.talk(["go", "again", "go", "again", "go", "failed"])
    assert work.output.read_text() == "once\n" * 3
    assert [words[0] for words in heard] == ["start", "end"] * 3
    assert code == 128 + signal.SIGKILL
    assert {words[1] for words in heard if words[0] == "end"} == {str(-signal.SIGKILL)}


def test_the_exit_status_is_that_of_the_compiler(work: Work) -> None:
    work.does("exit 3")
    code, _, heard = work.talk(["go", "failed"])
    assert (code, heard[1][1]) == (3, "3")


def test_an_object_that_could_not_be_kept_is_an_error(work: Work) -> None:
    work.does(f"touch {work.output}")
    code, said, _ = work.talk(["go", "No space left on device"])
    assert (code, said) == (1, f"error: not kept: {NAME}: No space left on device\n")


def test_a_compiler_that_is_not_there_is_told_by_name(work: Work) -> None:
    code, said, heard = work.talk(["go", "failed"])
    assert (code, heard[1][1]) == (127, "127")
    assert said == f"error: cannot run: {work.hipcc}: No such file or directory\n"


def test_when_the_coordinator_ends_so_do_the_compiler_and_all_below_it(work: Work, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "held")
    work.does(f"(echo started; exec sleep 100) > {tmp_path}/held; true")
    with work.start() as process:
        connection, _ = work.listener.accept()
        connection.recv(100)
        connection.sendall(b"go\n")
        with (tmp_path / "held").open() as held:
            assert held.readline() == "started\n"
            connection.close()
            assert held.read() == "", "which ends when the last process that could write to it has"
        assert process.wait(30) == -signal.SIGKILL


def test_a_coordinator_that_is_gone_gives_no_leave(work: Work) -> None:
    conversation = Conversation(work.address)
    assert conversation.connection
    with closing(conversation.connection):
        work.listener.accept()[0].close()
        assert conversation.ask("start", NAME) == ""


def test_without_a_coordinator_every_compile_may_start() -> None:
    assert Conversation("").ask("start", NAME) == "go"


@pytest.mark.parametrize(
    ("told", "given", "early"),
    [("1", PAIR, "false"), ("0", PAIR, "true"), ("1", PAIR[:2], "true")],
    ids=["the pair", "a compiler that can", "one of the pair"],
)
def test_early_inlining_is_taken_back_where_it_is_told_and_both_flags_are_there(
    told: str, given: tuple[str, ...], early: str, work: Work
) -> None:
    argv = [str(work.hipcc), *given, "-c", str(work.source), "-o", "it.o"]
    command, _ = compile_command(argv, str(work.source), {TAME: told})
    assert command[2] == f"-amdgpu-early-inline-all={early}"


@pytest.mark.parametrize(("llvm", "early"), [(17, "true"), (21, "false")])
def test_by_itself_it_asks_the_compiler_for_its_version(llvm: int, early: str, work: Work) -> None:
    work.does(f"echo clang version {llvm}.1.0")
    argv = [str(work.hipcc), *PAIR, "-c", str(work.source), "-o", "it.o"]
    command, _ = compile_command(argv, str(work.source), {"PATH": os.environ["PATH"]})
    assert command[2] == f"-amdgpu-early-inline-all={early}"


def test_an_object_named_from_the_folder_it_is_started_in_is_put_there(work: Work) -> None:
    argv = [str(work.hipcc), "-c", str(work.source), "-o", "it.o"]
    command, _ = compile_command(argv, str(work.source), {})
    assert command[-1] == str(Path.cwd() / "it.o")


def test_flags_that_hipcc_would_add_by_itself_are_on_the_command_line_once(work: Work) -> None:
    argv = [str(work.hipcc), "-c", str(work.source), "-o", "it.o"]
    command, environ = compile_command(argv, str(work.source), {APPENDED: "--offload-compress -g", "HOME": "/"})
    assert command[1:3] == ["--offload-compress", "-g"]
    assert environ == {"HOME": "/"}
