"""A few seconds of fuzzing for each reader. Run it longer when you change a reader: `python -m fuzz TARGET`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


RUNS_AND_FLOOR = {
    "attestation": (250, 180),
    "bundles": (2000, 110),
    "elf": (2000, 310),
    "json": (2000, 50),
    "kernels": (250, 260),
    "manifest": (400, 220),
    "matrix": (150, 550),
    "packages": (2000, 25),
    "text": (2000, 20),
    "wheel": (250, 650),
}
"""How many inputs each target reads, and the edges that they reach at least: more than the door of the reader."""


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all targets; one process imports the code that is watched, which takes longer than to fuzz it."""
    pytest.importorskip("atheris", reason="has no wheel for this Python")
    folder = tmp_path_factory.mktemp("fuzz")
    targets = [f"{target}:{runs}" for target, (runs, _) in RUNS_AND_FLOOR.items()]
    subprocess.run(
        [sys.executable, "-m", "fuzz", *targets, "--folder", folder], cwd=Path(__file__).parents[1], check=False
    )
    return folder


@pytest.mark.parametrize("target", RUNS_AND_FLOOR)
def test_only_documented_errors_come_out_of_a_reader(logs: Path, target: str) -> None:
    runs, floor = RUNS_AND_FLOOR[target]
    log = (logs / target / "log").read_text(encoding="utf-8", errors="replace")
    assert not list((logs / target).glob("*-*")), log[-5000:]
    executed = re.search(r"number_of_executed_units: (\d+)", log)
    assert executed and int(executed[1]) >= runs, log[-5000:]
    assert int(re.findall(r"cov: (\d+)", log)[-1]) >= floor
