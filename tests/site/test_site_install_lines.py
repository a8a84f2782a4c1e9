"""The install commands that a run prints: for its wheels, and for a wheel that works without ROCm."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from release_factory import plain_row
from wheelfactory.build.environments import cpu_torch_requirement
from wheelfactory.core.cell import Backend, Cell
from wheelfactory.core.files import MATRIX
from wheelfactory.core.label import Label
from wheelfactory.matrix.facts import Matrix
from wheelfactory.matrix.load import load_matrix
from wheelfactory.release.manifest import WheelRow
from wheelfactory.site.index import (
    directory_install_lines,
    file_install_line,
    github_pages_url,
    install_templates,
    pick_smoke_test_wheel,
    smoke_test_line,
)

TORCH = cpu_torch_requirement().removeprefix("torch==").partition("+")[0]
"""The torch whose CPU build replaces ROCm's."""


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    return load_matrix(MATRIX)


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    options = ("--extra-index-url", "https://cpu.example")
    monkeypatch.setattr("wheelfactory.site.index.cpu_torch_options", lambda: options)


def a_row(cell: Cell, yanked: str | None = None) -> WheelRow:
    """The row of the wheel of a cell."""
    label = str(Label.from_cell(cell))
    named = {"project": "flash-attn", "version": f"{cell.flash_attn}+{label}", "cell": cell.id, "label": label}
    return plain_row(f"flash_attn-{cell.flash_attn}+{label}-py3-none-any.whl", yanked=yanked, **named)


def triton(flash_attn: str, rocm: str, torch: str = TORCH) -> Cell:
    """A cell that can be tried anywhere, if torch is that which can be had for the CPU."""
    return Cell.from_axes(flash_attn, "3", torch, rocm, Backend.TRITON)


ROW = a_row(triton("2.8.3", "7.2"))
LABEL = f"rocm72torch{TORCH.rpartition('.')[0]}triton"


def test_the_install_line_names_the_index_of_the_wheel_and_no_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    line = directory_install_lines([ROW], Path("/wheelhouse"))[0]
    index = f"file:///wheelhouse/simple/rocm72/torch{TORCH.rpartition('.')[0]}/triton/"
    assert line == f"pip install --index-url {index} flash-attn"
    for name in ("with blank", "a'b", 'a"b', "a$b", "a+b", "a%20b", "a#b", "été"):
        folder = tmp_path / name
        words = shlex.split(directory_install_lines([ROW], folder)[0])
        (index,) = (word for word in words if word.startswith("file://"))
        assert index.startswith(f"{folder.as_uri()}/simple/"), "it survives the shell"
    monkeypatch.chdir(tmp_path)
    assert f"{tmp_path.as_uri()}/wheelhouse/simple/" in directory_install_lines([ROW], Path("wheelhouse"))[0]


def test_the_trial_line_pins_the_wheel_its_triton_and_the_cpu_torch(matrix: Matrix) -> None:
    words = shlex.split(smoke_test_line(ROW, Path("/wheel house"), matrix))
    assert words == [
        *("pip", "install", "--extra-index-url", "https://cpu.example", "--find-links", "/wheel house/wheels"),
        cpu_torch_requirement(),
        f"triton=={matrix.torch[TORCH].triton}",
        f"flash-attn==2.8.3+{LABEL}",
    ]


def test_of_several_wheels_the_newest_is_picked(matrix: Matrix) -> None:
    releases, rocms = list(matrix.flash_attn), list(matrix.rocm)
    rows = [a_row(triton(release, rocm)) for release in reversed(releases) for rocm in reversed(rocms)]
    picked = pick_smoke_test_wheel(rows, matrix)
    assert picked
    assert picked.cell == triton(releases[0], rocms[0]).id


CK = Cell.from_axes("2.8.3", "3.11", TORCH, "7.2", Backend.CK)


def test_unsuitable_wheels_are_not_picked(matrix: Matrix) -> None:
    cases: list[WheelRow] = [
        a_row(triton("2.8.3", "7.2"), yanked="broken"),  # yanked
        a_row(CK),  # compiled
        a_row(triton("2.8.3", "7.2", torch="2.5.1")),  # another torch
        a_row(triton("1.0.0", "7.2")),  # flash-attn that the matrix has no more
        a_row(triton("2.8.3", "5.7")),  # ROCm that the matrix has no more
        ROW.model_copy(update={"cell": None, "label": None}),  # dependency
    ]
    for row in cases:
        assert pick_smoke_test_wheel([row], matrix) is None
        assert pick_smoke_test_wheel([row, ROW], matrix) == ROW


def test_pages_serve_a_repository_below_its_owner_but_for_the_owners_own_site() -> None:
    assert github_pages_url("Someone/wheels") == "https://someone.github.io/wheels/"
    assert github_pages_url("Someone/Someone.github.io") == "https://someone.github.io/"


# -- a preview, whose kernels are in aiter

PREVIEW = a_row(Cell.parse("fa2.8.4+git4a948e9-rocm7.2-torch2.13.0-py3-triton")).model_copy(
    update={"filename": "flash_attn-2.8.4+rocm72torch2.13tritongit4a948e9-py3-none-any.whl"}
)
KERNELS = PREVIEW.model_copy(
    update={"project": "amd-aiter", "cell": None, "label": None, "filename": "amd_aiter-0.0.20260602-py3-none-any.whl"}
)


def test_the_line_of_one_file_offers_the_kernels_that_it_requires_and_names_only_their_project(matrix: Matrix) -> None:
    """An address would replace an installed aiter of AMD's."""
    addresses = {"url": f"https://wheels.example/{KERNELS.filename}"}
    named = KERNELS.model_copy(update=addresses)
    offered = "pip install --no-deps --no-index --find-links {} amd-aiter"

    kernels, own = file_install_line(PREVIEW, matrix, [PREVIEW, KERNELS]).split(" && ")
    assert kernels == offered.format(f"./{KERNELS.filename}")
    assert shlex.split(own)[-2:] == ["einops", f"./{PREVIEW.filename}"]

    with_address = file_install_line(PREVIEW, matrix, [named])
    assert with_address.startswith(offered.format(f"'{addresses['url']}#sha256={KERNELS.sha256}'"))
    assert "aiter" not in file_install_line(ROW, matrix, [ROW, KERNELS])


def test_the_second_project_for_uv_takes_the_kernels_from_the_index_of_the_wheel() -> None:
    plain, with_kernels = install_templates()["pyproject.toml"]
    assert set(with_kernels.splitlines()) - set(plain.splitlines()) == {
        'dependencies = ["flash-attn=={version}", "torch=={torch}", "{triton}", "amd-aiter"]',
        'amd-aiter = { index = "flash-attn-rocm" }',
    }
