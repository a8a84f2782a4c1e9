"""What follows from matrix.yaml: the files of this checkout, and what one edit of the matrix changes in them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from refresh.derived import CELLS, derived_files, workflow_settings, write_derived
from small_matrix import small_matrix
from wheelfactory.core.errors import DONE, FactoryError
from wheelfactory.core.files import MATRIX, ROOT
from wheelfactory.matrix.load import load_matrix

NEW_ROCM = """\
  '{rocm}':
    torch: ['{torch}']
    index: https://download.pytorch.org/whl/rocm{rocm}
    archs: [gfx942, gfx1100]
    images:
      - tag: rocm/pytorch:rocm{rocm}_ubuntu22.04_py3.10_pytorch_release_{torch}
        distribution: ubuntu22.04
        glibc: '2.35'
        python: '3.10'
        python-path: /opt/venv/bin/python
        rocm-path: /opt/rocm
        torch: '{torch}'
        source: documentation
    source: the index of that ROCm

"""


def refresh(checkout: Path) -> subprocess.CompletedProcess[str]:
    command: list[str | Path] = [sys.executable, checkout / "scripts/refresh_matrix.py"]
    environ = {"PYTHONPATH": str(checkout / "src")}
    return subprocess.run(command, cwd=checkout, env=environ, capture_output=True, text=True)


def test_the_files_of_this_checkout_are_up_to_date() -> None:
    """`cells.txt` is the one reviewed list of what the matrix builds, `workflows.txt` of what the workflows may do."""
    outdated = [
        str(path.relative_to(ROOT))
        for path, text in derived_files(ROOT, load_matrix(MATRIX)).items()
        if path.read_text() != text
    ]
    assert outdated == [], "run ./factory refresh, and read what it changes"


def test_the_command_writes_what_an_edit_of_the_matrix_changes(checkout: Path) -> None:
    matrix, cells, readme = checkout / "matrix.yaml", checkout / CELLS, checkout / "README.md"
    newest = next(iter(load_matrix(matrix).rocm))
    torch = load_matrix(matrix).rocm[newest].torch[0]
    added = NEW_ROCM.format(rocm="99.0", torch=torch)
    matrix.write_text(matrix.read_text().replace("\nrocm:\n", f"\nrocm:\n{added}", 1))
    before, table = cells.read_text().splitlines(), readme.read_text()
    done = refresh(checkout)
    new = [cell for cell in cells.read_text().splitlines() if cell not in before]
    assert new
    listed, page = done.stdout.splitlines()
    assert (done.returncode, listed) == (DONE, f"written    {CELLS}: {len(new)} lines more, 0 fewer"), done.stderr
    assert page.startswith("written    README.md: ")
    assert all(f"-rocm99.0-torch{torch}-" in cell for cell in new)
    assert f"| 99.0 | {torch}" in readme.read_text()
    assert readme.read_text().partition("<!-- ")[0] == table.partition("<!-- ")[0]
    again = refresh(checkout)
    assert (again.returncode, again.stdout) == (DONE, "")
    matrix.write_text(matrix.read_text().replace(added, ""))
    assert refresh(checkout).stdout.startswith(f"written    {CELLS}: 0 lines more, {len(new)} fewer\n")


SETTINGS = """\
name: Title
on: {push: {tags: ['v*']}, workflow_call: }
jobs:
  one:
    permissions: {}
    steps:
      - &step
        name: Say
        uses: some/action@0123 # v1
        with: {name: wheel, retention-days: 7}
  two: {needs: [one], steps: [*step, run: "a\\nb"]}
"""


def test_settings_are_listed_in_each_job_without_titles_and_versions(tmp_path: Path) -> None:
    (tmp_path / ".github/workflows").mkdir(parents=True)
    (tmp_path / ".github/workflows/a.yml").write_text(SETTINGS)
    assert workflow_settings(tmp_path).replace("workflows/a.yml: ", "").splitlines() == [
        "on push tags [] = v*",
        'on workflow_call = ""',
        "jobs one permissions = {}",
        "jobs one steps [Say] uses = some/action",
        "jobs one steps [Say] with name = wheel",
        "jobs one steps [Say] with retention-days = 7",
        "jobs two needs [] = one",
        "jobs two steps [Say] uses = some/action",
        "jobs two steps [Say] with name = wheel",
        "jobs two steps [Say] with retention-days = 7",
        'jobs two steps [] run = "a\\nb"',
    ]


def test_an_entry_out_of_order_is_refused_and_nothing_written(checkout: Path) -> None:
    oldest_first = small_matrix().model_copy(update={"rocm": dict(reversed(small_matrix().rocm.items()))})
    with pytest.raises(FactoryError, match=r"matrix\.yaml is out of order: rocm: 6\.4 stands below 6\.2"):
        list(write_derived(checkout, oldest_first))
    assert (checkout / CELLS).read_text() == (ROOT / CELLS).read_text()


def test_a_page_without_its_marks_is_not_written(checkout: Path) -> None:
    readme = checkout / "README.md"
    readme.write_text(readme.read_text().replace("<!-- end -->", ""))
    with pytest.raises(FactoryError, match=r"lacks its marks: .*README.md: <!-- ./factory matrix --table -->"):
        list(write_derived(checkout, small_matrix()))
    assert (checkout / CELLS).read_text() == (ROOT / CELLS).read_text()
