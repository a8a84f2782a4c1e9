"""A few seconds of fuzzing for each reader. Run it longer when you change a reader: `python -m fuzz`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("target", "runs", "floor"),
    [
        ("attestation", 250, 180),
        ("bundles", 2000, 110),
        ("elf", 2000, 310),
        ("json", 2000, 50),
        ("kernels", 250, 260),
        ("manifest", 400, 220),
        ("matrix", 150, 550),
        ("packages", 2000, 45),
        ("text", 2000, 20),
        ("wheel", 250, 650),
    ],
)
def test_only_documented_errors_come_out_of_a_reader(tmp_path: Path, target: str, runs: int, floor: int) -> None:
    pytest.importorskip("atheris", reason="has no wheel for this Python")

    done = subprocess.run(
        [sys.executable, "-m", "fuzz", target, "--runs", str(runs), "--folder", tmp_path],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )

    assert done.returncode == 0, done.stderr[-5000:]
    executed = re.search(r"number_of_executed_units: (\d+)", done.stderr)
    assert executed and int(executed[1]) >= runs
    assert int(re.findall(r"cov: (\d+)", done.stderr)[-1]) >= floor  # edges: it saw the reader, and not only its door
