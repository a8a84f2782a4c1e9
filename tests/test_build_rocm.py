"""The arguments, errors and steps of build_rocm.sh. For its wheels, see kernels/test_kernels_full_size.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from wheelfactory.core.files import BUILD_SCRIPT

Done = subprocess.CompletedProcess[str]


def build(environ: Mapping[str, str], *arguments: str | Path) -> Done:
    return subprocess.run([BUILD_SCRIPT, *arguments], env=environ, capture_output=True, text=True)


@pytest.mark.slow
def test_an_unsupported_arch_is_an_error_before_any_download(
    rocm: Mapping[str, str], tmp_path: Path, this_python: str
) -> None:
    environ = {**rocm, "PYTORCH_ROCM_ARCH": "gfx942;gfx1030"}
    done = build(environ, "2.8.3", this_python, "2.13.0", "7.2", "--cache", tmp_path / "cache")
    assert (done.returncode, done.stdout) == (2, "")
    assert "error: flash-attn 2.8.3 ck on ROCm 7.2 does not support: gfx1030" in done.stderr
    assert "supported: gfx90a;gfx942;gfx950; the Triton backend supports it (--backend triton)" in done.stderr
    assert not (tmp_path / "cache").exists()


def test_without_arguments_it_prints_its_usage_and_installs_nothing() -> None:
    done = build({"PATH": os.defpath})
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: ./build_rocm.sh FLASH_ATTN PYTHON TORCH ROCM [--backend ck|triton]")
    assert done.stderr.count("error:") == 0


def test_ck_without_rocm_is_refused_with_an_alternative(tmp_path: Path) -> None:
    done = build(os.environ, "2.8.3", "3.11", "2.9.1", "6.4", "--cache", tmp_path / "cache")
    assert (done.returncode, done.stdout) == (4, "")
    assert "CK kernels need hipcc and this machine has no ROCm" in done.stderr
    assert "--backend triton" in done.stderr


def test_with_source_dir_it_runs_only_setup_py(tmp_path: Path) -> None:
    """As in a container: no factory, no network, no PATH to speak of; a setup.py that records stands for upstream."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "setup.py").write_text(
        "import os, pathlib, sys\n"
        "pathlib.Path(sys.argv[3], 'made.whl').write_text(os.environ['GPU_ARCHS'])\n"
        "print('a line of setup.py')\n"
    )
    environ = {
        "PATH": os.defpath,
        "SOURCE_DIR": str(source),
        "RAW_DIR": str(tmp_path / "raw"),
        "BUILD_PYTHON": sys.executable,
        "GPU_ARCHS": "gfx942",
    }
    done = build(environ)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{tmp_path}/raw/made.whl\n"
    assert "a line of setup.py" in done.stderr
    assert (tmp_path / "raw/made.whl").read_text() == "gfx942"
    assert json.loads((tmp_path / "raw/toolchain.json").read_text())["hip"] is None


def test_an_invalid_switch_is_an_error() -> None:
    done = build({**os.environ, "BUILD_TRITON_BACKEND": "yes"}, "2.8.3", "3.11", "2.13.0", "7.2")
    assert (done.returncode, done.stdout) == (2, "")
    assert "error: BUILD_TRITON_BACKEND is neither true nor false: yes" in done.stderr


def test_help_names_its_environment_variables() -> None:
    done = build(os.environ, "--help")
    assert done.returncode == 0
    for name in ("PYTORCH_ROCM_ARCH", "MAX_JOBS", "BUILD_TRITON_BACKEND", "ROCM_PATH"):
        assert name in done.stdout
