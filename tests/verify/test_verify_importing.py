"""Gate import: pip installs the wheel into a fresh environment, where it imports; if not, the finding says why."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from wheel_factory import CK, PACKAGE, TRITON, build_record, finished_wheel, make_wheel, metadata_text, small_machine
from wheelfactory.build.environments import cpu_torch_requirement, make_build_environment
from wheelfactory.core.cell import Backend, Cell
from wheelfactory.verify.gate import Subject
from wheelfactory.verify.importing import check_import
from wheelfactory.verify.result import GateResult, Status
from wheelfactory.wheel.read import Wheel
from wheelfactory.wheel.rewrite import finish_wheel

TRITON_VERSION = "2.8.3+rocm72torch2.13triton"

pytestmark = pytest.mark.slow

LOOKS_AROUND = f"""
import os, torch, triton
assert "torch==" + torch.__version__ == "{cpu_torch_requirement()}"
assert triton.__version__ == "3.7.1", triton.__version__
assert "FLASH_ATTENTION_TRITON_AMD_ENABLE" not in os.environ
assert "FLASH_ATTN_LOCAL_VERSION" not in os.environ
print("9.9.9")  # is not the version
""".encode()


def result_of(path: Path, cell: Cell, cache: Path, environ: Mapping[str, str] = os.environ) -> GateResult:
    return check_import(Subject(Wheel.open(path), small_machine(cache, environ), record=build_record(cell), cell=cell))


def wheel_with(folder: Path, init: bytes) -> Path:
    """A finished Triton wheel whose package runs `init` when it is imported."""
    raw = make_wheel(folder / "raw", members={**PACKAGE, "flash_attn/__init__.py": init})
    return finish_wheel(raw, build_record(TRITON), folder)


def test_a_package_that_imports_with_the_torch_and_triton_of_its_cell(tmp_path: Path, cache: Path) -> None:
    environ = {**os.environ, "FLASH_ATTENTION_TRITON_AMD_ENABLE": "FALSE", "FLASH_ATTN_LOCAL_VERSION": "of another"}

    result = result_of(wheel_with(tmp_path, LOOKS_AROUND), TRITON, cache, environ)

    assert (result.gate, result.status, result.findings) == ("import", Status.PASSED, ())
    assert result.detail == f"Triton 3.7.1, {cpu_torch_requirement()} in place of ROCm's"


@pytest.mark.parametrize(
    ("init", "found"),
    [
        pytest.param(b"raise RuntimeError('no\\nkernel')", "kernel", id="raises"),
        pytest.param(b"import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "killed by SIGSEGV", id="crashes"),
        pytest.param(b"import os; os._exit(3)", "exit status 3", id="ends without a word"),
        pytest.param(b"raise SystemExit", "it exited with 0, but printed no report", id="ends as if all were well"),
    ],
)
def test_a_package_that_does_not_import(tmp_path: Path, cache: Path, init: bytes, found: str) -> None:
    path = wheel_with(tmp_path, init)

    result = result_of(path, TRITON, cache)

    (finding,) = result.findings
    assert result.status is Status.FAILED
    assert (finding.file, finding.expected, finding.found) == (path.name, "to install and import", found)
    assert "fix the matrix" in finding.remedy


def test_a_package_that_takes_other_kernels_than_its_own(tmp_path: Path, cache: Path) -> None:
    """flash-attn after 2.8.3: where its extension does not load, it warns and imports aiter."""
    init = b"""
import warnings
try:
    import an_extension_that_does_not_load
except ImportError:
    warnings.warn("flash_attn_2_cuda (which has ROCm/HIP kernels) not found, falling back to Triton implementation")
"""
    (finding,) = result_of(wheel_with(tmp_path, init), TRITON, cache).findings

    assert finding.found == "ModuleNotFoundError: No module named 'an_extension_that_does_not_load'"


def test_a_wheel_without_the_interface(tmp_path: Path, cache: Path) -> None:
    path = finished_wheel(tmp_path, TRITON, members={"flash_attn/__init__.py": b""})

    (finding,) = result_of(path, TRITON, cache).findings

    assert finding.found == "ModuleNotFoundError: No module named 'flash_attn.flash_attn_interface'"


def test_a_wheel_that_pip_refuses(tmp_path: Path, cache: Path) -> None:
    path = finished_wheel(tmp_path, TRITON, metadata=metadata_text(TRITON_VERSION, requires_python=">=4"))

    (finding,) = result_of(path, TRITON, cache).findings

    assert (finding.file, finding.expected) == (path.name, "to install and import")
    assert "not in '>=4'" in finding.found


def test_a_wheel_that_installs_as_another_version(tmp_path: Path, cache: Path) -> None:
    path = finished_wheel(tmp_path, TRITON, metadata=metadata_text("2.8.3"))

    (finding,) = result_of(path, TRITON, cache).findings

    assert (finding.expected, finding.found) == (f"version {TRITON_VERSION}", "2.8.3")


def test_ck_without_any_python_is_not_run(tmp_path: Path) -> None:
    result = result_of(finished_wheel(tmp_path), CK, tmp_path, {"PATH": ""})

    assert (result.status, result.findings) == (Status.NOT_RUN, ())
    assert "needs the ROCm torch of the cell" in result.detail


def test_ck_with_a_torch_that_is_not_built_for_rocm_is_not_run(tmp_path: Path, cache: Path, this_python: str) -> None:
    cell = Cell.from_axes("2.8.3", this_python, "2.13.0", "7.2", Backend.CK)
    environ = {**os.environ, "PATH": f"{make_build_environment(cache).folder}/bin"}

    assert result_of(finished_wheel(tmp_path, cell), cell, tmp_path, environ).status is Status.NOT_RUN


def test_ck_is_imported_with_the_rocm_torch_on_path_and_without_the_triton_variable(
    tmp_path: Path, rocm: Mapping[str, str], this_python: str
) -> None:
    cell = Cell.from_axes("2.8.3", this_python, "2.13.0", "7.2", Backend.CK)
    init = b"import os, torch\nassert torch.version.hip\nassert not [x for x in os.environ if 'TRITON_AMD' in x]\n"
    path = finished_wheel(tmp_path, cell, members={**PACKAGE, "flash_attn/__init__.py": init})

    result = result_of(path, cell, tmp_path / "cache", {**rocm, "FLASH_ATTENTION_TRITON_AMD_ENABLE": "TRUE"})

    assert (result.status, result.findings) == (Status.PASSED, ())
    assert result.detail.startswith("torch 2.13.0+rocm7.2")
    assert "/" not in result.detail
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["plain"]  # which the test put there
