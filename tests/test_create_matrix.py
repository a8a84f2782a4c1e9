"""``python create_matrix.py``, run by users and workflows: one JSON line on stdout, messages on stderr."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterable
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from unittest.mock import patch

import pytest

from release_factory import plain_row
from wheelfactory.core.cell import Cell
from wheelfactory.core.errors import BAD_INPUT, DONE, FAILED
from wheelfactory.core.files import MATRIX
from wheelfactory.core.label import Label
from wheelfactory.core.published import MANIFEST_NAME
from wheelfactory.matrix.expand import GITHUB_MATRIX_LIMIT
from wheelfactory.release.manifest import manifest_bytes

ROOT = MATRIX.parent
SEED = ("--matrix", str(ROOT / "examples/seed-matrix.yaml"))
Done = subprocess.CompletedProcess[str]


def create_matrix(*arguments: str | Path) -> Done:
    """Run the script in this process."""
    command = [str(ROOT / "create_matrix.py"), *map(str, arguments)]
    out, err = StringIO(), StringIO()
    with (
        patch.object(sys, "argv", command),
        patch.object(sys, "path", [*sys.path]),
        redirect_stdout(out),
        redirect_stderr(err),
        pytest.raises(SystemExit) as done,
    ):
        runpy.run_path(command[0], run_name="__main__")
    return Done(command, int(done.value.code or 0), out.getvalue(), err.getvalue())


def start_create_matrix(*arguments: str | Path, python: Iterable[str] = (), **environ: str) -> Done:
    """Run the script as a program, in any folder."""
    command = [sys.executable, *python, ROOT / "create_matrix.py", *arguments]
    return subprocess.run(command, cwd="/", env={**os.environ, **environ}, capture_output=True, text=True)


def entries(done: Done) -> list[dict[str, str]]:
    assert done.returncode == DONE, done.stderr
    (line,) = done.stdout.splitlines()
    matrix = json.loads(line)
    assert list(matrix) == ["include"]
    included: list[dict[str, str]] = matrix["include"]
    return included


def ids(done: Done) -> list[str]:
    return [entry["id"] for entry in entries(done)]


def assert_refused(done: Done, what: str, hint: str, code: int = BAD_INPUT) -> None:
    """The error is one line and the hint another, stdout is empty, and no traceback is shown."""
    error, shown = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (code, "")
    assert error.startswith(f"error: {what}")
    assert shown.startswith("hint: ")
    assert hint in shown


@pytest.fixture(scope="module")
def default() -> Done:
    return create_matrix()


@pytest.fixture(scope="module")
def seed() -> Done:
    return create_matrix(*SEED, "--explain")


def manifest(cells: Iterable[str]) -> bytes:
    return manifest_bytes(
        plain_row(
            f"flash_attn-{cell.flash_attn}+{Label.from_cell(cell)}-{number}-{cell.python_tag}-none-any.whl",
            project="flash-attn",
            version=f"{cell.flash_attn}+{Label.from_cell(cell)}",
            cell=cell.id,
        )
        for number, cell in enumerate(map(Cell.parse, cells))
    )


def test_more_cells_than_github_takes_give_a_warning(default: Done) -> None:
    count = len(entries(default))
    assert count > GITHUB_MATRIX_LIMIT
    assert default.stderr == (
        f"warning: {count} cells exceed GitHub's limit of 256 jobs in one matrix; "
        "use --shards, or select fewer with --only\n"
    )


def test_shards_are_matrices_that_github_takes_and_together_are_all_cells(default: Done) -> None:
    done = create_matrix("--shards")
    shards = [json.loads(shard["cells"])["include"] for shard in entries(done)]
    assert done.stderr == ""
    assert all(0 < len(shard) <= GITHUB_MATRIX_LIMIT for shard in shards)
    assert [entry for shard in shards for entry in shard] == entries(default)


def test_explain_gives_a_reason_for_each_refused_combination_then_the_totals(seed: Done) -> None:
    assert create_matrix(*SEED).stdout == seed.stdout
    lines = seed.stderr.splitlines()
    reasons = {line.partition(": ")[2] for line in lines if line.startswith("refused ")}
    assert {
        "flash-attn 2.6.3 has no triton backend",
        "torch 2.6.0 is not on the ROCm 6.2 index; it is on 6.1",
    } < reasons
    assert lines[-2:] == [
        "ck: 42 combinations = 27 in 27 cells + 15 refused",
        "triton: 36 combinations = 12 in 4 cells + 24 refused",
    ]


@pytest.mark.parametrize("name", ["manifest", f"release/{MANIFEST_NAME}"], ids=["manifest-file", "release-directory"])
def test_published_cells_are_left_out(seed: Done, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(manifest(ids(seed)[2:]))
    published = path.parent if path.name == MANIFEST_NAME else path
    assert ids(create_matrix(*SEED, "--published", published)) == ids(seed)[:2]


def test_everything_published_is_an_empty_matrix_and_no_failure(seed: Done, tmp_path: Path) -> None:
    (tmp_path / MANIFEST_NAME).write_bytes(manifest(ids(seed)))
    done = start_create_matrix(*SEED, "--published", tmp_path)
    assert (done.returncode, done.stdout) == (DONE, '{"include":[]}\n')
    assert done.stderr.startswith("nothing to build")


def test_heavy_packages_are_not_imported(tmp_path: Path) -> None:
    for package in ("torch", "requests", "pypi_simple", "auditwheel", "zstandard", "jinja2", "rich"):
        (tmp_path / f"{package}.py").write_text(f"raise SystemExit('{package} was imported')\n")
    assert entries(start_create_matrix("--explain", PYTHONPATH=str(tmp_path)))


@pytest.fixture
def without_site_packages(tmp_path: Path) -> Callable[[str], Done]:
    """Run it with the installed packages, except those whose names contain `missing`."""

    def run(missing: str) -> Done:
        for entry in Path(sysconfig.get_path("purelib")).iterdir():
            if missing not in entry.name:
                (tmp_path / entry.name).symlink_to(entry)
        return start_create_matrix(python=["-S"], PYTHONPATH=str(tmp_path), PYTHONHASHSEED="1")

    return run


def test_it_prints_the_same_without_being_installed(
    default: Done, without_site_packages: Callable[[str], Done]
) -> None:
    done = without_site_packages("wheelfactory")
    assert done.stdout == default.stdout, done.stderr


def test_a_missing_dependency_is_named(without_site_packages: Callable[[str], Done]) -> None:
    done = without_site_packages("packaging")
    assert_refused(done, "missing Python package: packaging", "./factory matrix", code=FAILED)
