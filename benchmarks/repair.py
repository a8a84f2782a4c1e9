"""What it costs to finish a wheel of 300 MB that unpacks to 900 MB, beside auditwheel alone on the same wheel.

    python benchmarks/repair.py [--megabytes 900]

Two runs of each, by turns, each run a process of its own: `auditwheel repair` with our excludes, and `finish`, which
calls auditwheel too and also gives METADATA, label and record. Of each the least seconds and the least memory are kept.
Seconds of CPU and peak memory (RSS) are those that the kernel counted for the process and all that it started. The
ratios are the figures to watch, and must not pass 0.5 at that size. Takes a minute or two, 4 GB below $TMPDIR, and a C
compiler.

Measured, CPython 3.11.7, auditwheel 6.8.2, two shared cores, November 2026: auditwheel alone 15.2 to 15.7 s and
1,520 MB, finish 2.9 to 3.5 s and 172 MB; ratios 0.19 to 0.22 (time), 0.19 to 0.20 (CPU), 0.11 (memory).
"""

from __future__ import annotations

import argparse
import base64
import os
import platform
import random
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from wheelfactory.core.digest import file_sha256
from wheelfactory.pipeline.build import finish_raw_wheel
from wheelfactory.wheel.build_record import BuildRecord, Toolchain
from wheelfactory.wheel.repair import EXTERNAL_LIBRARIES

RUNS = 2
MEGABYTE = 1_000_000
UNPACKED, HOST_SHARE = 900, 1 / 15
"""The size in megabytes, and the share of it that is not device code."""
BLOCK = 8 * MEGABYTE
NAME = "flash_attn-2.8.3-cp311-cp311-linux_x86_64.whl"
RECORD = BuildRecord(
    cell="fa2.8.3-rocm6.4-torch2.9.1-cp311-ck",
    label="rocm64torch2.9",
    offload_archs=("gfx942",),
    source="made for this benchmark",
    toolchain=Toolchain(glibc=platform.libc_ver()[1]),
)
EXTENSION = """
#include <math.h>
#include <stdlib.h>
double PyInit_flash_attn_2_cuda(double x) { return x < 0 ? strtod("1", NULL) : pow(x, x); }
__asm__(".section .hip_fatbin,\\"a\\",@progbits\\n.p2align 12\\n.incbin \\"device.bin\\"\\n"
        ".section .rodata\\n.incbin \\"host.bin\\"\\n.text");
"""


@dataclass(frozen=True)
class Cost:
    """What a process took, and all that it started."""

    seconds: float
    cpu: float
    megabytes: float


def write_code(path: Path, size: int) -> None:
    """Bytes that deflate packs 3:1, as it does code: words of 8 bytes, few of them often."""
    draw = random.Random(size)  # noqa: S311 - the same bytes each time are what is wanted
    words = [draw.randbytes(8) for _ in range(1700)]
    block = b"".join(draw.choices(words, k=BLOCK // 8))
    with path.open("wb") as file:
        for start in range(0, size, BLOCK):
            file.write(block[: size - start])


def make(folder: Path, megabytes: int) -> None:
    """Write the wheel: one extension, most of it device code, and the least of dist-info."""
    host = round(megabytes * MEGABYTE * HOST_SHARE)
    write_code(folder / "device.bin", megabytes * MEGABYTE - host)
    write_code(folder / "host.bin", host)
    extension = folder / "flash_attn_2_cuda.so"
    command: list[str | Path] = ["cc", "-x", "c", "-", "-shared", "-fPIC", "-lm", "-o", extension]
    subprocess.run(command, input=EXTENSION, text=True, cwd=folder, check=True)
    digest = base64.urlsafe_b64encode(bytes.fromhex(file_sha256(extension))).rstrip(b"=").decode()
    dist_info = "flash_attn-2.8.3.dist-info"
    with zipfile.ZipFile(folder / NAME, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(extension, extension.name)
        archive.writestr(f"{dist_info}/METADATA", "Metadata-Version: 2.1\nName: flash_attn\nVersion: 2.8.3\n")
        archive.writestr(f"{dist_info}/WHEEL", "Wheel-Version: 1.0\nTag: cp311-cp311-linux_x86_64\n")
        archive.writestr(f"{dist_info}/RECORD", f"{extension.name},sha256={digest},{extension.stat().st_size}\n")
    for path in (folder / "device.bin", folder / "host.bin", extension):
        path.unlink()


def audit(folder: Path) -> None:
    """auditwheel alone."""
    excludes = [f"--exclude={pattern}" for pattern in EXTERNAL_LIBRARIES]
    command = [sys.executable, "-m", "auditwheel", "repair", *excludes, "--wheel-dir", "audited", NAME]
    path = f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(command, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, check=True)


def finish_it(folder: Path) -> None:
    """All that we do."""
    finish_raw_wheel(folder / NAME, RECORD, folder / "finished", os.environ)


STEPS: dict[str, Callable[..., None]] = {"make": make, "auditwheel": audit, "finish": finish_it}


def measure(step: str, *arguments: str) -> Cost:
    """Run a step in a process of its own, so that no other one's memory is counted."""
    start = perf_counter()
    process = subprocess.Popen([sys.executable, __file__, step, *arguments])
    _, status, used = os.wait4(process.pid, 0)
    seconds = perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{step} failed")
    return Cost(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024 / MEGABYTE)


def least(costs: Sequence[Cost]) -> Cost:
    """The least of each."""
    return Cost(
        min(cost.seconds for cost in costs), min(cost.cpu for cost in costs), min(cost.megabytes for cost in costs)
    )


def main() -> None:
    """Print what each costs, and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--megabytes", type=int, default=UNPACKED, help="size of the unpacked wheel")
    megabytes = parser.parse_args().megabytes
    with tempfile.TemporaryDirectory() as folder:
        measure("make", folder, str(megabytes))
        size = Path(folder, NAME).stat().st_size
        print(f"wheel of {size / MEGABYTE:,.0f} MB, {megabytes:,} MB unpacked")
        costs: dict[str, list[Cost]] = {"auditwheel": [], "finish": []}
        for _ in range(RUNS):
            for step, found in costs.items():
                found.append(measure(step, folder))
    theirs, ours = least(costs["auditwheel"]), least(costs["finish"])
    for step, cost in (("auditwheel alone", theirs), ("finish", ours)):
        print(f"{step:<17}{cost.seconds:8.2f} s {cost.cpu:8.2f} s of CPU {cost.megabytes:8.0f} MB")
    ratios = (ours.seconds / theirs.seconds, ours.cpu / theirs.cpu, ours.megabytes / theirs.megabytes)
    print("{:<17}{:8.2f}   {:8.2f}          {:8.2f}".format("ratio", *ratios))


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in STEPS:  # started by `measure`
        STEPS[sys.argv[1]](Path(sys.argv[2]), *map(int, sys.argv[3:]))
    else:
        main()
