"""Logs of the real setup.py, hipify, torch and ninja, with a stand-in for hipcc: by hand, and by this program."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rocm_machine import ARCHS, make_machine
from small_release import DEVICE_KERNELS, KERNELS, SMALL_KERNELS, make_small_release
from wheelfactory.build.sources import fetch_source, unpack_source
from wheelfactory.cli import main
from wheelfactory.core.errors import DONE
from wheelfactory.core.files import MATRIX
from wheelfactory.matrix.load import load_matrix

pytestmark = pytest.mark.slow

CELL = f"fa2.8.3-rocm7.2-torch2.13.0-cp3{sys.version_info[1]}-ck"
ONE_HEAD_DIM = 704
"""Objects of 2.8.3 with one head dim: 697 generated and 7 bindings."""

DIES_AT_KERNELS = """\
#!/bin/sh
case " $* " in
    *" -### "* | *" -dM "* | *" -emit-pch "* | *_api.hip* | " --version ") exec "${{0%/*}}/alive" "$@" ;;
esac
echo '{message}' >&2
exit 254
"""


def explained(log: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    assert main(["explain", str(log), "--json"]) == DONE
    return json.loads(capsys.readouterr().out)


def test_what_setup_py_prints_by_hand_is_understood(
    rocm: Mapping[str, str], cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = fetch_source("2.8.3", load_matrix(MATRIX).flash_attn["2.8.3"], cache / "sources", rocm)
    settings = {"GPU_ARCHS": "gfx942;gfx950", "MAX_JOBS": "3", "OPT_DIM": "64"}
    environ = {**rocm, **settings, "FLASH_ATTENTION_FORCE_BUILD": "TRUE", "BUILD_TARGET": "rocm"}
    log = tmp_path / "build.log"
    with log.open("wb") as file:
        command = ["python", "setup.py", "bdist_wheel"]
        tree = unpack_source(source, tmp_path / "source")
        done = subprocess.run(command, cwd=tree, env=environ, stdout=file, stderr=subprocess.STDOUT)
    assert done.returncode == 0, log.read_text()[-2000:]

    report = explained(log, capsys)
    assert (report["state"], report["cause"], report["torch"]) == ("finished", None, "2.13.0+rocm7.2")
    assert (report["progress"]["done"], report["progress"]["total"]) == (ONE_HEAD_DIM, ONE_HEAD_DIM)
    assert [entry["arch"] for entry in report["archs"]] == ["gfx942", "gfx950"]
    assert report["command"]["unknown"] == []
    assert report["command"]["compiler"] == f"{rocm['ROCM_PATH']}/bin/hipcc"

    half = tmp_path / "half.log"
    text = log.read_text()
    half.write_text(text[: text.index(f"[353/{ONE_HEAD_DIM}]")])
    report = explained(half, capsys)
    assert (report["state"], report["progress"]["left"], report["remaining_time"]["archs"]) == ("running", 352, 2)
    assert report["remaining_time"]["left_s"] > 0


def test_a_build_of_this_program_that_the_kernel_killed_is_told_and_explained_as_out_of_memory(
    small_rocm: Mapping[str, str], cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = shutil.copytree(small_rocm["ROCM_PATH"], tmp_path / "rocm", symlinks=True)
    hipcc, message = broken / "bin/hipcc", "clang++: error: unable to execute command: Killed"
    hipcc.rename(broken / "bin/alive")
    hipcc.write_text(DIES_AT_KERNELS.format(message=message))
    hipcc.chmod(0o755)
    environ = {**small_rocm, "ROCM_PATH": str(broken), "ROCM_HOME": str(broken)}
    machine = make_machine(tmp_path / "cache", cache, environ)
    for shared in ("sources", "source-lists"):
        (machine.cache / shared).unlink()  # the small release must not get into the shared cache
    matrix = make_small_release(machine.cache, tmp_path)

    done = machine.run("build", CELL, "--dest", tmp_path / "dist", "--matrix", matrix, MAX_JOBS="2")
    log = machine.cache / "logs" / f"{CELL}.log"
    assert (done.returncode, done.stdout) == (4, "")
    assert "error: build failed: build_rocm.sh (exit status 1)\n" in done.stderr
    assert f"\nhint: out of memory ({message}): " in done.stderr
    assert done.stderr.endswith(f"; the full log is {log}\n")
    assert not list((tmp_path / "dist").glob("*"))

    report = explained(log, capsys)
    assert report["state"] == "failed"
    assert (report["cause"]["name"], report["cause"]["evidence"]) == ("out of memory", message)
    assert report["progress"]["total"] == len(ARCHS) * DEVICE_KERNELS + KERNELS + 1, "and the binding"
    assert report["kernel"]["name"] in SMALL_KERNELS
    assert [entry["arch"] for entry in report["archs"]] == list(ARCHS)
    assert report["command"]["unknown"] == []
