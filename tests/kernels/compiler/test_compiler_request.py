"""Unsupported compiles are refused before they fail late."""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from wheelfactory.core.errors import BuildError
from wheelfactory.kernels.compiler.request import (
    MAX_ARGUMENT_BYTES,
    argument_limit,
    increase_stack_limit_for_link,
    require_matching_keys,
    require_supported_archs,
)
from wheelfactory.kernels.compiler.store import SetKey

MIB = 1 << 20


@pytest.mark.parametrize(
    ("stack", "allowed"),
    [(8 * MIB, 2 * MIB), (64 * MIB, MAX_ARGUMENT_BYTES), (resource.RLIM_INFINITY, MAX_ARGUMENT_BYTES)],
)
def test_linux_allows_a_quarter_of_the_stack_up_to_a_point(stack: int, allowed: int) -> None:
    assert argument_limit(stack) == allowed


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
    increase_stack_limit_for_link(process, OBJECTS[:2782], {"PATH": "/bin"})
    assert resource.prlimit(process, resource.RLIMIT_STACK)[0] == 8 * MIB, "these fit"
    increase_stack_limit_for_link(process, OBJECTS, {"PATH": "/bin"})
    assert resource.prlimit(process, resource.RLIMIT_STACK)[0] == 4 * MAX_ARGUMENT_BYTES


def test_a_low_hard_limit_refuses_the_link_with_both_numbers(process: int) -> None:
    resource.prlimit(process, resource.RLIMIT_STACK, (8 * MIB, 8 * MIB))
    with pytest.raises(BuildError, match="too many arguments for the linker") as caught:
        increase_stack_limit_for_link(process, OBJECTS, {"PATH": "/bin"})
    assert f"allows {2 * MIB}" in caught.value.which
    assert "--cache" in caught.value.hint


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


def key_of(*targets: str, compiler: str = "clang 21") -> SetKey:
    parts = {"compiler": {"version": compiler}, "flags": ["-O3"], "targets": list(targets)}
    return SetKey(parts, ("fmha_a",))


DEVICE, HOST = key_of("gfx942"), key_of("host")


def test_archives_of_other_keys_are_refused_with_the_differences_of_the_nearest() -> None:
    near = key_of("gfx942", compiler="clang 19").parts
    far = {**near, "flags": ["-O2"]}
    with pytest.raises(BuildError, match=r"was compiled differently: compiler.version: clang 21, other clang 19$"):
        require_matching_keys([DEVICE, HOST], [far, near])


def test_an_archive_for_other_targets_is_neither_required_nor_refused_and_one_of_the_key_is_enough() -> None:
    other = key_of("gfx90a", compiler="clang 19").parts
    require_matching_keys([DEVICE, HOST], [other, HOST.parts])
    require_matching_keys([DEVICE, HOST], [])
    require_matching_keys([DEVICE], [key_of("gfx942", compiler="clang 19").parts, DEVICE.parts])


def test_each_key_needs_an_archive_of_its_own_targets() -> None:
    with pytest.raises(BuildError, match="was compiled differently"):
        require_matching_keys([DEVICE, HOST], [DEVICE.parts, key_of("host", compiler="clang 19").parts])
