"""A folder laid out like ROCm, whose hipcc is the real compiler of another root file system."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hip_rocm import make_hip_rocm
from hip_toolchain import HipToolchain
from wheelfactory.wheel.elf.read import read_elf

pytestmark = pytest.mark.slow

KERNEL = """
#include <hip/hip_runtime.h>
__global__ void scale(float *x) { x[threadIdx.x] = sinf(x[threadIdx.x]); }
extern "C" void run(float *x) { scale<<<1, 64>>>(x); }
"""
WAITING = '#include "never.h"\n'
"""A source whose compile waits until it is killed, if never.h is a FIFO without a writer."""


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the compiler sees."""
    folder = tmp_path_factory.mktemp("work space")
    (folder / "kernel.hip").write_text(KERNEL)
    (folder / "waiting.hip").write_text(WAITING)
    os.mkfifo(folder / "never.h")
    return folder


@pytest.fixture(scope="module")
def hip_rocm(hip: HipToolchain, work: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_hip_rocm(hip, tmp_path_factory.mktemp("hip") / "rocm", work)


def test_hipcc_reads_its_variables_and_its_time_and_memory_are_those_of_the_child(hip_rocm: Path, work: Path) -> None:
    environ = {**os.environ, "HIPCC_COMPILE_FLAGS_APPEND": "--offload-compress", "ROCM_PATH": str(hip_rocm)}
    command = [str(hip_rocm / "bin/hipcc"), "--offload-arch=gfx942", "-c", f"{work}/kernel.hip", "-o", f"{work}/it.o"]
    _, status, used = os.wait4(os.posix_spawn(command[0], command, environ), 0)
    assert (status, used.ru_maxrss > 100 * 1024) == (0, True)  # KiB; the scripts in front of clang have 4 MiB
    assert used.ru_utime > 0.1
    (bundle,) = read_elf("it.o", (work / "it.o").read_bytes()).bundles
    assert bundle.form.startswith("CCOB")


def group_of(process: subprocess.Popen[bytes]) -> None:
    os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.parametrize("kill", [group_of, subprocess.Popen.kill])
@pytest.mark.parametrize("launcher", [(), ("sh", "-c", '"$@"; true', "-")], ids=["hipcc", "launcher"])
def test_nothing_is_left_after_a_kill(
    hip_rocm: Path, work: Path, kill: Callable[[subprocess.Popen[bytes]], None], launcher: tuple[str, ...]
) -> None:
    """Neither of its process group nor of who called it, which may be a launcher."""
    source = f"{work}/waiting.hip"
    command = [*launcher, str(hip_rocm / "bin/hipcc"), "--offload-arch=gfx942", "-c", source, "-o", "/dev/null"]
    with subprocess.Popen(command, start_new_session=True) as process:
        until(lambda: any("-cc1" in line for line in running(work)))
        kill(process)
    until(lambda: not running(work))
    assert str(hip_rocm.joinpath("root").resolve()) not in Path("/proc/self/mounts").read_text()


def until(true: Callable[[], bool]) -> None:
    """Wait for what takes milliseconds."""
    deadline = time.monotonic() + 300
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def running(work: Path) -> list[str]:
    """The command lines of processes that compile something in `work`."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(path.read_text(errors="replace").replace("\0", " "))
        except OSError:  # it has ended
            continue
    return [line for line in lines if f"{work}/waiting.hip" in line]
