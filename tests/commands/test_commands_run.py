"""What `run` tells of cells that have no wheel."""

from __future__ import annotations

from pathlib import Path

import pytest

from wheelfactory.commands.run import _tell_failures
from wheelfactory.core.errors import ProgramError
from wheelfactory.pipeline.run import Failure, Worklist

CELL = "fa2.8.3-rocm6.4-torch2.9.1-cp311-ck"
NOTHING = Worklist(to_build=(), published=(), unbuildable=())


def test_a_failed_build_is_told_with_the_cause_that_its_log_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "cell.log"
    log.write_text("c++: fatal error: Killed signal terminated program cc1plus\n")
    _tell_failures(NOTHING, [Failure(CELL, ProgramError("build failed", "build_rocm.sh (exit status 1)", "", log=log))])
    error, hint = capsys.readouterr().err.splitlines()
    assert error == f"error: {CELL}: build failed: build_rocm.sh (exit status 1)"
    assert hint.startswith("hint: out of memory (c++: fatal error: Killed signal")
    assert hint.endswith(f"; the full log is {log}")
