"""`wheelfactory run` reports cells that have no wheel."""

from __future__ import annotations

from pathlib import Path

import pytest

from wheelfactory.commands.run import _print_failures
from wheelfactory.core.errors import BuildError, ProgramError
from wheelfactory.pipeline.run import Failure, Worklist

CELL = "fa2.8.3-rocm6.4-torch2.9.1-cp311-ck"


def test_a_failed_build_is_reported_with_the_cause_in_its_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "cell.log"
    log.write_text("c++: fatal error: Killed signal terminated program cc1plus\n")
    worklist = Worklist(to_build=(), published=(), unbuildable=())
    failure = Failure(CELL, ProgramError("build failed", "build_rocm.sh (exit status 1)", "", log=log))
    _print_failures(worklist, [failure])
    error, hint = capsys.readouterr().err.splitlines()
    assert error == f"error: {CELL}: build failed: build_rocm.sh (exit status 1)"
    assert hint.startswith("hint: out of memory (c++: fatal error: Killed signal")
    assert hint.endswith(f"; the full log is {log}")


def test_unbuildable_cells_are_counted_for_each_reason(capsys: pytest.CaptureFixture[str]) -> None:
    reasons = ("no ROCm", "ROCm 6.2", "no ROCm")
    failures = tuple(Failure(f"cell-{n}", BuildError("x", why, "do this")) for n, why in enumerate(reasons))
    _print_failures(Worklist(to_build=(), published=(), unbuildable=failures), [])
    assert [line for line in capsys.readouterr().err.splitlines() if line.startswith("error")] == [
        "error: 2 selected cells cannot be built here: no ROCm (such as cell-0)",
        "error: 1 selected cell cannot be built here: ROCm 6.2 (such as cell-1)",
    ]
