"""build_rocm.sh as a person runs it: the real sdist, setup.py, cpp_extension, hipify, ninja, linker and auditwheel.

hipcc is a stand-in that records and writes empty objects (see conftest.rocm), so what is proved is all but the
kernels: what setup.py is told, what reaches the compiler, and what becomes of the wheel.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from wheelfactory.checkout import BUILD_SCRIPT
from wheelfactory.inspect import inspect_wheel

Done = subprocess.CompletedProcess[str]


def build(environ: Mapping[str, str], *arguments: str | Path) -> Done:
    return subprocess.run([BUILD_SCRIPT, *arguments], env=environ, capture_output=True, text=True)


@pytest.mark.slow
def test_both_wheels_at_full_size(rocm: Mapping[str, str], cache: Path, tmp_path: Path, this_python: str) -> None:
    environ = {**rocm, "BUILD_TRITON_BACKEND": "true", "PYTORCH_ROCM_ARCH": "gfx942;gfx950", "MAX_JOBS": "3"}
    log = Path(rocm["ROCM_PATH"]) / "hipcc.log"
    log.unlink(missing_ok=True)

    done = build(environ, "2.8.3", this_python, "2.13.0", "auto", "--dest", tmp_path, "--cache", cache)

    assert done.returncode == 0, done.stderr
    ck, triton = (inspect_wheel(Path(line)) for line in done.stdout.splitlines())
    tag = f"cp{this_python.replace('.', '')}"
    assert ck.version == "2.8.3+rocm72torch2.13"
    assert ck.tags[0].startswith(f"{tag}-{tag}-manylinux")
    assert triton.file == "flash_attn-2.8.3+rocm72torch2.13triton-py3-none-any.whl"
    assert ck.record and ck.record.offload_archs == ("gfx942", "gfx950")
    assert [item.needed for item in ck.shared_objects] == [("libamdhip64.so.7",)]
    assert "torch==2.13.*" in ck.requires_dist

    commands = log.read_text().splitlines()
    assert len(commands) == 2775 + 7  # generated kernels and bindings of 2.8.3
    assert all("--offload-arch=gfx942 --offload-arch=gfx950" in command for command in commands)
    assert not any("gfx90a" in command.partition(" -c ")[2] for command in commands)
