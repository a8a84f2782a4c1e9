"""The launcher in front of hipcc: the program that it executes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from wheelfactory.kernels.compiler import launcher
from wheelfactory.kernels.compiler.flags import APPEND_VARIABLE
from wheelfactory.kernels.compiler.launcher import compile_command

NAME = "fmha_fwd_d64_fp16"
PAIR = ("-mllvm", "-amdgpu-early-inline-all=true", "-mllvm", "-amdgpu-function-calls=false")


class Work:
    """A kernel, and a compiler that is a shell script."""

    def __init__(self, folder: Path) -> None:
        self.hipcc, self.source, self.output = folder / "rocm/bin/hipcc", folder / f"build/{NAME}.hip", folder / "it.o"
        for path in (self.hipcc, self.source):
            path.parent.mkdir(parents=True)
        self.source.write_text("// kernel\n")

    def does(self, script: str) -> None:
        """What the compiler does."""
        self.hipcc.write_text(f"#!/bin/sh\n{script}\n")
        self.hipcc.chmod(0o755)

    def launch(self, *flags: str) -> tuple[int, str]:
        """Start the launcher as torch does; return exit status and output."""
        arguments = map(str, (launcher.__file__, self.hipcc, *flags, "-c", self.source, "-o", self.output))
        command = [sys.executable, "-ISB", *arguments]
        done = subprocess.run(command, env={"PATH": os.environ["PATH"]}, stderr=subprocess.PIPE, text=True)
        return done.returncode, done.stderr


@pytest.fixture
def work(tmp_path: Path) -> Work:
    return Work(tmp_path)


def test_it_ends_as_the_compiler_ends(work: Work) -> None:
    work.does("echo boom >&2; exit 3")
    assert work.launch() == (3, "boom\n")
    work.does("kill -KILL $$")
    assert work.launch() == (-signal.SIGKILL, "")


def test_a_missing_compiler_is_an_error_with_its_name(work: Work) -> None:
    assert work.launch() == (127, f"error: cannot start the compiler: {work.hipcc}: No such file or directory\n")


@pytest.mark.parametrize(
    ("tame", "given", "early"), [(True, PAIR, "false"), (False, PAIR, "true")], ids=["runs away", "a compiler that can"]
)
def test_early_inlining_is_disabled_on_request(tame: bool, given: tuple[str, ...], early: str, work: Work) -> None:
    argv = [str(work.hipcc), *given, "-c", str(work.source), "-o", "it.o"]
    command, _ = compile_command(argv, str(work.source), {}, disable_early_inline=tame)
    assert command[2] == f"-amdgpu-early-inline-all={early}"


@pytest.mark.parametrize(("llvm", "given", "early"), [(17, PAIR, "true"), (21, PAIR, "false"), (21, PAIR[:2], "true")])
def test_the_launcher_reads_the_compilers_version(llvm: int, given: tuple[str, ...], early: str, work: Work) -> None:
    work.does(f'case "$*" in *--version*) echo clang version {llvm}.1.0 ;; *) echo "$*" > {work.output} ;; esac')
    assert work.launch(*given) == (0, "")
    assert f"-amdgpu-early-inline-all={early}" in work.output.read_text()


def test_an_object_named_from_the_folder_it_is_started_in_is_put_there(work: Work) -> None:
    argv = [str(work.hipcc), "-c", str(work.source), "-o", "it.o"]
    command, _ = compile_command(argv, str(work.source), {}, disable_early_inline=False)
    assert command[-1] == str(Path.cwd() / "it.o")


def test_flags_that_hipcc_would_add_by_itself_are_on_the_command_line_once(work: Work) -> None:
    argv = [str(work.hipcc), "-c", str(work.source), "-o", "it.o"]
    environ = {APPEND_VARIABLE: "--offload-compress -g", "HOME": "/"}
    command, environ = compile_command(argv, str(work.source), environ, disable_early_inline=False)
    assert command[1:3] == ["--offload-compress", "-g"]
    assert environ == {"HOME": "/"}
