"""The gates that run code install aiter beside a wheel that takes its kernels from it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from aiter_factory import KERNELS, PREVIEW, aiter_machine, make_aiter_repository, pin
from rocm_machine import make_machine
from wheel_factory import MATRIX, PACKAGE, TRITON, build_record, finished_wheel, small_machine
from wheelfactory.build.environments import make_build_environment, make_triton_environment
from wheelfactory.build.products import pin_product
from wheelfactory.core.cell import Backend
from wheelfactory.core.label import Label
from wheelfactory.matrix.facts import Matrix
from wheelfactory.verify.accuracy import AITER_TOLERANCE, TOLERANCES, find_tolerance
from wheelfactory.verify.gate import Subject
from wheelfactory.verify.importing import check_import
from wheelfactory.verify.proofs import PROGRAMS, program_environ, stand_in_requirements
from wheelfactory.verify.result import Status
from wheelfactory.wheel.read import BuildRecord, Wheel


def test_the_module_that_must_compute_is_that_of_aiter() -> None:
    assert find_tolerance(PREVIEW) == find_tolerance(Label.from_cell(PREVIEW)) == AITER_TOLERANCE
    assert AITER_TOLERANCE.module == KERNELS.removesuffix(".py").replace("/", ".")
    assert find_tolerance(TRITON) == TOLERANCES[Backend.TRITON]


def test_its_programs_get_no_variable_that_bypasses_the_module_of_the_wheel() -> None:
    assert program_environ({"PATH": "/bin"}, PREVIEW) == {"PATH": "/bin"}


def test_a_proof_depends_on_the_commit_of_aiter_and_on_the_versions_of_the_stand_in(tmp_path: Path) -> None:
    one, other = (pin_product("amd-aiter", aiter_machine(tmp_path, pin(commit=digit * 40))) for digit in "89")
    assert stand_in_requirements("3.7.1", [one]) != stand_in_requirements("3.7.1", [other])
    assert stand_in_requirements("3.7.1")[0] == f"Python {sys.version_info[0]}.{sys.version_info[1]}"
    assert {"torch==2.13.0+cpu", "triton==3.7.1"} <= set(stand_in_requirements("3.7.1"))


@pytest.mark.slow
def test_the_wheel_is_imported_with_its_aiter(cache: Path, tmp_path: Path) -> None:
    dependency = make_aiter_repository(tmp_path / "aiter")
    machine = make_machine(tmp_path / "own", cache, {}).cache
    make_build_environment(machine)
    make_triton_environment(machine, "3.7.1")
    given = small_machine(machine, os.environ)
    preview = MATRIX.flash_attn["2.8.3"].model_copy(update={"git": dependency.git, "sdist": None})
    matrix: Matrix = MATRIX.model_copy(
        update={"dependencies": {"amd-aiter": dependency}, "flash_attn": {PREVIEW.flash_attn: preview}}
    )
    record: BuildRecord = build_record(TRITON, cell=PREVIEW.id, label=str(Label.from_cell(PREVIEW)))
    interface = {
        **PACKAGE,
        "flash_attn/flash_attn_interface.py": b"import aiter\n\ndef flash_attn_func() -> None: ...\n",
    }
    path = finished_wheel(tmp_path, PREVIEW, record=record, members=interface)
    subject = Subject(Wheel.open(path), replace(given, matrix=matrix), record=record, cell=PREVIEW)

    result = check_import(subject)

    assert result.status is Status.PASSED, result.findings


def run_with_stand_ins(code: str) -> dict[str, object]:
    """Run code with `stand_in_gpu`, and stand-ins for torch and Triton that hold nothing else."""
    program = f"""
import json, sys, types
sys.argv = ["program"]
sys.path.append({str(PROGRAMS)!r})
torch, triton = types.ModuleType("torch"), types.ModuleType("triton")
torch.cuda, triton.testing = types.SimpleNamespace(), types.SimpleNamespace()
compiler = types.ModuleType("triton.backends.compiler")
compiler.GPUTarget = lambda *values: values
sys.modules.update({{"torch": torch, "triton": triton, "triton.backends": types.ModuleType("triton.backends")}})
sys.modules["triton.backends.compiler"] = compiler
from without_amd_gpu import stand_in_gpu
{code}
print(json.dumps(found))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


def test_aiter_sees_the_gpu_that_is_asked_for() -> None:
    found = run_with_stand_ins("""
stand_in_gpu("gfx1100")
torch.cuda.Event().record(torch.cuda.Stream())
found = {"name": torch.cuda.get_device_properties(0).gcnArchName}
""")
    assert found == {"name": "gfx1100"}


def test_each_configuration_of_an_autotuned_kernel_is_called_once() -> None:
    found = run_with_stand_ins("""
calls = []
stand_in_gpu("gfx942")
measured = triton.testing.do_bench_cudagraph(lambda: calls.append(1), quantiles=(0.5, 0.2, 0.8))
found = {"measured": measured, "calls": calls}
""")
    assert found == {"measured": [0.0, 0.0, 0.0], "calls": [1]}


def test_aiter_is_imported_without_its_assertions_and_other_packages_with_theirs(tmp_path: Path) -> None:
    for name in ("aiter", "aiter/ops", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("assert not __name__, __name__\n", encoding="utf-8")

    found = run_with_stand_ins(f"""
sys.path.append({str(tmp_path)!r})
stand_in_gpu("gfx942")
import aiter.ops
try:
    import other
except AssertionError as error:
    found = {{"asserted": str(error)}}
""")

    assert found == {"asserted": "other"}
