"""Measure finishing a 300 MB wheel (900 MB unpacked) against auditwheel alone on the same wheel.

    python benchmarks/repair.py [--megabytes 900] [--runs 2]

Alternates the runs of each in separate processes: `auditwheel repair` with our excludes, and our finishing step, which
runs `auditwheel show` and writes METADATA, label and record. Keeps the least seconds and memory of each. The kernel
counts CPU seconds and peak memory (RSS) of the process and its children. Watch the ratios: at the default size they
must stay below 0.5. Takes a minute or two, needs 4 GB in $TMPDIR and a C compiler.

Measured, CPython 3.11.7, auditwheel 6.8.2, two shared cores, November 2026: auditwheel alone 19.6 s and 1,521 MB,
finish 5.3 s and 59 MB; ratios 0.27 (time), 0.30 (CPU), 0.04 (memory).
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

from wheelfactory.core.files import file_sha256
from wheelfactory.pipeline.build import finish_raw_wheel
from wheelfactory.wheel.read import BuildRecord, Toolchain
from wheelfactory.wheel.repair import EXTERNAL_LIBRARIES

MEGABYTE = 1_000_000
UNPACKED, HOST_SHARE = 900, 1 / 15
"""Unpacked size in megabytes, and its share of host code."""
BLOCK = 8 * MEGABYTE
NAME = "flash_attn-2.8.3-cp311-cp311-linux_x86_64.whl"
RECORD = BuildRecord(
    cell="fa2.8.3-rocm6.4-torch2.9.1-cp311-ck",
    label="rocm64torch2.9",
    offload_archs=("gfx942",),
    source="benchmark",
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
    """Cost of a process and its children."""

    seconds: float
    cpu: float
    megabytes: float


def write_code(path: Path, size: int) -> None:
    """Write bytes that deflate compresses 3:1 like code: words of 8 bytes from a small set."""
    draw = random.Random(size)  # noqa: S311 - must be repeatable
    words = [draw.randbytes(8) for _ in range(1700)]
    block = b"".join(draw.choices(words, k=BLOCK // 8))
    with path.open("wb") as file:
        for start in range(0, size, BLOCK):
            file.write(block[: size - start])


def make_wheel(folder: Path, megabytes: int) -> None:
    """Write a wheel with one extension, mostly device code, and a minimal dist-info."""
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
    """Run auditwheel alone."""
    excludes = [f"--exclude={pattern}" for pattern in EXTERNAL_LIBRARIES]
    command = [sys.executable, "-m", "auditwheel", "repair", *excludes, "--wheel-dir", "audited", NAME]
    path = f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(command, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, check=True)


def finish(folder: Path) -> None:
    """Run our finishing step."""
    finish_raw_wheel(folder / NAME, RECORD, folder / "finished", os.environ)


STEPS: dict[str, Callable[..., None]] = {"make": make_wheel, "auditwheel": audit, "finish": finish}


def measure(step: str, *arguments: str) -> Cost:
    """Run a step in its own process, so that only its memory counts."""
    start = perf_counter()
    process = subprocess.Popen([sys.executable, __file__, step, *arguments])
    _, status, used = os.wait4(process.pid, 0)
    seconds = perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{step} failed")
    return Cost(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024 / MEGABYTE)


def least(costs: Sequence[Cost]) -> Cost:
    """Return the minimum of each field."""
    return Cost(
        min(cost.seconds for cost in costs), min(cost.cpu for cost in costs), min(cost.megabytes for cost in costs)
    )


def main() -> None:
    """Print both costs and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--megabytes", type=int, default=UNPACKED, help="size of the unpacked wheel")
    parser.add_argument("--runs", type=int, default=2, help="runs of each")
    options = parser.parse_args()
    megabytes = options.megabytes
    with tempfile.TemporaryDirectory() as folder:
        measure("make", folder, str(megabytes))
        size = Path(folder, NAME).stat().st_size
        print(f"wheel of {size / MEGABYTE:,.0f} MB, {megabytes:,} MB unpacked")
        costs: dict[str, list[Cost]] = {"auditwheel": [], "finish": []}
        for _ in range(options.runs):
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
