"""Random calls: the fallback is right on the CPU, and a wrong package is found."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from wheelfactory.build.environments import make_build_environment
from wheelfactory.core.files import ROOT

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).with_name("random_cases.py")
SOURCES = ROOT / "packages/flash_attention_amd/src"


def run(cache: Path, sources: Path, count: int) -> dict[str, Any]:
    python = make_build_environment(cache).python
    command: list[str | Path] = [python, "-B", "-W", "ignore", PROGRAM, "flash_attention_amd", "cpu", str(count), "1"]
    environ = {"PYTHONPATH": str(sources), "OMP_NUM_THREADS": "1"}  # threads that wait for each other compute nothing
    done = subprocess.run(command, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


def test_the_fallback_is_right(cache: Path) -> None:
    assert run(cache, SOURCES, 30) == {"counts": {"right": 30}, "wrong": []}


def test_one_percent_of_a_result_is_found(cache: Path, tmp_path: Path) -> None:
    package = tmp_path / "flash_attention_amd"
    package.mkdir()
    for path in (SOURCES / "flash_attention_amd").glob("*.py"):
        (package / path.name).write_bytes(path.read_bytes())
    layout = package / "layout.py"
    text = layout.read_text()
    assert "return out.transpose(1, 2).contiguous()" in text
    layout.write_text(text.replace("return out.transpose(1, 2).contiguous()", "return out.transpose(1, 2) * 1.01"))

    counts = run(cache, tmp_path, 12)["counts"]
    assert counts["wrong"] > 1
