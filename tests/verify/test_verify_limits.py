"""Known limits: unsupported cases are skipped only for the release, Triton and arch concerned."""

from __future__ import annotations

from dataclasses import replace

import pytest

from wheel_factory import TRITON, build_record, finished_wheel
from wheelfactory.core.cell import Cell
from wheelfactory.core.files import MATRIX
from wheelfactory.core.host import Host
from wheelfactory.matrix.facts import Context
from wheelfactory.matrix.load import load_matrix
from wheelfactory.verify.gate import Subject
from wheelfactory.verify.limits import LIMITS, find_cell_limits
from wheelfactory.wheel.read import Wheel

GROUPED, LDS, BF16 = LIMITS


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    """A wheel with the real matrix; tests replace its cell."""
    folder = tmp_path_factory.mktemp("wheel")
    given = Context(load_matrix(MATRIX), Host(cores=1, memory_gib=1), {}, folder)
    return Subject(Wheel.open(finished_wheel(folder, TRITON)), given, record=build_record(TRITON), cell=TRITON)


def of(subject: Subject, cell: str, arch: str | None = None) -> tuple[object, ...]:
    return find_cell_limits(replace(subject, cell=Cell.parse(cell)), arch)


LIMITED: list[tuple[str, str | None, tuple[object, ...]]] = [
    ("fa2.7.4.post1-rocm7.2-torch2.13.0-py3-triton", None, (GROUPED,)),  # 2.7.4
    ("fa2.7.4.post1-rocm7.2-torch2.13.0-py3-triton", "gfx1030", (GROUPED,)),  # 2.7.4 on gfx1030
    ("fa2.8.3-rocm7.2-torch2.13.0-py3-triton", "gfx1030", (LDS,)),  # 2.8.3 on gfx1030
    ("fa2.8.3.post2-rocm7.2-torch2.13.0-py3-triton", "gfx1030", (LDS,)),  # 2.8.3.post2 on gfx1030
    ("fa2.8.3-rocm6.4-torch2.8.0-py3-triton", "gfx1030", (LDS,)),  # with Triton 3.4.0
    ("fa2.8.3-rocm6.3-torch2.7.1-py3-triton", "gfx1030", ()),  # with Triton 3.3.1
    ("fa2.7.4.post1-rocm6.1-torch2.5.1-py3-triton", "gfx1030", (GROUPED, BF16)),  # with Triton 3.1.0
    ("fa2.7.4.post1-rocm6.1-torch2.6.0-py3-triton", "gfx1030", (GROUPED,)),  # with Triton 3.2.0
    ("fa2.8.3-rocm7.2-torch2.13.0-py3-triton", "gfx1100", ()),  # 2.8.3 on gfx1100
    ("fa2.8.3-rocm7.2-torch2.13.0-py3-triton", None, ()),  # 2.8.3 on no GPU
    ("fa2.7.4.post1-rocm7.2-torch2.13.0-cp311-ck", None, ()),  # the other backend
]


def test_a_limit_is_one_of_release_triton_and_arch(subject: Subject) -> None:
    for cell, arch, limits in LIMITED:
        assert of(subject, cell, arch) == limits


def test_limits_become_program_arguments() -> None:
    assert [limit.argument for limit in LIMITS] == ["grouped*", "*causal bfloat16", "!*bfloat16"]
