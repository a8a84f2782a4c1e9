"""flash-attn's main branch: upstream's setup.py of commit 4a948e9c, kernels for two families of GPUs, a real compiler.

The kernels for Radeon are executed on the emulator; the forward kernel is compiled without setup.py, whose build would
take twice as long with it. See `preview_sources` for the sources, `real_kernels` for what stands in. Not run: the
Composable Kernel that upstream pins, a kernel for gfx11, AMD's compilers, a GPU.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hip_toolchain import HipToolchain
from preview_sources import VERSION, make_preview_release, read_setup_py
from proved_kernels import Direct, make_proving
from real_kernels import SYSTEM_GLIBC, Bench, Built, Wanted, make_bench
from wheelfactory.build.environments import make_numpy_environment
from wheelfactory.core.cell import Cell
from wheelfactory.core.files import MATRIX
from wheelfactory.core.label import Label
from wheelfactory.emulator.ck_calls import Call, CallReport
from wheelfactory.kernels import prove
from wheelfactory.kernels.compiler.record_calls import Recording
from wheelfactory.kernels.compiler.request import READY_TO_LINK
from wheelfactory.kernels.compiler.store import Store
from wheelfactory.kernels.compiler.targets import is_empty
from wheelfactory.kernels.prove import execute_calls
from wheelfactory.kernels.setup_env import store_folder
from wheelfactory.kernels.source_list import list_sources
from wheelfactory.matrix.load import load_matrix
from wheelfactory.pipeline.build import finish_raw_wheel
from wheelfactory.verify.gates import verify
from wheelfactory.verify.result import Status
from wheelfactory.wheel.inspection import inspect
from wheelfactory.wheel.read import BuildRecord

pytestmark = pytest.mark.slow

ARCHS = ("gfx942", "gfx1201")
INSTINCT = ("fmha_fwd_appendkv_d32_fp16_b64x64x32x32_vr_psskddv_gfx9",)
RADEON = ("fmha_fwd_appendkv_d32_fp16_b64x64x32x32_vr_psskddv_gfx12",)
FILTERS = {"fwd_appendkv": "*_d32_fp16_*_psskddv"}
APIS = ("fmha_fwd_appendkv_api",)

FORWARD = Direct(
    arch="gfx1201",
    direction="fwd",
    pattern="*_d32_fp16_batch_*_npad_nlogits_nbias_mask_lse_ndropout_*",
    headers="dropout|fmha_fwd_kernel|pipeline_qr_ks_vs|custom_policy",
    standard="c++20",
    options=("--targets", "gfx1201"),
)
"""A kernel with a matrix product and barriers."""

PLANTED = {
    "changed constant": (r"(v_cndmask_\S+ \S+) 0xff800000", r"\1 0x3f800000", "output of 0 is off by "),
    "dropped barrier": (
        r"s_barrier_signal -1(.*\n.*)s_barrier_wait 0xffff",
        r"s_nop 0\1s_nop 0",
        "read of local memory after another wave's write, without a barrier: ds_load_b128 ",
    ),
    "shifted store": (
        r"(ds_store_b128 \S+ \S+)",
        r"\1 offset:64",
        "read of local memory that nobody wrote: ds_load_b128 ",
    ),
}
"""Faults of the forward kernel: what to replace in its text, by what, and what the proof says of it."""


@pytest.fixture(scope="module")
def bench(hip: HipToolchain, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    release, torches = make_preview_release(cache, list(ARCHS)), ("2.13.0", "2.14.1")
    make_numpy_environment(cache)
    wanted = Wanted(VERSION, release, FILTERS, archs=ARCHS, torches=torches)
    return make_bench(hip, cache, tmp_path_factory.mktemp("preview"), wanted)


@pytest.fixture(scope="module")
def cell(bench: Bench) -> Cell:
    return next(iter(bench.cells))


@pytest.fixture(scope="module")
def built(bench: Bench, cell: Cell) -> Built:
    return bench.build(cell)


def test_matrix_yaml_pins_the_commit_and_names_the_archs_that_its_setup_py_allows() -> None:
    commit, setup = read_setup_py()
    release = load_matrix(MATRIX).flash_attn[VERSION]
    assert release.git and release.git.commit == commit
    assert release.ck
    allowed = ", ".join(f'"{arch}"' for arch in ("native", *release.ck.archs))
    assert f"    allowed_archs = [{allowed}]\n" in setup
    assert f'"-std=c++{release.ck.cxx_standard}"' in setup


def test_every_source_but_the_api_has_a_guard_that_admits_one_family(cache: Path) -> None:
    archs = ["gfx90a", "gfx942", "gfx950", "gfx1200", "gfx1201"]
    found = list_sources(VERSION, make_preview_release(cache, archs), cache, os.environ)
    unguarded = [name for name in found.sources if name not in found.guards]
    assert unguarded == [f"fmha_{kind}_api" for kind in ("bwd", "fwd", "fwd_appendkv", "fwd_splitkv")]
    compiled = {arch: [name for name, guard in found.guards.items() if not is_empty(guard, (arch,))] for arch in archs}
    assert {arch: len(names) for arch, names in compiled.items()} == {
        "gfx90a": 2370,
        "gfx942": 2370,
        "gfx950": 2926,
        "gfx1200": 2274,
        "gfx1201": 2274,
    }
    assert len(found.sources) == 6788
    suffixes = {arch: {name.rpartition("_")[2] for name in names} for arch, names in compiled.items()}
    assert suffixes["gfx1201"] == {"gfx12"}
    assert suffixes["gfx950"] == {"gfx9", "gfx950"}, "the suffix gfx9 does not say whether gfx950 has code"


def test_upstreams_new_setup_py_links_both_families_for_torch_with_c_plus_plus_20(built: Built) -> None:
    assert built.report.state == READY_TO_LINK
    assert built.raw
    flags = built.parts["flags"]
    assert isinstance(flags, list)
    assert {"-std=c++20", "-fbracket-depth=1024", "-DCK_TILE_FLOAT_TO_BFLOAT16_DEFAULT=3"} <= {*flags}
    assert "-DHIPIFY_V2" in built.commands["flash_api"], "the binding's hipify"


def test_setup_py_prepends_another_bfloat16_conversion_to_the_sources_for_radeon(bench: Bench, built: Built) -> None:
    for name in (*INSTINCT, *RADEON):
        (source,) = bench.folder.glob(f"build0/**/build/{name}.hip")
        assert ("#undef CK_TILE_FLOAT_TO_BFLOAT16_DEFAULT\n" in source.read_text()) is (name in RADEON)


def test_only_archs_with_code_are_compiled_and_the_others_come_from_empty_sources(built: Built) -> None:
    empty = {name for name, record in built.objects.items() if record.cpu_s == 0}
    assert empty == {f"{name} for gfx1201" for name in INSTINCT} | {f"{name} for gfx942" for name in RADEON}
    assert {*built.objects} - empty == {
        *(f"{name} for gfx942" for name in INSTINCT),
        *(f"{name} for gfx1201" for name in RADEON),
        *(f"{name} for host" for name in (*INSTINCT, *RADEON, *APIS)),
    }


def test_a_sample_of_each_kind_and_guard_is_the_ordinary_object(built: Built) -> None:
    assert {name.partition(" ")[0] for name in built.samples} == {*INSTINCT, *RADEON, *APIS}
    assert [note for note in built.notes if "inlines without end" not in note] == []


@dataclass(frozen=True)
class Executed:
    """A proof, and the arguments of `execute_calls`, which find the texts of the kernels in `scratch`."""

    proof: dict[str, Any]
    recorded: Mapping[str, Recording]
    codes: Mapping[str, Path]
    scratch: Path
    cache: Path
    calls: Sequence[Call]


@pytest.fixture(scope="module")
def executed(bench: Bench, built: Built, tmp_path_factory: pytest.TempPathFactory) -> Executed:
    """The kernels for Radeon, executed: those that setup.py compiled, and `FORWARD`."""
    copy, given = tmp_path_factory.mktemp("executed") / "scratch", list[Any]()

    def execute(recorded: Any, codes: Any, scratch: Path, *rest: Any) -> list[CallReport]:
        shutil.copytree(scratch, copy, ignore=shutil.ignore_patterns("source"))
        given.extend((recorded, codes, copy, *rest))
        return execute_calls(recorded, codes, scratch, *rest)

    kept = [Store.open(store_folder(bench.folder / "cache"), key) for key in built.report.keys]
    stores = FORWARD.compile(bench, kept)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prove, "execute_calls", execute)
        proof = make_proving(bench, "gfx1201", stores).prove()
    return Executed(proof, *given)


def test_every_kernel_for_radeon_is_executed_and_right(executed: Executed) -> None:
    proof = executed.proof
    assert (proof["faults"], proof["archs"], proof["kernels"]) == ([], ["gfx1201"], len(RADEON) + 1)
    assert {source.partition("_d32")[0] for source in proof["executed"].values()} == {"fmha_fwd", "fmha_fwd_appendkv"}
    names = {each["name"] for call in proof["calls"] for each in call["differences"]}
    assert names >= {"output of 0", "lse of 0", "keys of 0", "values of 1", "queries of 0"}


@pytest.mark.parametrize(("pattern", "replacement", "fault"), PLANTED.values(), ids=PLANTED)
def test_a_fault_in_a_kernel_is_found_and_named(executed: Executed, pattern: str, replacement: str, fault: str) -> None:
    (code,) = (code for name, code in executed.codes.items() if "FmhaFwdKernel" in name)
    text = executed.scratch / f"{code.name}.s"
    right = text.read_text()
    changed, count = re.subn(pattern, replacement, right, count=1)
    assert count
    shutil.rmtree(executed.cache / "proofs")
    text.write_text(changed)
    reports = execute_calls(executed.recorded, executed.codes, executed.scratch, executed.cache, executed.calls)
    text.write_text(right)
    assert any("FmhaFwdKernel" in found and fault in found for report in reports for found in report.faults)


@pytest.fixture(scope="module")
def wheel(bench: Bench, cell: Cell, built: Built) -> Path:
    """The finished wheel."""
    assert built.raw
    record = BuildRecord(
        cell=cell.id,
        label=str(Label.from_cell(cell)),
        offload_archs=ARCHS,
        source=bench.source.identity,
        kernels=built.report.key,
        toolchain=built.raw.toolchain.model_copy(update={"glibc": SYSTEM_GLIBC}),
    )
    return finish_raw_wheel(built.raw.path, record, bench.folder / "finished", bench.given(cell, "cache").environ)


def test_every_bundle_of_the_extension_has_both_archs(wheel: Path) -> None:
    (extension,) = inspect(wheel, {}).elf_files
    # HIP's loader stops at a visible device without a code object, so none is left out
    assert {target: code.objects for target, code in extension.device_code.items()} == dict.fromkeys(
        ARCHS, len(INSTINCT + RADEON)
    )


def test_the_wheel_says_which_commit_it_is(wheel: Path) -> None:
    assert wheel.name.startswith("flash_attn-2.8.4+rocm64torch2.13git4a948e9-")


def test_every_gate_but_the_import_accepts_the_wheel(bench: Bench, cell: Cell, wheel: Path) -> None:
    # the import needs torch itself
    results = verify(wheel, selected=lambda gate: gate.name != "import", context=bench.given(cell, "cache"))
    asked = {result.gate: result for result in results if result.required}
    assert {name: result.findings for name, result in asked.items() if result.status is not Status.PASSED} == {}
