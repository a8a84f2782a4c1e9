"""Gate gpu: not run without a GPU, its torch or a promise, with the reason; else judged like the interpreter."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import numeric_reports
from numeric_reports import case
from wheel_factory import CK, TRITON, build_record, finished_wheel, small_machine, toolchain_of
from wheelfactory.build.environments import Base
from wheelfactory.core.cell import Backend, Cell
from wheelfactory.matrix.facts import Context
from wheelfactory.verify import gpu as module
from wheelfactory.verify.accuracy import NumericReport
from wheelfactory.verify.gate import Subject
from wheelfactory.verify.gpu import check_on_gpu
from wheelfactory.verify.result import GateResult, Status
from wheelfactory.wheel.read import Toolchain, Wheel


def numbers(cell: Cell, *, dq: float = 0.001, **changes: object) -> NumericReport:
    found = case("causal bfloat16", output=(0.001, 0.001), dq=(dq, 0.001))
    return numeric_reports.numbers(cell.backend, found, torch=f"{cell.torch}+rocm{cell.rocm}", **changes)


class Machine:
    """A fake ROCm Python and program: its torch, and the report of the program."""

    def __init__(self, answer: NumericReport | str) -> None:
        self.answer = answer
        self.commands: list[tuple[str, ...]] = []
        self.environ: Mapping[str, str] = {}

    def find(self, cell: Cell, context: Context) -> Path | None:
        return Path("/rocm/python") if cell.python == "3.11" else None

    def probe(self, python: Path, environ: Mapping[str, str]) -> Toolchain:
        return toolchain_of(CK)

    def ask(
        self,
        subject: Subject,
        command: Sequence[object],
        kind: object,
        base: Base,
        environ: Mapping[str, str],
        *_: float,
    ) -> NumericReport | str:
        self.commands.append(tuple(str(part) for part in command[1:]))
        self.environ = environ
        return self.answer


def with_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cell: Cell, answer: NumericReport | str
) -> tuple[GateResult, Machine]:
    """Run the gate on a machine with a gfx942 and a ROCm Python 3.11."""
    machine = Machine(answer)

    monkeypatch.setattr(module, "find_rocm_python", machine.find)
    monkeypatch.setattr(module, "probe_python", machine.probe)
    monkeypatch.setattr(module, "find_base", lambda python, version, environ: Base(python, version, ()))
    monkeypatch.setattr(module, "install_and_run", machine.ask)
    return check_on_gpu(subject_of(tmp_path, cell, "gfx942")), machine


def subject_of(tmp_path: Path, cell: Cell, *gpus: str, environ: Mapping[str, str] | None = None) -> Subject:
    given = small_machine(tmp_path / "cache", environ)
    subject = Subject(Wheel.open(finished_wheel(tmp_path, cell)), given, record=build_record(cell), cell=cell)
    host = replace(given.host, gpu_archs=gpus)
    return replace(subject, context=replace(given, host=host))


@pytest.mark.parametrize("cell", [CK, TRITON], ids=lambda cell: cell.id)
def test_without_a_gpu_that_the_wheel_promises_it_is_not_run(tmp_path: Path, cell: Cell) -> None:
    result = check_on_gpu(subject_of(tmp_path, cell))
    assert (result.status, result.detail) == (Status.NOT_RUN, "needs an AMD GPU, but none is visible")
    result = check_on_gpu(subject_of(tmp_path, cell, "gfx1036"))
    assert (result.status, result.detail) == (Status.NOT_RUN, "the GPU is gfx1036, which the wheel does not promise")


@pytest.mark.parametrize("cell", [CK, TRITON], ids=lambda cell: cell.id)
def test_without_the_torch_of_the_cell_it_is_not_run(tmp_path: Path, cell: Cell) -> None:
    result = check_on_gpu(subject_of(tmp_path, cell, "gfx942", environ={"PATH": os.devnull}))
    assert result.status is Status.NOT_RUN
    assert f"needs torch {cell.torch} for ROCm {cell.rocm}: put its python3 on PATH" in result.detail


@pytest.mark.parametrize("cell", [CK, TRITON], ids=lambda cell: cell.id)
def test_right_numbers_pass_with_their_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cell: Cell) -> None:
    result, machine = with_gpu(tmp_path, monkeypatch, cell, numbers(cell))

    assert (result.gate, result.status, result.findings) == ("gpu", Status.PASSED, ())
    assert result.detail == f"on gfx942 with torch {cell.torch}+rocm{cell.rocm}, against float64"
    assert result.versions.pop("flash-attn payload")
    assert result.versions == {"gpu": "gfx942", "torch": f"{cell.torch}+rocm{cell.rocm}", "triton": "3.7.1"}
    assert result.figures.keys() == {"causal bfloat16 error", "causal bfloat16 bound"}
    assert machine.commands == [("flash_attn", "cuda", "small")]
    assert ("FLASH_ATTENTION_TRITON_AMD_ENABLE" in machine.environ) is (cell.backend is Backend.TRITON)
    assert not (tmp_path / "cache/proofs").exists(), "they depend on GPU, driver and ROCm, and take only seconds"


def test_wrong_numbers_are_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result, _ = with_gpu(tmp_path, monkeypatch, CK, numbers(CK, dq=0.5))

    (finding,) = result.findings
    assert result.status is Status.FAILED
    assert finding.expected == "dq of causal bfloat16 with an error of at most 0.01 on gfx942 with torch 2.9.1+rocm6.4"
    assert finding.found == "0.5"


@pytest.mark.parametrize(("arch", "device"), [(None, "no AMD GPU"), ("gfx90a", "gfx90a")])
def test_with_torch_on_another_gpu_it_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arch: str | None, device: str
) -> None:
    result, _ = with_gpu(tmp_path, monkeypatch, CK, numbers(CK, gpu=arch, cases=()))

    assert result.status is Status.NOT_RUN
    assert result.detail == f"torch computes on {device}, but the wheel promises gfx942"


@pytest.mark.slow
def test_a_rocm_torch_without_a_gpu_is_not_run(tmp_path: Path, rocm: Mapping[str, str], this_python: str) -> None:
    """Everything but the GPU is real: the Python, the installed wheel, the program and its report."""
    cell = Cell.from_axes("2.8.3", this_python, "2.13.0", "7.2", Backend.CK)
    interface = b"import flash_attn_2_cuda as flash_attn_gpu\nflash_attn_func = None\n"
    members = {"flash_attn/__init__.py": b"", "flash_attn/flash_attn_interface.py": interface}
    extension = b"def fwd(): ...\nbwd = varlen_fwd = varlen_bwd = fwd_kvcache = fwd\n"
    path = finished_wheel(tmp_path, cell, members={**members, "flash_attn_2_cuda.py": extension})
    given = small_machine(tmp_path / "cache", rocm)
    host = replace(given.host, gpu_archs=("gfx942",))
    subject = Subject(Wheel.open(path), replace(given, host=host), record=build_record(cell), cell=cell)

    result = check_on_gpu(subject)

    assert result.status is Status.NOT_RUN
    assert result.detail == "torch computes on no AMD GPU, but the wheel promises gfx942"
