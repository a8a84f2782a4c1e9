"""`wheelfactory kernels` and `--kernels`: what a person sees when something is not as it should be."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from small_matrix import SMALL, small_matrix
from wheelfactory.core.errors import BAD_INPUT, BUILD_FAILED, FAILED
from wheelfactory.kernels.kernel_set import group_kernel_sets
from wheelfactory.matrix.expand import expand

SET = "fa2.8.3-rocm6.4-gfx942-cxx11"
CELL = "fa2.8.3-rocm6.4-torch2.9.1-cp311-ck"


def run(folder: Path, *arguments: str | Path, **environ: str) -> subprocess.CompletedProcess[str]:
    matrix = folder / "matrix.yaml"
    matrix.write_text(SMALL)
    command = [sys.executable, "-m", "wheelfactory", *arguments, "--matrix", matrix, "--cache", folder / "cache"]
    settings = {"PATH": os.environ["PATH"], **environ}
    return subprocess.run(command, capture_output=True, text=True, env=settings, cwd=folder)


def refused(done: subprocess.CompletedProcess[str], code: int, *said: str) -> None:
    """Ended with this code, an error line and a hint, and nothing on stdout."""
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    *_, error, hint = [line for line in done.stderr.splitlines() if line.startswith(("error:", "hint:"))]
    assert error.startswith("error: ")
    assert hint.startswith("hint: ")
    for text in said:
        assert text in error + hint


def test_the_set_of_the_examples_is_one_of_the_small_matrix() -> None:
    matrix = small_matrix()
    assert SET in [kernel_set.id for kernel_set in group_kernel_sets(matrix, expand(matrix).cells)]


def test_a_set_that_is_none_is_refused_with_the_command_that_lists_sets(tmp_path: Path) -> None:
    refused(run(tmp_path, "kernels", "fa2.8.3-rocm6.4-gfx90a-cxx11"), BAD_INPUT, "unknown kernel set", "`wheelfactory plan`")


@pytest.mark.parametrize("shard", ["0/2", "3/2", "1", "a/b", "1/0"])
def test_a_shard_that_is_none_is_refused(shard: str, tmp_path: Path) -> None:
    refused(run(tmp_path, "kernels", SET, "--shard", shard), BAD_INPUT, "bad arguments", "--shard")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--merge", "--shard", "1/2"], "--merge with --shard"),
        (["--merge", "--budget", "1"], "--merge with --budget"),
        (["--merge", "--ledger", "matrix.yaml"], "--merge with --ledger"),
        (["--download", "release", "--shard", "1/2"], "--download with --shard"),
        (["--download", "release", "--merge"], "--download with --merge"),
        (["--upload", "release"], "--upload without --merge"),
        (["--upload", "release", "--shard", "1/2"], "--upload without --merge"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_options_that_say_two_things_are_refused(options: list[str], said: str, tmp_path: Path) -> None:
    refused(run(tmp_path, "kernels", SET, *options), BAD_INPUT, said)


def test_what_is_not_on_the_shelf_cannot_be_taken(tmp_path: Path) -> None:
    refused(
        run(tmp_path, "kernels", SET, "--download", "release"), FAILED, f"not on the shelf: kernels-{SET}-", "--shard"
    )
    assert list((tmp_path / "kernels").iterdir()) == []


def test_joining_where_no_shards_are_is_refused(tmp_path: Path) -> None:
    refused(run(tmp_path, "kernels", SET, "--merge"), BAD_INPUT, "no shards to merge", "--shard 1/N")


def test_a_ledger_that_is_not_there_is_refused(tmp_path: Path) -> None:
    refused(run(tmp_path, "kernels", SET, "--ledger", "gone.jsonl"), BAD_INPUT, "not a file: gone.jsonl")


@pytest.mark.parametrize("hours", ["0", "-1", "many", "nan"])
def test_a_budget_that_is_no_time_is_refused(hours: str, tmp_path: Path) -> None:
    refused(run(tmp_path, "kernels", SET, f"--budget={hours}"), BAD_INPUT, "--budget")


def test_kernels_are_not_compiled_without_rocm_and_the_error_says_so(tmp_path: Path) -> None:
    refused(run(tmp_path, "kernels", SET), BUILD_FAILED, "CK kernels need hipcc")
    assert not list(tmp_path.glob("kernels/*"))


def test_archives_that_are_in_a_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refused(run(tmp_path, "build", CELL, "--kernels", "file"), BAD_INPUT, "not a directory")
