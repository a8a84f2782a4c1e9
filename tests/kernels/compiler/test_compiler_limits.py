"""Unsupported compiles are refused before they fail late."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from wheelfactory.core.errors import BuildError
from wheelfactory.kernels.compiler.limits import (
    MAX_ARGUMENT_BYTES,
    argument_limit,
    increase_stack_limit_for_link,
    link_argument_bytes,
    require_matching_key,
    require_supported_archs,
)
from wheelfactory.kernels.compiler.store import SetKey

MIB = 1 << 20


@pytest.mark.parametrize(
    ("stack", "allowed"),
    [
        (8 * MIB, 2 * MIB),
        (16 * MIB, 4 * MIB),
        (64 * MIB, MAX_ARGUMENT_BYTES),
        (resource.RLIM_INFINITY, MAX_ARGUMENT_BYTES),
    ],
)
def test_linux_allows_a_quarter_of_the_stack_up_to_a_point(stack: int, allowed: int) -> None:
    assert argument_limit(stack) == allowed


@pytest.mark.parametrize("stack", [2 * MIB, 8 * MIB])
def test_the_limit_is_the_one_of_this_kernel(stack: int) -> None:
    """A program is really given as much, and not as much as that and a tenth."""

    def set_limit() -> None:
        resource.setrlimit(resource.RLIMIT_STACK, (stack, resource.getrlimit(resource.RLIMIT_STACK)[1]))

    def run(size: int) -> int:
        arguments = ["x" * 1000] * (size // 1009)
        return subprocess.run(["/bin/true", *arguments], env={}, preexec_fn=set_limit, check=False).returncode

    assert run(argument_limit(stack) - 8192) == 0
    with pytest.raises(OSError, match="Argument list too long"):
        run(argument_limit(stack) + argument_limit(stack) // 10)


@pytest.mark.parametrize("path", ["", "a.o", "/builds/ö.o", "/builds/\udcff.o"])
def test_an_object_takes_the_bytes_of_its_path_one_that_ends_it_and_a_pointer(path: str) -> None:
    assert link_argument_bytes([path, "b.o"], 100) - link_argument_bytes(["b.o"], 100) == len(os.fsencode(path)) + 1 + 8


def test_what_the_environment_takes_is_added() -> None:
    assert link_argument_bytes(["a.o"], 1000) - link_argument_bytes(["a.o"], 0) == 1000


OBJECTS = [f"/builds/flash-attn/build/temp.linux-x86_64-cpython-311/build/{'n' * 220}_{n}.o" for n in range(7569)]
"""The number of objects for ten archs of a later flash-attn (mjun0812), with paths as long as in a build."""


@pytest.fixture
def process() -> Iterator[int]:
    """A process with the usual stack limit, which may be raised."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as started:
        assert started.stdin and started.stdout
        started.stdin.write(b"1")
        assert started.stdout.read(1) == b"1"  # it runs by now; the end of exec would put the limit back
        hard = resource.prlimit(started.pid, resource.RLIMIT_STACK)[1]
        resource.prlimit(started.pid, resource.RLIMIT_STACK, (8 * MIB, hard))
        yield started.pid
        started.kill()


def test_a_link_of_ten_archs_raises_the_limit_of_the_process_that_links(process: int) -> None:
    increase_stack_limit_for_link(process, OBJECTS, {"PATH": "/bin"})
    assert resource.prlimit(process, resource.RLIMIT_STACK)[0] == 4 * MAX_ARGUMENT_BYTES


def test_a_link_that_fits_leaves_the_limit_alone(process: int) -> None:
    increase_stack_limit_for_link(process, OBJECTS[:2782], {"PATH": "/bin"})
    assert resource.prlimit(process, resource.RLIMIT_STACK)[0] == 8 * MIB


def test_a_low_hard_limit_refuses_the_link_with_both_numbers(process: int) -> None:
    resource.prlimit(process, resource.RLIMIT_STACK, (8 * MIB, 8 * MIB))
    with pytest.raises(BuildError, match="too many arguments for the linker") as caught:
        increase_stack_limit_for_link(process, OBJECTS, {"PATH": "/bin"})
    assert f"allows {2 * MIB}" in caught.value.which
    assert "--cache" in caught.value.hint


def test_the_environment_counts_too(process: int) -> None:
    increase_stack_limit_for_link(process, ["a.o"], {"LARGE": "x" * 3 * MIB})
    assert resource.prlimit(process, resource.RLIMIT_STACK)[0] > 8 * MIB


def hipcc(folder: Path) -> str:
    """A compiler whose driver supports only gfx942, with clang's message."""
    path = folder / "hipcc"
    path.write_text(
        "#!/bin/sh\n"
        'case "$*" in *gfx942*) exit 0 ;; esac\n'
        "echo \"clang: error: invalid target ID 'gfx950'; format is a processor name\" >&2\nexit 1\n"
    )
    path.chmod(0o755)
    return str(path)


def test_an_unsupported_arch_is_refused_with_the_compilers_error(tmp_path: Path) -> None:
    require_supported_archs(hipcc(tmp_path), ["gfx942"], {})
    with pytest.raises(BuildError, match="unsupported by this compiler: gfx950") as caught:
        require_supported_archs(hipcc(tmp_path), ["gfx942", "gfx950"], {})
    assert "invalid target ID" in caught.value.which
    assert "gfx942" not in caught.value.which


def test_other_errors_of_the_driver_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "hipcc"
    path.write_text("#!/bin/sh\necho 'fatal error: no space' >&2\nexit 1\n")
    path.chmod(0o755)
    require_supported_archs(str(path), ["gfx942"], {})


KEY = SetKey({"compiler": {"version": "clang 21"}, "flags": ["-O3"], "archs": ["gfx942"]}, ("fmha_a",))


def test_archives_of_other_keys_are_refused_with_the_differences_of_the_nearest() -> None:
    far = {"compiler": {"version": "clang 19"}, "flags": ["-O2"], "archs": ["gfx90a"]}
    near = {**KEY.parts, "archs": ["gfx90a"]}
    with pytest.raises(BuildError, match=r"the kernel archive was compiled differently: archs: gfx942, other gfx90a$"):
        require_matching_key(KEY, [far, near])


def test_one_archive_of_the_key_is_enough() -> None:
    require_matching_key(KEY, [{}, KEY.parts])
