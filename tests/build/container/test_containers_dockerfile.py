"""Cell -> the Dockerfile it is built in: where Python, torch and ROCm come from, what is in the context, the tag.

The reviewed Dockerfiles are in tests/data/dockerfiles; `REFRESH` writes them anew.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sysconfig
import tarfile
from collections.abc import Callable
from dataclasses import replace
from difflib import unified_diff
from pathlib import Path

import pytest

from small_matrix import Edit, slim_image, small_matrix
from wheelfactory.build.environments import build_requirements
from wheelfactory.build.image import Dockerfile, render_dockerfile
from wheelfactory.core.cell import Backend, Cell
from wheelfactory.core.files import MATRIX
from wheelfactory.matrix.expand import expand
from wheelfactory.matrix.load import load_matrix

CK = Backend.CK
SNAPSHOTS = Path(__file__).parents[2] / "data/dockerfiles"
REFRESH = "WRITE_SNAPSHOTS=1 .venv/bin/python -m pytest -q tests/build/container/test_containers_dockerfile.py"
HADOLINT = Path(sysconfig.get_path("scripts"), "hadolint")

SLIM = slim_image("6.4", "24.04")
PACKAGES: Edit = (
    """\
        python-path: /opt/venv/bin/python
        rocm-path: /opt/rocm
        torch: '2.9.1'
        source: documentation of ROCm 6.4
    source: index""",
    """\
        python-path: /opt/venv/bin/python
        torch: '2.9.1'
        source: documentation of ROCm 6.4
    source: index""",
)
"""The image with the torch and the Python of the cell has no ROCm that compiles."""

CP311 = Cell("2.8.3", "3.11", "2.9.1", "6.4", CK)
"""The last image of its ROCm has its Python and its torch."""
CP312 = replace(CP311, python="3.12")
"""An image of its ROCm has its Python, another one its torch."""
OLD = Cell("2.8.3", "3.11", "2.5.1", "6.2", CK)
"""The image of its ROCm has another Python and another torch."""

PYTHON = re.compile('wheelfactory.python="(.*)"')
KINDS: dict[str, Callable[[], Dockerfile]] = {
    "own-torch": lambda: render_dockerfile(small_matrix(), CP311),
    "own-python": lambda: render_dockerfile(small_matrix(), replace(OLD, python="3.10")),
    "other-python": lambda: render_dockerfile(small_matrix(), OLD),
    "slim": lambda: render_dockerfile(small_matrix(SLIM), CP312, slim=True),
    "rocm-packages": lambda: render_dockerfile(small_matrix(PACKAGES), CP311),
}


@pytest.fixture(scope="module")
def default() -> dict[tuple[object, ...], Dockerfile]:
    """Every image of matrix.yaml by ROCm, torch and Python."""
    matrix = load_matrix(MATRIX)
    images: dict[tuple[object, ...], Dockerfile] = {}
    for cell in expand(matrix).cells:
        for slim in (False, True) if matrix.rocm[cell.rocm].slim and not cell.amd_torch else (False,):
            dockerfile = render_dockerfile(matrix, cell, slim=slim)
            key = (cell.rocm, cell.torch_text, *PYTHON.findall(dockerfile.text), slim)
            images[key] = dockerfile
    return images


def compare(path: Path, now: str) -> None:
    """Fail with what changed since a file was reviewed; write it first, if that is asked for."""
    if os.environ.get("WRITE_SNAPSHOTS"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(now)
    reviewed = path.read_text().splitlines() if path.exists() else []
    changes = unified_diff(reviewed, now.splitlines(), "reviewed", "now", lineterm="", n=0)
    assert now.splitlines() == reviewed, "\n".join([*changes, f"if this is what you mean:\n{REFRESH}"])


@pytest.mark.parametrize("kind", KINDS)
def test_the_dockerfile_of_each_kind_is_the_reviewed_one(kind: str) -> None:
    compare(SNAPSHOTS / f"{kind}.Dockerfile", KINDS[kind]().text)


def test_every_image_has_one_name_and_one_tag(default: dict[tuple[object, ...], Dockerfile]) -> None:
    assert len({dockerfile.tag for dockerfile in default.values()}) == len(default)


def test_hadolint_finds_nothing_in_any_of_them(default: dict[tuple[object, ...], Dockerfile], tmp_path: Path) -> None:
    texts = [*(make().text for make in KINDS.values()), *(dockerfile.text for dockerfile in default.values())]
    # a linter sees no difference in a number, and it takes seconds to see that in each of them
    for text in {re.sub("[0-9]+", "0", text): text for text in texts}.values():
        (tmp_path / f"{len(list(tmp_path.iterdir()))}.Dockerfile").write_text(text)
    done = subprocess.run([HADOLINT, "--no-color", *tmp_path.iterdir()], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("cell", "edits"),
    [
        pytest.param(OLD, (), id="another torch"),
        pytest.param(CP312, (), id="the torch for another Python"),
        pytest.param(CP311, (("cxx11-abi: true", "cxx11-abi: false"),), id="another C++ ABI than users have"),
        pytest.param(CP311, (PACKAGES,), id="no compiler"),
    ],
)
def test_torch_comes_from_rocms_index_if_the_base_has(cell: Cell, edits: tuple[Edit, ...]) -> None:
    matrix = small_matrix(*edits)
    dockerfile = render_dockerfile(matrix, cell)
    install = f"--default-index {matrix.rocm[cell.rocm].index} \\\n        torch=={cell.torch}+rocm{cell.rocm}"
    assert dockerfile.text.count("--default-index") == dockerfile.text.count(install) == 1
    assert dockerfile.python == "/opt/build/bin/python"


def test_the_build_tools_of_the_factory_are_installed_into_it() -> None:
    tools = KINDS["own-torch"]().files["requirements.txt"].decode().splitlines()
    assert [line for line in build_requirements() if line not in tools] == ["torch==2.13.0+cpu"]
    assert set(tools) < set(build_requirements())
    assert {line.partition("==")[0] for line in tools} >= {"ninja", "setuptools", "wheel"}


DIGEST: Edit = ("tag: rocm/pytorch:6.2\n", f"tag: rocm/pytorch:6.2\n        digest: sha256:{'0' * 64}\n")


@pytest.mark.parametrize(
    ("edit", "changes"),
    [
        pytest.param(DIGEST, True, id="what the base holds"),
        pytest.param(("whl/rocm6.2", "whl/test/rocm6.2"), True, id="the index"),
        pytest.param(("source: index of ROCm 6.2", "source: a page on ROCm 6.2"), False, id="the source of a fact"),
    ],
)
def test_a_fact_that_changes_the_image_changes_its_tag_and_no_other(edit: Edit, changes: bool) -> None:
    before = render_dockerfile(small_matrix(), OLD)
    assert (render_dockerfile(small_matrix(edit), OLD).tag != before.tag) is changes
    assert replace(before, files={"requirements.txt": b"setuptools==1\n"}).tag != before.tag
    for cell in (replace(OLD, flash_attn="2.6.3"), replace(OLD, backend=Backend.TRITON)):
        assert render_dockerfile(small_matrix(), cell).tag == before.tag


def test_the_context_holds_the_dockerfile_and_its_files_for_all_to_read_in_the_same_bytes_every_time() -> None:
    dockerfile = replace(render_dockerfile(small_matrix(), OLD), files={"b": b"2", "a": b"1"})
    assert dockerfile.context() == replace(dockerfile, files={"a": b"1", "b": b"2"}).context()
    with tarfile.open(fileobj=io.BytesIO(dockerfile.context())) as archive:
        members = archive.getmembers()
        contents = {member.name: archive.extractfile(member).read() for member in members}  # type: ignore[union-attr]
    assert contents == {"Dockerfile": dockerfile.text.encode(), **dockerfile.files}
    assert {(member.mode, member.mtime, member.uid, member.gid) for member in members} == {(0o644, 0, 0, 0)}
