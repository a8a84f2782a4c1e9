"""Real CK kernels, compiled once by a real HIP compiler and linked into the wheels of two cells.

See `real_kernels` for what is real here and what stands in. The binding is ours in all of these tests, and the Python
package beside it is upstream's, which asks more of torch than a torch on paper has.
"""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from hip_rocm import make_hip_rocm
from hip_toolchain import HipToolchain
from kernel_project import make_project
from real_kernels import ARCHS, KERNELS, SYSTEM_GLIBC, Bench, Built, append_kernels, make_bench
from wheel_factory import read_zip
from wheelfactory.core.cell import Cell
from wheelfactory.core.errors import BuildError
from wheelfactory.core.files import file_sha256
from wheelfactory.core.label import Label
from wheelfactory.kernels.compiler.ninja import NOT_LINKED
from wheelfactory.kernels.compiler.objects import read_device_code, require_object
from wheelfactory.kernels.compiler.request import READY_TO_LINK, SHARD_DONE
from wheelfactory.kernels.compiler.store import Store
from wheelfactory.kernels.compiler.targets import HOST
from wheelfactory.kernels.setup_env import CompileScope
from wheelfactory.pipeline.build import finish_raw_wheel
from wheelfactory.verify.gates import verify
from wheelfactory.verify.result import Status
from wheelfactory.wheel.elf.image import DamagedElfError
from wheelfactory.wheel.inspection import inspect
from wheelfactory.wheel.read import BuildRecord

pytestmark = pytest.mark.slow

BINDING = "flash_api"


@pytest.fixture(scope="module")
def bench(hip: HipToolchain, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return make_bench(hip, cache, tmp_path_factory.mktemp("real"), append_kernels())


@pytest.fixture(scope="module")
def cells(bench: Bench) -> tuple[Cell, Cell]:
    """Of two torches, and of two Pythons where there are two."""
    first, second = bench.cells
    return first, second


@pytest.fixture(scope="module")
def narrow(bench: Bench, cells: tuple[Cell, Cell]) -> Built:
    """The first cell for one arch alone."""
    return bench.build(cells[0], PYTORCH_ROCM_ARCH=ARCHS[1])


@pytest.fixture(scope="module")
def first(bench: Bench, cells: tuple[Cell, Cell], narrow: Built) -> Built:
    """The first cell for both archs."""
    return bench.build(cells[0])


@pytest.fixture(scope="module")
def second(bench: Bench, cells: tuple[Cell, Cell], first: Built) -> Built:
    return bench.build(cells[1])


@pytest.fixture(scope="module")
def wheel(bench: Bench, cells: tuple[Cell, Cell], first: Built) -> Path:
    """The finished wheel of the first cell."""
    assert first.raw
    record = BuildRecord(
        cell=cells[0].id,
        label=str(Label.from_cell(cells[0])),
        offload_archs=ARCHS,
        source=bench.source.identity,
        kernels=first.report.key,
        toolchain=first.raw.toolchain.model_copy(update={"glibc": SYSTEM_GLIBC}),
    )
    return finish_raw_wheel(first.raw.path, record, bench.folder / "finished", bench.given(cells[0], "cache").environ)


def parts(*targets: str) -> list[str]:
    """The compiles for these targets. The source that chooses a kernel has no device code."""
    return [f"{name} for {target}" for target in targets for name in KERNELS if target == "host" or "_api" not in name]


def linked(bench: Bench, number: int) -> Mapping[str, str]:
    """The sha256 of each object that a build linked."""
    return {path.stem: file_sha256(path) for path in bench.folder.glob(f"build{number}/**/fmha_*.o")}


def test_the_first_build_compiles_device_and_host_code_of_every_kernel_and_links(narrow: Built) -> None:
    assert narrow.compiled == sorted((BINDING, *parts(ARCHS[1], "host")))
    assert (narrow.report.state, narrow.report.compiled) == (READY_TO_LINK, len(parts(ARCHS[1], "host")))
    assert narrow.raw


def test_one_sample_of_each_kind_is_the_ordinary_object_so_headers_are_precompiled_and_parts_kept(
    narrow: Built, first: Built
) -> None:
    assert {name.partition(" ")[0].partition("_d")[0] for name in narrow.samples} == {
        "fmha_fwd_appendkv",
        "fmha_fwd_appendkv_api",
    }
    assert all("-include-pch" in narrow.commands[name] for name in parts(ARCHS[1]))
    assert not [note for built in (narrow, first) for note in built.notes if "differs" in note or "ordinary" in note]


def test_another_arch_is_compiled_alone(first: Built) -> None:
    assert first.compiled == sorted((BINDING, *parts(ARCHS[0])))
    assert first.report.reused == len(parts(ARCHS[1], "host"))


def test_an_object_that_was_no_sample_is_the_ordinary_object_too(bench: Bench, narrow: Built) -> None:
    sample = narrow.samples[-1]
    name = next(kernel for kernel in KERNELS[:0:-1] if not sample.startswith(kernel))
    ordinary = bench.folder / f"{name}.o"
    words = narrow.commands[sample].replace(sample.partition(" ")[0], name).split()
    words[words.index("-o") + 1] = str(ordinary)
    build = next(bench.folder.glob(f"build0/**/build/{name}.hip")).parents[1]
    subprocess.run([bench.rocm / "bin/hipcc", *words], cwd=build, check=True)
    assert file_sha256(ordinary) == linked(bench, 0)[name]


def test_a_second_cell_compiles_no_kernel(second: Built) -> None:
    assert second.compiled == [BINDING]
    assert (second.report.state, second.report.reused) == (READY_TO_LINK, len(parts(*ARCHS, "host")))


def test_upstreams_setup_py_stops_before_the_link_for_a_set_alone(
    bench: Bench, cells: tuple[Cell, Cell], first: Built, second: Built
) -> None:
    alone = bench.build(cells[0], wanted=CompileScope(targets=(ARCHS[0],)))
    assert (alone.raw, alone.report.state, alone.compiled) == (None, SHARD_DONE, [])


def test_kernels_of_both_cells_are_of_one_key_and_the_same_bytes_are_linked(
    bench: Bench, first: Built, second: Built
) -> None:
    assert first.report.key == second.report.key
    assert linked(bench, 1) == linked(bench, 2)
    assert sorted(linked(bench, 1)) == sorted(KERNELS)


def test_early_inlining_is_disabled_and_logged_for_a_compiler_that_blows_up(bench: Bench, first: Built) -> None:
    """Upstream's flags, with which one kernel of head dim 128 did not end in 9.5 CPU minutes."""
    (note,) = first.notes
    assert note.startswith("Debian clang version 21")
    assert "inlines without end with -amdgpu-early-inline-all=true with -amdgpu-function-calls=false" in note
    flags = first.parts["flags"]
    assert isinstance(flags, list)
    assert "-amdgpu-early-inline-all=true" not in flags
    assert {"-amdgpu-early-inline-all=false", "-amdgpu-function-calls=false"} <= set(flags)
    command = first.commands[parts(ARCHS[0])[0]]
    assert "-mllvm -amdgpu-early-inline-all=false" in command
    assert "-amdgpu-early-inline-all=true" not in command
    assert "-mllvm -amdgpu-early-inline-all=true" in first.commands[BINDING]


def test_every_bundle_of_the_extension_has_exactly_the_archs(bench: Bench, wheel: Path) -> None:
    (extension,) = inspect(wheel, {}).elf_files
    assert {target: code.objects for target, code in extension.device_code.items()} == dict.fromkeys(
        ARCHS, len(KERNELS) - 1
    )


def test_repair_grafts_nothing_and_leaves_hip_outside(wheel: Path) -> None:
    (extension,) = inspect(wheel, {}).elf_files
    assert "libamdhip64.so.6" in extension.needed
    assert wheel.name.endswith("-manylinux_2_39_x86_64.whl")
    assert not [name for name in zipfile.ZipFile(wheel).namelist() if ".libs/" in name]


def test_every_gate_but_the_import_accepts_the_wheel(bench: Bench, cells: tuple[Cell, Cell], wheel: Path) -> None:
    """The import needs torch itself, which the package imports, and a system as new as the compiler's."""
    found = verify(wheel, selected=lambda gate: gate.name != "import", context=bench.given(cells[0], "cache"))
    results = {result.gate: result for result in found if result.required}
    assert results.keys() == {"archive", "identity", "record", "contents", "linking", "code-objects", "symbols"}
    assert {name: result.findings for name, result in results.items() if result.status is not Status.PASSED} == {}
    assert results["code-objects"].detail.endswith("the bytes of its kernel set")


def test_the_extension_with_our_binding_imports_with_the_real_hip_and_reaches_the_kernels(
    bench: Bench, cells: tuple[Cell, Cell], first: Built
) -> None:
    """In the compiler's own system, as this one may be older. CK's API knows no head dim 500 and says so; for one that
    it has, it gets as far as the start of a kernel, for which there is no GPU."""
    if sys.base_prefix == "/usr":
        pytest.skip("needs a Python with a folder of its own, which the compiler's system can be shown")
    python = bench.cells[cells[0]]
    code = "import flash_attn_2_cuda as it; print(it.append(500), flush=True); it.append(64)"
    torch = next(python.parents[1].glob("lib/*/site-packages/torch/lib"))
    command = ("env", f"LD_LIBRARY_PATH={torch}", python, "-c", code)
    done = bench.run_inside(next(bench.folder.glob("build1/source/*/build/lib*")), *command)
    assert done.stdout == "-1.0\n", done.stderr
    assert "RuntimeError" in done.stderr
    assert "no ROCm-capable device is detected" in done.stderr


def test_a_cell_built_again_on_another_tree_has_the_same_bytes(
    bench: Bench, cells: tuple[Cell, Cell], first: Built, second: Built
) -> None:
    again = bench.build(cells[0])
    assert first.raw and again.raw
    assert first.raw.path != again.raw.path
    assert read_zip(first.raw.path) == read_zip(again.raw.path)


@pytest.mark.parametrize("target", [ARCHS[0], HOST])
def test_an_object_in_the_place_of_another_is_refused(bench: Bench, first: Built, target: str) -> None:
    """When it is saved, by the id that the compiler writes into it, and before the link, by the names of kernels."""
    stores = {
        store.key.parts["targets"][0]: store
        for store in (Store.open(bench.folder / "cache/kernels", key) for key in first.report.keys)
    }
    own, other = [name for name in KERNELS if "_api" not in name][:2]
    saved = stores[target].object_path(other)
    require_object(saved, other, target)
    with pytest.raises(DamagedElfError, match="compiled from another source"):
        require_object(saved, own, target)
    host = stores[HOST].object_path(other if target == HOST else own).read_bytes()
    device = stores[ARCHS[0]].object_path(own if target == HOST else other)
    with pytest.raises(BuildError, match="kernel object of another source"):
        read_device_code(own, host, {ARCHS[0]: device}, is_guarded=False)


def test_an_unsupported_arch_is_refused_with_the_compilers_error_before_compiling(
    hip: HipToolchain, tmp_path: Path
) -> None:
    make_hip_rocm(hip, tmp_path / "rocm", tmp_path)
    project = make_project(tmp_path, flags="--offload-arch=gfx9999")
    code, output = project.run()
    assert code == NOT_LINKED, output
    refused = json.loads((project.root / "result.json").read_text())
    assert refused["what"] == "unsupported by this compiler"
    assert "gfx9999 (clang++: error: " in refused["which"]
    assert "gfx942" not in refused["which"]
    assert not list(project.build.glob("*.o"))
