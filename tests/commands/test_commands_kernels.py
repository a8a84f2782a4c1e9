"""`wheelfactory kernels` and `--kernels`: bad options and missing inputs end in one error line and a hint."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from command_line import Cli
from kernel_archive_factory import fill
from small_matrix import SMALL
from wheelfactory.core.errors import BAD_INPUT, BUILD_FAILED, FAILED

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


def test_an_unknown_set_is_refused_with_the_command_that_lists_sets(refused: Refused) -> None:
    text = refused(BAD_INPUT, "kernels", "fa2.8.3-rocm6.4-gfx90a")
    assert "unknown kernel set" in text
    assert "`wheelfactory plan --all`" in text


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


def test_a_set_that_was_never_uploaded_cannot_be_downloaded(refused: Refused, tmp_path: Path) -> None:
    text = refused(FAILED, "kernels", SET, "--download", "release")
    assert f": kernels-{SET}-" in text
    assert "--shard" in text
    assert list((tmp_path / "kernels").iterdir()) == []


def test_compiling_without_rocm_is_refused(refused: Refused, tmp_path: Path) -> None:
    assert "CK kernels need hipcc" in refused(BUILD_FAILED, "kernels", SET)
    assert not list(tmp_path.glob("kernels/*"))


def test_archives_must_be_in_a_directory(refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "not a directory" in refused(BAD_INPUT, "build", CELL, "--kernels", "file")


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
