"""Gate identity: each way in which a wheel can lie about itself is found, by name, and with the way out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from wheel_factory import CK, TRITON, build_record, finished_wheel, metadata_text, small_machine, toolchain_of
from wheelfactory.core.cell import Cell
from wheelfactory.core.errors import InputError
from wheelfactory.verify.gate import Subject
from wheelfactory.verify.identity import identity
from wheelfactory.verify.result import Finding, Status
from wheelfactory.wheel.metadata import NEVER_REQUIRED
from wheelfactory.wheel.read import Wheel
from wheelfactory.wheel.record import read_record

CK_VERSION = "2.8.3+rocm64torch2.9"
CK_FILE = f"flash_attn-{CK_VERSION}-cp311-cp311-manylinux_2_28_x86_64.whl"
TRITON_VERSION = "2.8.3+rocm72torch2.13triton"


def findings_of(path: Path, cell: Cell) -> tuple[Finding, ...]:
    wheel = Wheel.open(path)
    record = read_record(wheel)
    assert record
    result = identity(Subject(wheel, record, cell, **small_machine(path.parent)))
    assert result.status is (Status.FAILED if result.findings else Status.PASSED)
    assert all(finding.cure for finding in result.findings)
    return result.findings


def with_metadata(cell: Cell = CK, **changes: Any) -> dict[str, Any]:
    """A wheel of the cell whose METADATA is true but for these changes."""
    version, pin = (TRITON_VERSION, "torch==2.13.*") if cell is TRITON else (CK_VERSION, "torch==2.9.*")
    return {"metadata": metadata_text(**{"version": version, "requires": [pin, "einops"], **changes})}


@pytest.mark.parametrize("cell", [CK, TRITON], ids=lambda cell: cell.id)
def test_a_true_wheel_passes(tmp_path: Path, cell: Cell) -> None:
    assert findings_of(finished_wheel(tmp_path, cell), cell) == ()


@pytest.mark.parametrize(
    "version",
    [
        pytest.param("2.8.2+rocm64torch2.9", id="release"),
        pytest.param("2.8.3+rocm64torch2.8", id="label of another torch"),
        pytest.param("2.8.3+rocm63torch2.9", id="label of another ROCm"),
        pytest.param("2.8.3+rocm64torch2.9triton", id="label of the other backend"),
        pytest.param("2.8.3", id="no label"),
    ],
)
def test_a_wheel_of_another_version(tmp_path: Path, version: str) -> None:
    path = finished_wheel(tmp_path, version=version)

    name, metadata = findings_of(path, CK)

    assert (name.file, name.expected, name.found) == (path.name, CK_VERSION, version)
    assert (metadata.file, metadata.expected, metadata.found) == ("METADATA Version", CK_VERSION, version)


def test_a_wheel_of_another_project(tmp_path: Path) -> None:
    path = finished_wheel(tmp_path, name="flash_attn_3", **with_metadata(name="flash_attn_3"))

    (finding,) = findings_of(path, CK)

    assert (finding.file, finding.expected, finding.found) == (path.name, "flash-attn", "flash-attn-3")


@pytest.mark.parametrize(
    ("tags", "expected", "found"),
    [
        pytest.param("cp312-cp312-manylinux_2_28_x86_64", "cp311-cp311", "cp312-cp312", id="python tag"),
        pytest.param("cp311-abi3-manylinux_2_28_x86_64", "cp311-cp311", "cp311-abi3", id="ABI tag"),
        pytest.param("cp311.cp312-cp311-any", "cp311-cp311", "cp311-cp311, cp312-cp311", id="a python tag too many"),
        pytest.param("cp311-cp311-any", "a manylinux tag", "any", id="no platform"),
        pytest.param("cp311-cp311-linux_x86_64", "a manylinux tag", "linux_x86_64", id="not repaired"),
        pytest.param("cp311-cp311-manylinux_2_39_x86_64", "glibc 2.35 or older", "glibc 2.39", id="glibc not built on"),
    ],
)
def test_a_ck_wheel_whose_tags_lie(tmp_path: Path, tags: str, expected: str, found: str) -> None:
    path = finished_wheel(tmp_path, tags=tags)

    finding = findings_of(path, CK)[0]

    assert (finding.file, finding.expected, finding.found) == (path.name, expected, found)


@pytest.mark.parametrize(
    ("tags", "expected", "found"),
    [
        pytest.param("cp311-none-any", "py3-none", "cp311-none", id="for one Python"),
        pytest.param("py2.py3-none-any", "py3-none", "py2-none, py3-none", id="for Python 2 too"),
        pytest.param("py3-none-manylinux_2_28_x86_64", "any", "manylinux_2_28_x86_64", id="for one platform"),
    ],
)
def test_a_triton_wheel_whose_tags_lie(tmp_path: Path, tags: str, expected: str, found: str) -> None:
    path = finished_wheel(tmp_path, TRITON, tags=tags)

    (finding,) = findings_of(path, TRITON)

    assert (finding.file, finding.expected, finding.found) == (path.name, expected, found)


@pytest.mark.parametrize(
    ("lie", "file", "expected", "found"),
    [
        pytest.param({"name": "flash_attn_3"}, "Name", "flash-attn", "flash-attn-3", id="name"),
        pytest.param({"version": "2.8.3"}, "Version", CK_VERSION, "2.8.3", id="version"),
        pytest.param({"requires_python": ">=3.12"}, "Requires-Python", "one that has 3.11", ">=3.12", id="python"),
    ],
)
def test_a_wheel_whose_metadata_lies(tmp_path: Path, lie: dict[str, Any], file: str, expected: str, found: str) -> None:
    (finding,) = findings_of(finished_wheel(tmp_path, **with_metadata(**lie)), CK)

    assert (finding.file, finding.expected, finding.found) == (f"METADATA {file}", expected, found)


def test_a_wheel_whose_metadata_says_nothing(tmp_path: Path) -> None:
    found = findings_of(finished_wheel(tmp_path, metadata="Metadata-Version: 2.1\n"), CK)

    assert [(finding.file, finding.found) for finding in found] == [
        ("METADATA Name", "nothing"),
        ("METADATA Version", "nothing"),
        ("METADATA Requires-Dist torch", "nothing"),
    ]


@pytest.mark.parametrize(
    ("requirements", "found"),
    [
        pytest.param([], "nothing", id="missing"),
        pytest.param(["torch"], "torch", id="bare"),
        pytest.param(["torch==2.8.*"], "torch==2.8.*", id="another minor"),
        pytest.param(["torch~=2.9.0"], "torch~=2.9.0", id="not the pre-release of containers"),
        pytest.param(["torch==2.9.*", "torch"], "torch, torch==2.9.*", id="twice"),
        pytest.param(['torch==2.9.*; extra == "gpu"'], 'torch==2.9.*; extra == "gpu"', id="in an extra only"),
    ],
)
def test_a_wheel_that_does_not_pin_its_torch(tmp_path: Path, requirements: list[str], found: str) -> None:
    (finding,) = findings_of(finished_wheel(tmp_path, **with_metadata(requires=["einops", *requirements])), CK)

    assert (finding.file, finding.expected) == ("METADATA Requires-Dist torch", "torch==2.9.*")
    assert finding.found == found
    assert finding.cure == "a wheel works with one torch minor only; run `wheelfactory repair`"


@pytest.mark.parametrize(
    ("stated", "found"),
    [
        pytest.param("Tag: cp312-cp312-manylinux_2_28_x86_64\n", "cp312-cp312-manylinux_2_28_x86_64", id="another"),
        pytest.param("", "nothing", id="none"),
    ],
)
def test_a_wheel_whose_wheel_file_states_other_tags(tmp_path: Path, stated: str, found: str) -> None:
    (finding,) = findings_of(finished_wheel(tmp_path, wheel=f"Wheel-Version: 1.0\n{stated}"), CK)

    assert (finding.file, finding.expected, finding.found) == ("WHEEL", "cp311-cp311-manylinux_2_28_x86_64", found)


OTHER = "fa2.8.3-rocm7.2-torch2.9.1-cp311-ck"


@pytest.mark.parametrize(
    ("lie", "file", "expected", "found"),
    [
        pytest.param({"cell": OTHER}, "cell", CK.id, OTHER, id="cell"),
        pytest.param({"label": "rocm72torch2.9"}, "label", "rocm64torch2.9", "rocm72torch2.9", id="label"),
        pytest.param(
            {"offload_archs": ("gfx90a", "gfx1100")},
            "offload_archs",
            "gfx90a, gfx942",
            "gfx1100, gfx90a",
            id="arch that the release refuses",
        ),
        pytest.param({"offload_archs": ()}, "offload_archs", "gfx90a, gfx942", "nothing", id="no arch"),
        pytest.param(
            {"toolchain": toolchain_of(CK, glibc=None)},
            "glibc",
            "the glibc of the machine that built it",
            "nothing",
            id="no glibc",
        ),
        pytest.param(
            {"toolchain": toolchain_of(CK, cxx11_abi=False)}, "cxx11_abi", "True", "False", id="other C++ ABI"
        ),
        pytest.param(
            {"toolchain": toolchain_of(CK, torch="2.8.0+rocm6.4")},
            "toolchain",
            "Python 3.11, torch 2.9.1, HIP 6.4",
            "Python 3.11, torch 2.8.0+rocm6.4, HIP 6.4.4242",
            id="other torch",
        ),
        pytest.param(
            {"source": "sha256:" + "b" * 64}, "source", "sha256:" + "a" * 64, "sha256:" + "b" * 64, id="other sources"
        ),
        pytest.param({"offload_archs": ("gfx942",)}, "offload_archs", "gfx90a, gfx942", "gfx942", id="one GPU only"),
    ],
)
def test_a_wheel_whose_build_record_lies(
    tmp_path: Path, lie: dict[str, Any], file: str, expected: str, found: str
) -> None:
    (finding,) = findings_of(finished_wheel(tmp_path, record=build_record(CK, **lie)), CK)

    assert (finding.file, finding.expected, finding.found) == (f"build record {file}", expected, found)


@pytest.mark.parametrize("name", [*sorted(NEVER_REQUIRED), "Triton", "pytorch_triton_rocm"])
def test_a_wheel_that_requires_triton(tmp_path: Path, name: str) -> None:
    lie = with_metadata(TRITON, requires=["torch==2.13.*", f"{name}>=3.7"])

    (finding,) = findings_of(finished_wheel(tmp_path, TRITON, **lie), TRITON)

    assert (finding.expected, finding.found) == ("no Triton", f"{name}>=3.7")


def test_a_wheel_that_was_renamed(tmp_path: Path) -> None:
    path = finished_wheel(tmp_path, version="2.8.3+rocm62torch2.5", **with_metadata())

    found = findings_of(path.rename(path.with_name(CK_FILE)), CK)

    assert [(finding.file, finding.expected, finding.found) for finding in found] == [
        ("dist-info", f"flash_attn-{CK_VERSION}.dist-info", "flash_attn-2.8.3+rocm62torch2.5.dist-info")
    ]


def test_every_lie_is_named_at_once(tmp_path: Path) -> None:
    lies = {**with_metadata(requires=["triton"]), "wheel": "", "record": build_record(CK, offload_archs=("gfx1030",))}

    files = [finding.file for finding in findings_of(finished_wheel(tmp_path, **lies), CK)]

    assert files == ["WHEEL", "METADATA Requires-Dist torch", "METADATA Requires-Dist", "build record offload_archs"]


def test_a_finding_reads_as_one_line() -> None:
    finding = Finding(file="WHEEL", expected="py3-none-any", found="nothing", cure="build it again")

    assert str(finding) == "WHEEL: expected py3-none-any, found nothing (build it again)"


def test_metadata_that_nobody_can_read_is_no_gate_to_pass(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="damaged METADATA"):
        findings_of(finished_wheel(tmp_path, **with_metadata(requires=["einops >>> 1"])), CK)
