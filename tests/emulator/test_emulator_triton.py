"""Kernels that Triton compiles for each family run on the emulator, and flash-attn's own functions with them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from shared_folder import file_lock
from wheel_factory import TRITON, build_record, finished_wheel, small_machine
from wheelfactory.build.environments import (
    Environment,
    make_build_environment,
    make_interpreter_environment,
    make_layered_environment,
    make_triton_environment,
)
from wheelfactory.core.process import capture
from wheelfactory.verify.gate import Subject
from wheelfactory.verify.programs.attention_cases import SMALL
from wheelfactory.verify.proofs import PROGRAMS, ProgramReport, program_environ, run_program, stand_in_environment
from wheelfactory.wheel.read import Wheel

pytestmark = pytest.mark.slow

SRC = Path(__file__).parents[2] / "src"
KERNELS = Path(__file__).with_name("triton_kernels.py")

ARCHS = ("gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1151", "gfx1201")


@pytest.fixture
def python(cache: Path, tmp_path: Path) -> Environment:
    """A Python with torch, Triton and numpy, and without what the factory depends on."""
    with file_lock(cache, "environments"):
        torch = make_build_environment(cache)
        layers = (torch, make_triton_environment(cache, "3.7.1"), make_interpreter_environment(cache))
    folders = [layer.site_packages for layer in layers]
    return make_layered_environment(tmp_path / "env", torch.python, torch.version, folders)


@pytest.mark.parametrize("arch", ARCHS)
def test_kernels_of_triton(python: Environment, tmp_path: Path, arch: str) -> None:
    environ = {**os.environ, "HOME": str(tmp_path), "TRITON_CACHE_DIR": str(tmp_path / "triton")}

    report = json.loads(capture([python.python, "-I", "-B", KERNELS, SRC, arch], environ=environ).splitlines()[-1])

    assert list(report) == ["forward", "reversed", "3"]
    for found in report.values():
        beyond = found.pop("beyond")
        assert {name for name, each in found.items() if not each["right"] or each["findings"]} == set()
        first = beyond["findings"][0]
        assert first.startswith("add: store outside the buffers: ")
        assert first.endswith(" at byte 4000 of output")
        assert "bytes of local memory" in found["softmax"]["resources"]


class ExecutionReport(ProgramReport):
    arch: str
    torch: str
    triton: str
    cases: tuple[dict[str, Any], ...]


def test_attention_of_flash_attn(cache: Path, tmp_path: Path, upstream: Mapping[str, bytes]) -> None:
    wheel = Wheel.open(finished_wheel(tmp_path, TRITON, members=upstream))
    subject = Subject(wheel, build_record(TRITON), TRITON, context=small_machine(cache, os.environ))
    wanted = ("uneven causal float16", "packed causal bfloat16", "cached causal bfloat16")
    every = (f"{case.name} {dtype}" for case in SMALL for dtype in ("float16", "bfloat16", "float32"))
    patterns = [f"!{name}" for name in every if name not in wanted]

    with stand_in_environment(subject, make_interpreter_environment(cache)) as environment:
        report = run_program(
            [PROGRAMS / "execute_kernels.py", "gfx942", "--order", "reversed", *patterns],
            ExecutionReport,
            environment,
            program_environ(os.environ, TRITON),
            scratch=environment.folder / "home",
            timeout=600,
        )

    assert isinstance(report, ExecutionReport), report
    assert (report.arch, report.triton) == ("gfx942", "3.7.1")
    assert tuple(case["name"] for case in report.cases) == wanted
    for case in report.cases:
        assert (case["exception"], case["not_run"]) == (None, None)
        assert all(error <= 3 * rounding for error, rounding in case["errors"].values())
        assert [kernel["findings"] for kernel in case["kernels"]] == [[]] * len(case["kernels"])
    names = {kernel["name"] for case in report.cases for kernel in case["kernels"]}
    assert {"attn_fwd", "_bwd_kernel_dkdv_causal", "_bwd_kernel_dq_causal", "_fwd_kernel_splitK"} <= names
    assert list(report.cases[0]["errors"]) == ["output", "dq", "dk", "dv"]
