"""Gate symbols: undefined symbols are found without importing, with the reason."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from elf_factory import library
from wheel_factory import CK, build_record, extension_name, finished_wheel, payload, small_machine
from wheelfactory.build.environments import make_build_environment
from wheelfactory.build.executor import BuildCommand, BuildHost, GateRunner
from wheelfactory.build.sources import fetch_file
from wheelfactory.core.cell import Backend, Cell
from wheelfactory.core.host import Host
from wheelfactory.core.progress import ProgressCallback
from wheelfactory.release.additions import read_wheel_row, with_other_torches
from wheelfactory.verify.gate import Subject
from wheelfactory.verify.result import GateResult, Status
from wheelfactory.verify.symbols import check_file, check_symbols, explain_symbol
from wheelfactory.wheel.elf.dynamic import SYSTEM_FOLDERS, Scope, load_scope
from wheelfactory.wheel.elf.read import ElfFile, read_elf
from wheelfactory.wheel.read import Toolchain, Wheel

TORCH = Toolchain(torch="2.9.1+rocm6.4", hip="6.4.43484")

OLD_STRINGS = "_ZN3c105ErrorC1ENS_14SourceLocationESs"
NEW_STRINGS = "_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"


def scope(*defined: str, missing: tuple[str, ...] = ()) -> Scope:
    return Scope(frozenset(defined), missing)


def elf(**more: Any) -> ElfFile:
    return read_elf("x.so", library(**more))


@pytest.mark.parametrize(
    ("symbol", "same", "why"),
    [
        (OLD_STRINGS, [NEW_STRINGS], "built with the old C++ ABI, torch 2.9.1+rocm6.4 has the new"),
        (NEW_STRINGS, [OLD_STRINGS], "built with the new C++ ABI, torch 2.9.1+rocm6.4 has the old"),
        ("_ZN3c105ErrorC1Ei", ["_ZN3c105ErrorC1Ev"], "has c10::Error::Error with other parameters"),
        ("_ZN2at6fusionEv", [], "2.9.1+rocm6.4 has no at::fusion, so this was built for another torch minor"),
        ("hipNew", [], "HIP 6.4.43484 does not have it, so this was built for another ROCm"),
        ("_ZN4attn3runEv", [], "link the missing object"),
    ],
)
def test_the_finding_has_reason_and_remedy(symbol: str, same: list[str], why: str) -> None:
    assert why in explain_symbol(symbol, same, TORCH)


def test_only_undefined_symbols_that_are_not_weak_are_findings() -> None:
    made = elf(undefined=("hipMalloc", "_ZN3c105ErrorC1Ev"), weak=("optional",))
    found, unknown = check_file(made, scope("hipMalloc"), TORCH)

    (finding,) = found
    assert (finding.file, unknown) == ("x.so", 0)
    assert finding.expected == "only symbols that torch 2.9.1+rocm6.4 and HIP 6.4.43484 define"
    assert finding.found == "c10::Error::Error (_ZN3c105ErrorC1Ev)"
    assert "build against the torch of the cell's index" in finding.remedy


def test_symbols_of_a_missing_rocm_library_are_only_counted() -> None:
    made = elf(undefined=("hipMalloc", "_ZN3c105ErrorC1Ev"))

    found, unknown = check_file(made, scope(missing=("libamdhip64.so.6",)), TORCH)

    assert [finding.found for finding in found] == ["c10::Error::Error (_ZN3c105ErrorC1Ev)"]
    assert unknown == 1


def test_a_versioned_symbol_is_excused_by_its_own_library_only() -> None:
    made = elf(source='#include <stdio.h>\nvoid f(void) { puts(""); }', flags=("-O0",))

    assert check_file(made, scope(missing=("libc.so.6",)), TORCH)[1] > 0
    assert any("puts" in finding.found for finding in check_file(made, scope(missing=("libamdhip64.so.6",)), TORCH)[0])


def test_hundreds_of_symbols_are_not_all_shown() -> None:
    found, _ = check_file(elf(undefined=tuple(f"_ZN2at5f{i:04}Ev" for i in range(100))), scope(), TORCH)

    assert len(found) == 21
    assert found[-1].found == "80 more that nothing defines"


def test_the_scope_is_the_libraries_theirs_and_the_interpreter(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "python").write_bytes(library(defined=("PyErr_Occurred",)))
    (tmp_path / "a/libone.so").write_bytes(library(defined=("one",), needed=("libtwo.so", "libgone.so")))
    (tmp_path / "libtwo.so").write_bytes(library(defined=("two",), needed=("libone.so",)))

    found = load_scope(["libone.so"], tmp_path / "python", [tmp_path / "a", tmp_path])

    assert {"one", "two", "PyErr_Occurred"} <= found.defined
    assert found.missing == ("libgone.so",)


def test_the_python_of_a_cell_is_examined_once_for_all_gates(tmp_path: Path) -> None:
    examined: list[str] = []

    class Runner(GateRunner):
        def find_gate_host(self, _cell: Cell) -> BuildHost:
            return BuildHost(Host(2, 4.0), Path("python"), Path("ninja"), {}, self.run)

        def run(self, command: BuildCommand, _report_progress: ProgressCallback) -> str:
            examined.append(Path(command.argv[2]).name)
            return TORCH.model_dump_json()

    wheel, context = Wheel.open(finished_wheel(tmp_path, CK)), small_machine(tmp_path)
    subject = Subject(wheel, context, Runner(), record=build_record(CK), cell=CK)
    found = [subject.python and subject.python.toolchain for _ in range(2)]
    assert (found, examined) == ([TORCH, TORCH], ["probe_toolchain.py"])


def result_of(path: Path, cell: Cell, cache: Path, environ: Mapping[str, str]) -> GateResult:
    return check_symbols(Subject(Wheel.open(path), small_machine(cache, environ), record=build_record(cell), cell=cell))


def test_without_the_torch_of_the_cell_it_is_not_run(tmp_path: Path) -> None:
    result = result_of(finished_wheel(tmp_path), CK, tmp_path, {"PATH": ""})

    assert result.status is Status.NOT_RUN
    assert "needs the ROCm torch of the cell" in result.detail


@pytest.mark.slow
@pytest.mark.parametrize(
    ("undefined", "status"),
    [
        pytest.param(("_ZNK3c105Error4whatEv", "PyErr_Occurred"), Status.PASSED, id="of that torch"),
        pytest.param(("_ZNK3c105Error4whatEi",), Status.FAILED, id="of another"),
    ],
)
def test_a_wheel_is_resolved_in_the_rocm_torch_on_path(
    tmp_path: Path, rocm: Mapping[str, str], this_python: str, undefined: tuple[str, ...], status: Status
) -> None:
    cell = Cell.from_axes("2.8.3", this_python, "2.13.0", "7.2", Backend.CK)
    needed = ("libc10.so", "libamdhip64.so.7")
    path = finished_wheel(tmp_path, cell, members=payload(cell, needed=needed, undefined=undefined))

    result = result_of(path, cell, tmp_path / "cache", rocm)

    assert (result.status, result.versions["torch"]) == (status, "2.13.0+rocm7.2")
    assert result.figures["undefined"] == len(undefined)


SOURCE = """
#include <ATen/core/Tensor.h>
#include <ATen/ops/add.h>
at::Tensor twice(const at::Tensor &x, const std::string &name) {
    TORCH_CHECK(x.dim() > 0, "no dimension in ", name);
    return at::add(x, x);
}
"""
OLD_SOURCE = "#include <c10/core/DeviceType.h>\nauto name() { return c10::DeviceTypeName(c10::kHIP); }"
OTHER_TORCH = "torch-2.9.1-cp311-cp311-manylinux_2_28_aarch64.whl"
OTHER_TORCH_SHA256 = "62b3fd888277946918cba4478cf849303da5359f0fb4e3bfb86b0533ba2eaf8d"


@pytest.fixture(scope="module")
def torch(cache: Path) -> Path:
    """The folder of a real torch 2.13: headers and libraries."""
    return make_build_environment(cache).site_packages / "torch"


@pytest.fixture(scope="module")
def other_torch(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The libraries of torch 2.9.1, of PyPI's build for another processor: without CUDA, so a tenth of the size.

    Symbols are mangled alike on both; nothing of it is run.
    """
    path = fetch_file("torch", OTHER_TORCH, OTHER_TORCH_SHA256, cache / "sources", os.environ)
    folder = tmp_path_factory.mktemp("torch-2.9.1")
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if name.startswith(("torch/lib/lib", "torch.libs/")):
                (folder / Path(name).name).write_bytes(archive.read(name))
    return folder


def extension_of(torch: Path, folder: Path, *flags: str, source: str = SOURCE) -> ElfFile:
    """A real extension, compiled against the headers and libraries of a torch."""
    (folder / "x.cpp").write_text(source)
    command: list[str | Path] = [
        "c++",
        "-O0",
        "-shared",
        "-fPIC",
        "-std=c++20",
        *flags,
        f"-I{torch}/include",
        folder / "x.cpp",
    ]
    links = [f"-L{torch}/lib", "-Wl,--no-as-needed", "-lc10", "-ltorch", "-ltorch_cpu"]
    subprocess.run([*command, *links, "-o", folder / "x.so"], check=True)
    return read_elf("x.so", (folder / "x.so").read_bytes())


def scope_in(folder: Path, needed: Sequence[str]) -> Scope:
    return load_scope(needed, Path(sys.executable).resolve(), [folder, *map(Path, SYSTEM_FOLDERS)])


@pytest.mark.slow
def test_a_real_extension_with_the_old_abi_is_explained(torch: Path, tmp_path: Path) -> None:
    made = extension_of(torch, tmp_path, "-D_GLIBCXX_USE_CXX11_ABI=0", "-Wl,--unresolved-symbols=ignore-all")

    found, _ = check_file(made, scope_in(torch / "lib", made.needed), Toolchain(torch="2.13.0", hip="7.2"))

    (finding,) = (finding for finding in found if "torchCheckFail" in finding.found)
    assert finding.remedy.startswith("built with the old C++ ABI, torch 2.13.0 has the new")


@pytest.mark.slow
def test_a_real_extension_is_resolved_by_its_torch_and_also_loads_on_one_that_defines_its_symbols(
    torch: Path, other_torch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lacking = "c10::TensorImpl::decref_pyobject (_ZNK3c1010TensorImpl15decref_pyobjectEv)"
    for source, others in ((SOURCE, ()), (OLD_SOURCE, ("2.9",))):
        extension_of(torch, tmp_path, source=source)
        results = []
        for version, folder in (("2.9.1", other_torch), ("2.13.0", torch / "lib")):
            cell = replace(CK, torch=version)
            made = {extension_name(cell): (tmp_path / "x.so").read_bytes()}
            wheel = finished_wheel(tmp_path, cell, members={**payload(cell), **made})
            toolchain = Toolchain(python="3.11", torch=f"{version}+rocm6.4", hip="6.4.43484")
            python = SimpleNamespace(toolchain=toolchain, read_scope=partial(scope_in, folder))
            monkeypatch.setattr(Subject, "python", python)
            results.append(result_of(wheel, cell, tmp_path, {}))
        with caplog.at_level("INFO"):
            row = with_other_torches(read_wheel_row(wheel), tmp_path)
        assert [result.status is Status.PASSED for result in results] == [bool(others), True]
        assert all("so this was built for another torch minor" in finding.remedy for finding in results[0].findings)
        assert (bool(row.torch_symbols), row.other_torches) == (True, others)
        assert (f"{wheel.name} does not load on torch 2.9.1, which lacks {lacking}" in caplog.messages) != bool(others)
        caplog.clear()
