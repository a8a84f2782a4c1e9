"""`wheelfactory run` reports cells that have no wheel."""

from __future__ import annotations

from pathlib import Path

import pytest

from command_line import run_command
from release_factory import additions, flash_attn_wheel, make_release, stub_wheel
from wheelfactory.commands import run
from wheelfactory.commands.run import _print_failures
from wheelfactory.core.errors import DONE, NOTHING_TO_DO, BuildError, ProgramError
from wheelfactory.pipeline.run import Failure, Worklist
from wheelfactory.release.directory import DirectoryPublisher
from wheelfactory.release.transaction import publish

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


@pytest.mark.parametrize("is_missing", [True, False], ids=["flash-attention-amd is missing", "nothing is missing"])
def test_a_run_that_adds_only_flash_attention_amd_has_done_something(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, is_missing: bool
) -> None:
    """An interrupted run may have published its cells only; the next one completes the release."""
    cell, folder = "fa2.8.3-rocm7.2-torch2.13.0-py3-triton", tmp_path / "release"
    make_release(folder, [flash_attn_wheel(tmp_path, cell)])

    def add_missing(
        _: object, worklist: Worklist, publisher: DirectoryPublisher, *__: object, **___: object
    ) -> tuple[()]:
        assert [published.id for published in worklist.published] == [cell]
        if is_missing:
            publish(publisher, additions([stub_wheel(tmp_path, "flash_attention_amd", "0.1.0")]))
        return ()

    monkeypatch.setattr(run, "run_worklist", add_missing)
    done = run_command(
        capsys, "run", "--quick", "--only", cell, "--dest", folder, "--cache", tmp_path / "cache", "--executor", "local"
    )
    assert done.code == (DONE if is_missing else NOTHING_TO_DO), done.err
    assert ("nothing to build: 1 selected cell already published" in done.err) == (not is_missing)
