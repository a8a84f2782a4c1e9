"""The recipe of a cell on a machine: variables, archs, jobs and refusals; and the run of setup.py with it."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from wheel_factory import CK, MATRIX, TRITON
from wheelfactory.build.executor import BuildCommand, BuildHost
from wheelfactory.build.setup_py import (
    RawWheel,
    Recipe,
    SetupExtras,
    SetupRun,
    choose_archs,
    choose_jobs,
    make_recipe,
    resolve_rocm_version,
    run_setup,
)
from wheelfactory.build.sources import Source
from wheelfactory.core.cell import Backend, Cell
from wheelfactory.core.errors import BuildError, InputError, SourceError
from wheelfactory.core.host import Host
from wheelfactory.core.progress import ProgressCallback

ON_ROCM = Host(cores=8, memory_gib=64, rocm="6.4.3")
WITHOUT = Host(cores=8, memory_gib=64)
PROMISED = ("gfx90a", "gfx942")


def recipe(cell: Cell = CK, host: Host = ON_ROCM, *, by_hand: bool = True, **environ: str) -> Recipe:
    return make_recipe(MATRIX, cell, host, environ, local_build=by_hand)


# archs


@pytest.mark.parametrize(
    ("asked", "detected", "archs"),
    [
        ("gfx942", ("gfx90a",), ("gfx942",)),
        (" gfx942 ; ,\tgfx90a;gfx942\n", (), ("gfx942", "gfx90a")),
        ("", ("gfx942", "gfx90a"), ("gfx942", "gfx90a")),
        (" ; , ", ("gfx942",), ("gfx942",)),
        ("", (), PROMISED),
    ],
)
def test_requested_archs_are_built_else_those_of_the_machine_for_ck(
    asked: str, detected: tuple[str, ...], archs: tuple[str, ...]
) -> None:
    assert choose_archs(MATRIX, CK, asked, detected) == archs
    assert choose_archs(MATRIX, TRITON, "", detected) == MATRIX.archs(TRITON)


@pytest.mark.parametrize(
    ("asked", "refused", "origin"),
    [
        ("gfx90a;gfx1030;mi300", "gfx1030, mi300", "--archs requests it, or PYTORCH_ROCM_ARCH"),
        ("gfx942:xnack-", "gfx942:xnack-", "--archs requests it, or PYTORCH_ROCM_ARCH"),
        ("", "gfx1100", "this machine's GPU has it"),
    ],
)
def test_an_unsupported_arch_is_an_error(asked: str, refused: str, origin: str) -> None:
    with pytest.raises(InputError, match=r"flash-attn 2\.8\.3 ck on ROCm 6\.4 does not support") as caught:
        choose_archs(MATRIX, CK, asked, ("gfx1100",))

    assert caught.value.which == refused
    assert origin in caught.value.hint
    assert "supported: gfx90a;gfx942" in caught.value.hint


@pytest.mark.parametrize(
    ("flash_attn", "backend", "asked", "offered"),
    [
        ("2.8.3", Backend.CK, "gfx1100;gfx1030", True),
        ("2.8.3", Backend.CK, "gfx1100;gfx906", False),  # takes one of two
        ("2.6.3", Backend.CK, "gfx1100", False),  # the release has no Triton wheel
        ("2.8.3", Backend.TRITON, "gfx906", False),  # asked for already
    ],
)
def test_the_hint_offers_triton_if_it_supports_the_arch(
    flash_attn: str, backend: Backend, asked: str, offered: bool
) -> None:
    cell = Cell.from_axes(flash_attn, "3.11", "2.9.1", "6.4", backend)

    with pytest.raises(InputError) as caught:
        choose_archs(MATRIX, cell, asked, ())

    assert ("--backend triton" in caught.value.hint) is offered


def test_an_unsupported_arch_is_reported_before_a_missing_rocm() -> None:
    with pytest.raises(InputError, match="gfx1100"):
        recipe(host=WITHOUT, PYTORCH_ROCM_ARCH="gfx1100")


def test_a_cell_build_ignores_requested_and_detected_archs() -> None:
    host = Host(cores=1, memory_gib=8, rocm="6.4", gpu_archs=("gfx942",))

    assert recipe(host=host, by_hand=False, PYTORCH_ROCM_ARCH="gfx1100").archs == PROMISED


# jobs


def test_max_jobs_sets_the_jobs_beyond_the_memory_too() -> None:
    assert choose_jobs("08", 4) == 8
    assert recipe(host=Host(cores=2, memory_gib=2, rocm="6.4.1"), MAX_JOBS="8").jobs == 8


@pytest.mark.parametrize(
    ("cores", "free_gib", "jobs"), [(4, 16, 4), (16, 64, 16), (16, 16, 11), (2, 2.79, 1), (128, 0.5, 1)]
)
def test_without_max_jobs_cores_or_memory_limit_the_jobs(cores: int, free_gib: float, jobs: int) -> None:
    assert recipe(host=Host(cores=cores, memory_gib=free_gib, rocm="6.4.1")).jobs == jobs


def test_an_invalid_max_jobs_is_an_error() -> None:
    for asked in ("0", "-1", " 4", "\N{ARABIC-INDIC DIGIT FOUR}"):
        with pytest.raises(InputError, match=f"invalid MAX_JOBS: {asked}$"):
            choose_jobs(asked, 4)


# ROCm


@pytest.mark.parametrize(("named", "version"), [("7.2.1", "7.2"), ("6.2.4", "6.2.4"), ("6.2.3", "6.2")])
def test_a_rocm_is_one_of_the_matrix_whether_it_is_named_or_that_of_this_machine(named: str, version: str) -> None:
    assert resolve_rocm_version(MATRIX, Host(cores=1, memory_gib=1, rocm=named), "auto") == version
    assert resolve_rocm_version(MATRIX, WITHOUT, named) == version


@pytest.mark.parametrize(
    ("host", "asked", "what", "hint"),
    [
        (WITHOUT, "auto", "no ROCm found", "ROCM_PATH"),
        *((ON_ROCM, asked, "unknown ROCm", "matrix.yaml has: 7.2, 6.4, 6.2.4, 6.2") for asked in ("7", "7.20", "")),
    ],
)
def test_no_rocm_and_an_unknown_one_are_errors(host: Host, asked: str, what: str, hint: str) -> None:
    with pytest.raises(InputError, match=what) as caught:
        resolve_rocm_version(MATRIX, host, asked)
    assert hint in caught.value.hint


def test_ck_without_its_rocm_is_refused_with_two_alternatives() -> None:
    for rocm in ("6.3.4", "6.40"):
        with pytest.raises(BuildError, match=f"this machine has ROCm {rocm}, the cell needs 6.4") as caught:
            recipe(host=Host(cores=1, memory_gib=1, rocm=rocm))
        assert caught.value.hint == f"name ROCm {rocm} (or auto), or set ROCM_PATH to a ROCm 6.4"

    with pytest.raises(BuildError, match=f"cannot build {CK.id} here: .* no ROCm") as caught:
        recipe(host=WITHOUT)

    assert "ROCM_PATH" in caught.value.hint
    assert "--backend triton" in caught.value.hint


def test_triton_needs_no_rocm() -> None:
    for host in (WITHOUT, ON_ROCM):
        assert recipe(TRITON, host).archs == MATRIX.archs(TRITON)


# the environment of setup.py


def test_a_ck_build_sets_label_archs_and_jobs() -> None:
    assert recipe(PYTORCH_ROCM_ARCH="gfx942;gfx90a", MAX_JOBS="3").setup_variables == {
        "BUILD_TARGET": "rocm",
        "FLASH_ATTENTION_FORCE_BUILD": "TRUE",
        "FLASH_ATTENTION_TRITON_AMD_ENABLE": "FALSE",
        "FLASH_ATTN_LOCAL_VERSION": "rocm64torch2.9",
        "GPU_ARCHS": "gfx942;gfx90a",
        "MAX_JOBS": "3",
    }


def test_a_triton_build_sets_nothing_that_depends_on_the_label() -> None:
    other = Cell.from_axes("2.8.3", "3.11", "2.9.1", "6.4", Backend.TRITON)

    assert recipe(TRITON).setup_variables == recipe(other).setup_variables
    assert recipe(TRITON).setup_variables["FLASH_ATTENTION_TRITON_AMD_ENABLE"] == "TRUE"
    assert (str(recipe(TRITON).label), str(recipe(other).label)) == ("rocm72torch2.13triton", "rocm64torch2.9triton")


READ = ("BUILD_TARGET", "FLASH_ATTENTION_FORCE_BUILD", "FLASH_ATTN_LOCAL_VERSION", "GPU_ARCHS", "MAX_JOBS")


def run(folder: Path, toolchain: str | None, *read: str) -> RawWheel:
    """Run a setup.py that reads these variables and leaves this as toolchain.json (None: no such file)."""
    (folder / "flash_attn").mkdir()
    (folder / "flash_attn/setup.py").write_text("\n".join(read or READ))
    with tarfile.open(folder / "source.tar", "w") as tar:
        tar.add(folder / "flash_attn", "flash_attn")

    def build(command: BuildCommand, _part: ProgressCallback) -> str:
        raw = Path(command.environ["RAW_DIR"])
        raw.mkdir()
        if toolchain is not None:
            (raw / "toolchain.json").write_text(toolchain)
        return f"{raw / 'made.whl'}\n"

    recipe = Recipe(CK, MATRIX.archs(CK), jobs=1)
    place = BuildHost(Host(1, 1.0), Path("python"), Path("ninja"), environ={}, run=build)
    source, log = Source(folder / "source.tar", "sha256:0", 0), folder / "logs/cell.log"
    return run_setup(SetupRun(recipe, source, place, folder / "scratch", log), SetupExtras())


@pytest.mark.parametrize(
    ("toolchain", "message"),
    [("{", "toolchain.json: Invalid JSON"), ("{}{", "Invalid JSON"), (None, "No such file or directory")],
)
def test_an_unreadable_toolchain_is_an_error_with_file_and_log(
    tmp_path: Path, toolchain: str | None, message: str
) -> None:
    (tmp_path / "good").mkdir()
    assert run(tmp_path / "good", '{"python": "3.11"}').toolchain.python == "3.11"
    with pytest.raises(BuildError, match=r"^damaged toolchain file: .*toolchain\.json") as refused:
        run(tmp_path, toolchain)
    assert message in refused.value.which
    assert str(tmp_path / "logs/cell.log") in refused.value.hint


def test_a_setup_py_that_reads_other_variables_is_refused_before_it_runs(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"^setup\.py of this release does not read: GPU_ARCHS, for "):
        run(tmp_path, "{}", *(name for name in READ if name != "GPU_ARCHS"))
