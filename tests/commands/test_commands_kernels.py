"""`wheelfactory kernels`, `--kernels` and `run`: missing inputs and failed cells end in one error line and a hint."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from command_line import Cli, run_command
from kernel_archive_factory import fill
from release_factory import additions, flash_attn_wheel, make_release, stub_wheel
from small_matrix import SMALL
from wheelfactory.commands import run
from wheelfactory.commands.run import _print_failures
from wheelfactory.core.errors import BAD_INPUT, BUILD_FAILED, DONE, FAILED, NOTHING_TO_DO, BuildError, ProgramError
from wheelfactory.pipeline.build import Failure
from wheelfactory.pipeline.run import Worklist
from wheelfactory.release.directory import DirectoryPublisher
from wheelfactory.release.transaction import publish

SET = "fa2.8.3-rocm6.4-gfx942"
CELL = "fa2.8.3-rocm6.4-torch2.9.1-cp311-ck"

Refused = Callable[..., str]


@pytest.fixture
def refused(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Refused:
    """Run a command that must fail with this exit code and print nothing on stdout; returns its error and hint."""
    (tmp_path / "matrix.yaml").write_text(SMALL)
    monkeypatch.chdir(tmp_path)
    for name in ("ROCM_PATH", "ROCM_HOME"):
        monkeypatch.delenv(name, raising=False)

    def run(code: int, *arguments: str) -> str:
        shown = cli(*arguments, "--matrix", "matrix.yaml", "--cache", "cache", "--executor", "local")
        assert (shown.code, shown.out) == (code, ""), shown.err
        *_, error, hint = [line for line in shown.err.splitlines() if line.startswith(("error: ", "hint: "))]
        assert (error[:7], hint[:6]) == ("error: ", "hint: ")
        return f"{error}\n{hint}"

    return run


@pytest.mark.parametrize(
    ("code", "arguments", "error", "hint"),
    [
        (BAD_INPUT, "kernels fa2.8.3-rocm6.4-gfx90a", "unknown kernel set", "`wheelfactory plan --all`"),
        (FAILED, f"kernels {SET} --download .", f": kernels-{SET}-", "--shard"),
        (BAD_INPUT, f"kernels {SET} --download release", "no such directory: release", ""),
        (BUILD_FAILED, f"kernels {SET}", "CK kernels need hipcc", ""),
        (BAD_INPUT, f"build {CELL} --kernels archives", "no such directory: archives", ""),
    ],
    ids=["unknown", "never uploaded", "no such release", "no ROCm", "archives in no folder"],
)
def test_a_set_that_cannot_be_had_is_refused(
    refused: Refused, tmp_path: Path, code: int, arguments: str, error: str, hint: str
) -> None:
    text = refused(code, *arguments.split())
    assert error in text and hint in text
    assert not list(tmp_path.glob("kernels/*"))


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ("--shard 3/2", "--shard"),
        ("--budget=-1", "--budget"),
        ("--cache-size 20", "argument --cache-size: not a size: '20', one looks like 500MB, 20GB or 1.5TB"),
        ("--cache-size 0GB", "argument --cache-size: not a number above zero: '0'"),
        ("--measured-costs gone.jsonl", "not a file: gone.jsonl"),
        ("--merge --budget 1", "--merge with --budget"),
        ("--download release --measured-costs matrix.yaml", "--download with --measured-costs"),
        ("--prove --remote grpcs://x:1", "--prove with --remote"),
        ("--download release --merge", "--merge with --download"),
        ("--prove --shard 1/2", "--prove with --shard"),
        ("--upload release", "--upload without --merge"),
    ],
)
def test_bad_and_contradictory_options_are_refused(options: str, error: str, refused: Refused) -> None:
    assert error in refused(BAD_INPUT, "kernels", SET, *options.split()).splitlines()[0]


@pytest.mark.parametrize(
    "arguments", [f"run --only {CELL}", f"kernels {SET}", f"kernels {SET} --merge", f"kernels {SET} --download d"]
)
def test_a_command_that_fails_keeps_the_store_within_a_size_too(
    arguments: str, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "matrix.yaml").write_text(SMALL)
    for name in ("ROCM_PATH", "ROCM_HOME"):
        monkeypatch.delenv(name, raising=False)
    store = fill(tmp_path / "cache/kernels")
    os.utime(store.folder / "set.json", (0, 0))

    def run(size: str) -> str:
        options = ("--matrix", "matrix.yaml", "--cache", "cache", "--executor", "local", "--cache-size", size)
        done = cli(*arguments.split(), *options)
        assert done.code != 0
        return done.err

    assert "removed kernels" not in run("1MB")
    assert store.folder.is_dir()
    assert f"removed kernels last used on 1970-01-01: {store.folder}, 0.00 GB freed\n" in run("0.001MB")
    assert not store.folder.exists()


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
