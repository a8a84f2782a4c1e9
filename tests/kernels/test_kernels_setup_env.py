"""How far a compile came that was ended from outside: by what it has left so far, if that is anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

from kernel_archive_factory import KEY, OBJECTS
from wheelfactory.build.executor import BuildHost
from wheelfactory.build.recipe import Recipe
from wheelfactory.build.setup_py import SetupRun
from wheelfactory.build.sources import Source
from wheelfactory.kernels.compiler.request import FAILED, CompileRequest, CompileResult
from wheelfactory.kernels.setup_env import read_interrupted_result

BEGUN = CompileResult(state=FAILED, key=KEY.digest, sources=tuple(OBJECTS), reused=1, compiled=0, started=1.0)


def setup(scratch: Path) -> SetupRun:
    """A run of setup.py of which only its folder counts."""
    return SetupRun(cast("Recipe", None), cast("Source", None), cast("BuildHost", None), scratch)


def test_an_interrupted_compile_has_a_result(tmp_path: Path) -> None:
    order = CompileRequest(ninja="", kernels="", ledger="", result_file=str(tmp_path / "result.json"), jobs=1)
    BEGUN.write(order)
    assert read_interrupted_result(setup(tmp_path)) == BEGUN


def test_a_compile_that_was_interrupted_early_has_no_result(tmp_path: Path) -> None:
    assert read_interrupted_result(setup(tmp_path)) is None


def test_a_refused_compile_has_no_result(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text(json.dumps({"what": "no", "which": "it", "hint": ""}))
    assert read_interrupted_result(setup(tmp_path)) is None
