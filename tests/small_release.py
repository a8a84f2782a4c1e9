"""A small release of flash-attn: eight kernels and a binding instead of 2,782 sources, with its own setup.py.

For tests of the factory's behaviour only. Its setup.py reads the same variables as upstream's, writes the same kind of
build.ninja, calls ninja and links. test_kernels_full_size tests the real release.
"""

from __future__ import annotations

import gzip
import io
import re
import tarfile
from collections.abc import Mapping
from pathlib import Path

from rocm_machine import ARCHS
from wheelfactory.core.files import MATRIX, file_sha256

KERNELS = 8
SMALL_KERNELS = (*(f"fmha_fwd_d{32 << number % 4}_fp16_{number}" for number in range(KERNELS - 1)), "fmha_bwd_api")
"""The names of its kernels."""

DEVICE_KERNELS = KERNELS - 1
"""How many of them have device code: the one that chooses a kernel has none."""

SMALL_SETS = tuple(f"fa2.8.3-rocm7.2-{part}" for part in (*ARCHS, "cxx11"))
"""The kernel sets of its cells for the ROCm of `rocm_machine`."""
SMALL_SET = SMALL_SETS[ARCHS.index("gfx942")]

SETUP = f"""
import os, subprocess, sys, zipfile
from pathlib import Path

assert {{"BUILD_TARGET", "FLASH_ATTENTION_FORCE_BUILD", "MAX_JOBS"}} <= os.environ.keys()
root = Path(__file__).resolve().parent
build = root / "build"
temp = build / "temp"
temp.mkdir(parents=True)
sources = [root / "csrc/flash_api.hip"]
for number in range({KERNELS - 1}):
    sources.append(build / f"fmha_fwd_d{{32 << number % 4}}_fp16_{{number}}.hip")
sources.append(build / "fmha_bwd_api.hip")
for path in sources:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f'// {{path.name}}\\n#include "fmha.hpp"\\n')
archs = " ".join(f"--offload-arch={{arch}}" for arch in os.environ["GPU_ARCHS"].split(";"))
lines = ["rule compile", "  command = " + os.environ["PYTORCH_NVCC"] + f" -I/torch {{archs}} -O3 -c $in -o $out"]
objects = [temp / f"{{path.stem}}.o" for path in sources]
lines += [f"build {{output}}: compile {{path}}" for output, path in zip(objects, sources)]
(temp / "build.ninja").write_text("\\n".join(lines) + "\\n")
subprocess.run(["ninja", "-v"], cwd=temp, check=True)
library = temp / "flash_attn_2_cuda.so"
hip = Path(os.environ["ROCM_HOME"]) / "lib"
subprocess.run(["cc", "-shared", "-o", library, *objects, f"-L{{hip}}", "-lamdhip64"], check=True)
tag = "cp%d%d" % sys.version_info[:2]
name = "flash_attn-2.8.3+" + os.environ["FLASH_ATTN_LOCAL_VERSION"]
info = name + ".dist-info"
folder = Path(sys.argv[sys.argv.index("--dist-dir") + 1])
with zipfile.ZipFile(folder / f"{{name}}-{{tag}}-{{tag}}-linux_x86_64.whl", "w") as wheel:
    put = lambda member, data: wheel.writestr(zipfile.ZipInfo(member), data)
    put(f"flash_attn_2_cuda.cpython-{{tag[2:]}}-x86_64-linux-gnu.so", library.read_bytes())
    version = name.partition("-")[2]
    metadata = ["Metadata-Version: 2.1", "Name: flash_attn", f"Version: {{version}}", "Requires-Dist: torch"]
    put(info + "/METADATA", "\\n".join(metadata) + "\\n")
    tags = ["Wheel-Version: 1.0", "Root-Is-Purelib: false", f"Tag: {{tag}}-{{tag}}-linux_x86_64"]
    put(info + "/WHEEL", "\\n".join(tags) + "\\n")
    names = [*wheel.namelist(), info + "/RECORD"]
    put(info + "/RECORD", "".join(f"{{member}},,\\n" for member in names))
"""


def make_small_release(cache: Path, folder: Path) -> Path:
    """Put the sdist into the downloads of `cache`, and return a matrix in `folder` with this release as 2.8.3.

    It has no `kernel-sources`, so that its kernel sets are `SMALL_SETS`.
    """
    return write_release(cache, folder, {"setup.py": SETUP})


def write_release(cache: Path, folder: Path, members: Mapping[str, str]) -> Path:
    """Do what `make_small_release` does for a release of these files."""
    sdist = folder / "flash_attn-2.8.3.tar.gz"
    with gzip.GzipFile(sdist, "wb", mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
        for name, text in members.items():
            member = tarfile.TarInfo(f"flash_attn-2.8.3/{name}")
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))
    sha256 = file_sha256(sdist)
    kept = cache / "sources" / sha256[:16] / sdist.name
    kept.parent.mkdir(parents=True, exist_ok=True)
    sdist.rename(kept)
    entry = r"(file: flash_attn-2\.8\.3\.tar\.gz\n +sha256: )[0-9a-f]{64}\n +kernel-sources: [0-9a-f]{64}\n"
    text, count = re.subn(entry, rf"\g<1>{sha256}\n", MATRIX.read_text())
    assert count == 1
    matrix = folder / "matrix.yaml"
    matrix.write_text(text)
    return matrix
