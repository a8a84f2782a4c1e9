"""Gate identity: every contradiction between a wheel and its name is found, with the remedy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from wheel_factory import CK, MATRIX, TRITON, build_record, finished_wheel, second_build, small_machine, toolchain_of
from wheelfactory.core.cell import Cell
from wheelfactory.matrix.facts import Matrix
from wheelfactory.verify.gate import Subject
from wheelfactory.verify.identity import check_identity
from wheelfactory.verify.result import Finding, Status
from wheelfactory.wheel.read import BUILD_RECORD_NAME, Wheel, read_build_record

CK_VERSION = "2.8.3+rocm64torch2.9"
CK_STEM = f"flash_attn-{CK_VERSION}-cp311-cp311"
MANYLINUX = "one manylinux platform for x86_64"


def findings_of(path: Path, cell: Cell, matrix: Matrix = MATRIX) -> tuple[Finding, ...]:
    wheel = Wheel.open(path)
    record = read_build_record(wheel)
    assert record
    context = replace(small_machine(path.parent), matrix=matrix)
    result = check_identity(Subject(wheel, context, record=record, cell=cell))
    assert result.status is (Status.FAILED if result.findings else Status.PASSED)
    assert all(finding.remedy for finding in result.findings)
    return result.findings


def of_version(version: str) -> tuple[Cell, dict[str, str], str, str]:
    return CK, {"version": version}, CK_STEM, f"flash_attn-{version}-cp311-cp311"


def of_tags(tags: str, expected: str, found: str, cell: Cell = CK) -> tuple[Cell, dict[str, str], str, str]:
    return cell, {"tags": tags}, expected, found


TWO_PLATFORMS = "manylinux_2_28_x86_64.linux_x86_64"
ONE_PLATFORM_TWICE = "manylinux_2_28_x86_64.manylinux_2_28_x86_64"

WRONG_NAMES = {
    "another release": of_version("2.8.2+rocm64torch2.9"),
    "the label of the other backend": of_version("2.8.3+rocm64torch2.9triton"),
    "another project": (CK, {"name": "flash_attn_3"}, CK_STEM, CK_STEM.replace("attn", "attn_3")),
    "another Python": of_tags("cp312-cp312-manylinux_2_28_x86_64", "cp311-cp311", "cp312-cp312"),
    "another ABI": of_tags("cp311-abi3-manylinux_2_28_x86_64", "cp311-cp311", "cp311-abi3"),
    "a Python too many": of_tags("cp311.cp312-cp311-any", "cp311-cp311", "cp311.cp312-cp311"),
    "no platform": of_tags("cp311-cp311-any", MANYLINUX, "any"),
    "not repaired": of_tags("cp311-cp311-linux_x86_64", MANYLINUX, "linux_x86_64"),
    "another machine": of_tags("cp311-cp311-manylinux_2_28_aarch64", MANYLINUX, "manylinux_2_28_aarch64"),
    "a platform too many": of_tags(f"cp311-cp311-{TWO_PLATFORMS}", MANYLINUX, TWO_PLATFORMS),
    "a platform twice": of_tags(f"cp311-cp311-{ONE_PLATFORM_TWICE}", MANYLINUX, ONE_PLATFORM_TWICE),
    "Triton for one Python": of_tags("cp311-none-any", "py3-none", "cp311-none", TRITON),
    "Triton for Python 2 too": of_tags("py2.py3-none-any", "py3-none", "py2.py3-none", TRITON),
    "Triton for one platform": of_tags("py3-none-manylinux_2_28_x86_64", "any", "manylinux_2_28_x86_64", TRITON),
}


@pytest.mark.parametrize("kind", WRONG_NAMES)
def test_a_wrong_file_name_is_refused(tmp_path: Path, kind: str) -> None:
    cell, changes, expected, found = WRONG_NAMES[kind]
    path = finished_wheel(tmp_path, cell, **changes)  # type: ignore[arg-type]  # all of them are texts
    finding = findings_of(path, cell)[0]
    assert finding.file in ("file name", path.name)
    assert finding.expected.endswith(expected)
    assert finding.found.endswith(found)


@pytest.mark.parametrize(
    ("cell", "lie", "file", "expected", "found"),
    [
        (CK, {"toolchain": toolchain_of(CK, cxx11_abi=False)}, "cxx11_abi", "True", "False"),
        (CK, {"offload_archs": ("gfx942", "gfx90a")}, "offload_archs", "gfx90a, gfx942", "gfx942, gfx90a"),
        (TRITON, {"toolchain": toolchain_of(CK)}, "toolchain", "nothing", "torch, hip, cxx11_abi, glibc, python"),
        (TRITON, {"kernels": "c" * 64}, "toolchain", "nothing", "kernels"),
    ],
    ids=["another C++ ABI", "another order", "Triton with a toolchain", "Triton with kernels"],
)
def test_a_wrong_build_record_is_refused(
    tmp_path: Path, cell: Cell, lie: dict[str, Any], file: str, expected: str, found: str
) -> None:
    (finding,) = findings_of(finished_wheel(tmp_path, cell, record=build_record(cell, **lie)), cell)

    assert finding.file == f"build record {file}"
    assert (finding.expected, finding.found) == (expected, found)


@pytest.mark.parametrize(
    ("cell", "old", "new", "found"),
    [
        *((TRITON, "-any.whl", f"-{platform}.whl", platform) for platform in ("ANY", "Any", "any.any")),
        (CK, "-cp311-cp", "-1-cp311-cp", CK_STEM.replace("-cp311-cp", "-1-cp311-cp")),
    ],
)
def test_a_second_name_that_installers_accept(tmp_path: Path, cell: Cell, old: str, new: str, found: str) -> None:
    """One wheel under two names could be published twice."""
    path = finished_wheel(tmp_path, cell)

    (finding,) = findings_of(path.rename(path.with_name(path.name.replace(old, new))), cell)

    assert finding.found == found


def test_the_build_of_the_matrix_and_the_letter_of_a_replacement_are_in_the_name_and_the_record(tmp_path: Path) -> None:
    matrix = second_build(MATRIX)
    first = finished_wheel(tmp_path)
    assert [finding.file for finding in findings_of(first, CK, matrix)] == ["build record build"]

    for build in ("2", "2c"):
        made = finished_wheel(tmp_path / build, record=build_record(CK, build=build))
        made = made.rename(made.with_name(made.name.replace("-cp311-cp", f"-{build}-cp311-cp")))
        assert findings_of(made, CK, matrix) == ()
    other = made.rename(made.with_name(made.name.replace("-2c-", "-2d-")))
    assert [finding.file for finding in findings_of(other, CK, matrix)] == ["file name", "build record build"]


def test_dist_info_has_the_name_of_the_file_and_the_legacy_platform_is_one_more(tmp_path: Path) -> None:
    tags = "cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64"
    assert findings_of(finished_wheel(tmp_path, tags=tags), CK) == ()
    path = finished_wheel(tmp_path, version="2.8.3+rocm62torch2.5")
    (finding,) = findings_of(path.rename(path.with_name(f"{CK_STEM}-manylinux_2_28_x86_64.whl")), CK)
    assert (finding.file, finding.found) == ("dist-info", "flash_attn-2.8.3+rocm62torch2.5.dist-info")


def test_for_a_tag_the_source_must_be_a_commit(tmp_path: Path) -> None:
    cell = Cell.parse("fa2.6.3-rocm6.4-torch2.9.1-cp311-ck")
    for source, count in (("commit:" + "d" * 40, 0), ("commit:" + "d" * 39, 1), ("somewhere", 1)):
        path = finished_wheel(tmp_path / source, cell, record=build_record(cell, source=source))
        assert len(findings_of(path, cell)) == count


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"kernels": null', b'"kernels": null, "kernels": null'),
        (b'"label"', b' "label"'),
        (b'"torch"', b'"t\\u006frch"'),
    ],
)
def test_a_build_record_in_another_spelling_is_refused(tmp_path: Path, old: bytes, new: bytes) -> None:
    """A reader that takes the first of two keys would read something else than one that takes the last."""
    written = build_record(CK).as_bytes()
    assert old in written
    (finding,) = findings_of(finished_wheel(tmp_path, more={BUILD_RECORD_NAME: written.replace(old, new)}), CK)

    assert (finding.file, finding.expected) == ("build record", "JSON as the factory writes it")
