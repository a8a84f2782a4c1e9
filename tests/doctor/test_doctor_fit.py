"""Matching of wheels, machines and torches, and every reason for a mismatch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from doctor.known import FACTS
from doctor.releases import as_read, fallback_row, fallback_rows, small_release
from report_rows import rows_of
from wheelfactory.core.cell import Backend
from wheelfactory.core.gpus import product_names
from wheelfactory.doctor.fit import Fit, find_fallbacks, find_fit
from wheelfactory.doctor.gpu_match import gpu_warnings, hide_gpus_hint, list_visible_gpus
from wheelfactory.doctor.machine import InstalledTorch, Machine, Python
from wheelfactory.doctor.published_wheels import PublishedWheel
from wheelfactory.release.manifest import WheelRow

PYTHON = Python("/venv/bin/python", "3.11.7", "cp311", glibc="2.36", pip="25.0")
ROCM_TORCH = InstalledTorch("2.9.1+rocm6.4", hip="6.4.43482-0f2d60242", cxx11_abi=True, sees_gpu=True)
MI300X = Machine(PYTHON, torch=ROCM_TORCH, gpus=("gfx942",), gpu_names=("AMD Instinct MI300X OAM",))

CK = "2.8.3+rocm64torch2.9"
TRITON = f"{CK}triton"


def best(fit: Fit) -> list[str]:
    return [f"{wheel.version} {wheel.python_tag}" for wheel in fit.fitting]


def why(fit: Fit, version: str, tag: str | None = "cp311") -> tuple[str, ...]:
    """Return the reasons why one wheel does not match."""
    (miss,) = [miss for miss in fit.near_misses if (miss.wheel.version, miss.wheel.python_tag) == (version, tag)]
    return miss.reasons


def test_a_torch_that_does_not_import_is_matched_by_its_version(wheels: tuple[PublishedWheel, ...]) -> None:
    torch = InstalledTorch("2.9.1+rocm6.4", error="killed by SIGSEGV")
    assert best(find_fit(wheels, replace(MI300X, torch=torch), FACTS))[0] == f"{CK} cp311"


def test_a_torch_built_in_a_container_is_matched_by_its_description(wheels: tuple[PublishedWheel, ...]) -> None:
    torch = InstalledTorch("2.5.0a0+git1234567", hip="6.2.41133-dd7f95766", cxx11_abi=True)
    fit = find_fit(wheels, replace(MI300X, torch=torch), FACTS)
    other_build = "built with PyTorch's torch; yours is another build, and the wheel does not list what it needs of it"
    other_abi = "built with the old C++ ABI, your torch uses the new one"
    assert why(fit, "2.8.3+rocm62torch2.5") == (other_build, other_abi)


def test_a_ck_wheel_matches_another_build_of_torch_that_defines_its_symbols(wheels: tuple[PublishedWheel, ...]) -> None:
    needed = ("_ZN3c105ErrorC1Ev", "_ZN3c104warnEv")
    listed = tuple(replace(wheel, torch_symbols=needed if wheel.machine else ()) for wheel in wheels)
    torch = replace(ROCM_TORCH, version="2.9.1+rocm6.4.3.git7e1940d4", exports=("_ZN3c104warnEv", "_ZN3c105ErrorC1Ev"))
    fit = find_fit(listed, replace(MI300X, torch=torch), FACTS)
    assert best(fit)[:2] == [f"{TRITON} None", f"{CK} cp311"], "what may work comes after what works"
    ck = next(one for one in fit.fitting if one.version == CK)
    (caution,) = gpu_warnings(ck, replace(MI300X, torch=torch), FACTS)
    assert caution.startswith("may work: your torch is another build")
    assert "all 2 symbols" in caution
    lacking = find_fit(listed, replace(MI300X, torch=replace(torch, exports=torch.exports[:1])), FACTS)
    assert best(lacking) == [f"{TRITON} None"]
    assert why(lacking, CK) == (
        "built with PyTorch's torch; yours, another build, does not define c10::Error::Error (_ZN3c105ErrorC1Ev)",
    )


def test_a_ck_wheel_for_amds_torch_matches_that_build_alone(tmp_path: Path) -> None:
    cells = [f"fa2.8.3-rocm6.4-torch2.9.1{build}-cp311-ck" for build in ("", "amd")]
    built = as_read(rows_of(tmp_path, cells, offload_archs=("gfx942",), cxx11_abi=True, glibc="2.28"))
    amds = f"{CK}amd"
    for version, fits in (
        ("2.9.1+rocm6.4", [CK]),
        ("2.9.1+rocm6.4.3.git7e1940d4", [amds]),
        ("2.9.1+rocm6.4.3.lw.git7e1940d4", [amds]),
        ("2.9.1+git7e1940d4", []),
        ("2.9.1+rocm7.2.0.git7e1940d4", []),
    ):
        torch = replace(ROCM_TORCH, version=version)
        fit = find_fit(built, replace(MI300X, torch=torch), FACTS)
        assert [wheel.version for wheel in fit.fitting] == fits, version
    of_pytorch = find_fit(built, MI300X, FACTS)
    assert why(of_pytorch, amds) == (
        "built with AMD's torch; yours is another build, and the wheel does not list what it needs of it",
    )
    without = find_fit([wheel for wheel in built if wheel.version == amds], replace(MI300X, torch=None), FACTS)
    assert without.with_other_torch is None, "AMD's torch is on no index of PyTorch"


def test_a_wheel_for_another_torch_is_named_where_no_wheel_fits_and_its_symbols_are_there(tmp_path: Path) -> None:
    cells = [f"fa2.8.3-rocm6.4-torch{torch}-cp311-ck" for torch in ("2.9.1", "2.8.0")]
    built = as_read(rows_of(tmp_path, cells, offload_archs=("gfx942",), other_torches=("2.8",), glibc="2.28"))
    newest = next(wheel for wheel in built if wheel.version == CK)
    assert find_fit(built, MI300X, FACTS).measured is None, "not where a wheel for the installed torch is"
    for torch, name in (("2.8.0+rocm6.4", newest), ("2.7.1+rocm6.4", None), ("2.8.0+rocm6.3", None)):
        machine = replace(MI300X, torch=replace(ROCM_TORCH, version=torch))
        assert find_fit([newest], machine, FACTS).measured is name, torch


def test_ck_is_preferred_to_triton_then_the_newest_release(wheels: tuple[PublishedWheel, ...]) -> None:
    expected = [f"{CK} cp311", "2.7.4.post1+rocm64torch2.9 cp311", f"{TRITON} None"]
    assert best(find_fit(wheels, MI300X, FACTS)) == expected


def test_wheels_can_be_limited_to_a_backend_or_a_release(wheels: tuple[PublishedWheel, ...]) -> None:
    assert best(find_fit(wheels, MI300X, FACTS, backend=Backend.TRITON)) == [f"{TRITON} None"]
    assert best(find_fit(wheels, MI300X, FACTS, flash_attn="2.7.4.post1")) == ["2.7.4.post1+rocm64torch2.9 cp311"]
    none = find_fit(wheels, MI300X, FACTS, flash_attn="2.7.4")
    assert (none.fitting, none.near_misses, none.with_other_torch) == ((), (), None)
    assert none.unfiltered == find_fit(wheels, MI300X, FACTS).fitting[0]


CUDA = InstalledTorch("2.9.1+cu128", cuda="12.8", cxx11_abi=True)


def test_a_mismatch_has_all_its_reasons(wheels: tuple[PublishedWheel, ...]) -> None:
    expected: list[tuple[dict[str, object], tuple[str, ...]]] = [
        ({"torch": replace(ROCM_TORCH, version="2.10.0+rocm6.4")}, ("built for torch 2.9, you have 2.10",)),
        ({"torch": replace(ROCM_TORCH, version="2.9.1", hip="7.1.25424")}, ("built for ROCm 6.4, your torch for 7.1",)),
        ({"torch": None}, ("torch is not installed",)),
        ({"torch": CUDA}, ("torch is a CUDA build",)),
        ({"torch": replace(CUDA, cuda=None)}, ("torch is a CPU build",)),
        ({"torch": InstalledTorch("2.9.1+cu128", error="killed")}, ("torch is a CUDA build",)),
        ({"torch": InstalledTorch("2.9.1+cpu", error="killed")}, ("torch is a CPU build",)),
        (
            {"torch": InstalledTorch("2.9.0a0+git1", error="killed")},
            ("torch cannot be imported, so its ROCm version is unknown",),
        ),
        (
            {"torch": InstalledTorch("2.10.0+rocm6.4.1", hip="6.4")},
            (
                "built for torch 2.9, you have 2.10",
                "built with PyTorch's torch; yours is another build, and the wheel does not list what it needs of it",
            ),
        ),
        ({"torch": replace(ROCM_TORCH, cxx11_abi=False)}, ("built with the new C++ ABI, your torch uses the old one",)),
        ({"python": replace(PYTHON, version="3.13.1", tag="cp313")}, ("built for Python 3.11, you have 3.13",)),
        (
            {"python": replace(PYTHON, version="3.13.1", tag="cp313t")},
            ("built for Python 3.11, you have 3.13 free-threaded",),
        ),
        ({"python": replace(PYTHON, tag="pp311")}, ("built for Python 3.11, you have PyPy 3.11",)),
        (
            {"python": replace(PYTHON, version="3.8.18", tag="cp38")},
            ("built for Python 3.11, you have 3.8", "needs Python 3.9 or newer, you have 3.8"),
        ),
        ({"python": replace(PYTHON, glibc="2.17")}, ("needs glibc 2.28, this system has 2.17",)),
        ({"python": replace(PYTHON, glibc=None)}, ("needs glibc 2.28, this system has another C library",)),
        ({"python": replace(PYTHON, machine="aarch64")}, ("built for x86_64, this machine is aarch64",)),
        ({"python": replace(PYTHON, system="Darwin")}, ("built for Linux, this system is Darwin",)),
        ({"gpus": ("gfx1030",), "gpu_names": ("Radeon RX 6800",)}, ("has no code for gfx1030 (Radeon RX 6800)",)),
        (
            {"gpus": ("gfx1151",), "gpu_names": ("",)},
            ("has no code for gfx1151 (Ryzen AI Max (Strix Halo), Radeon 8040S, 8050S ...)",),
        ),
        ({"gpus": ("gfx9999",), "gpu_names": ("",)}, ("has no code for gfx9999",)),
    ]
    for changed, reasons in expected:
        machine = replace(MI300X, **changed)  # type: ignore[arg-type] # values for any field
        assert why(find_fit(wheels, machine, FACTS), CK) == reasons
    newer = replace(MI300X, packages={"pytorch-triton-rocm": "3.9.0"})
    reason = "needs Triton >=3.2,<3.9, you have pytorch-triton-rocm 3.9.0"
    assert why(find_fit(wheels, newer, FACTS), TRITON, None) == (reason,)


def test_unknown_facts_are_accepted_and_a_wheel_without_compiled_code_matches_any_system(
    wheels: tuple[PublishedWheel, ...],
) -> None:
    unknown = Machine(replace(PYTHON, glibc="2.100"), torch=replace(ROCM_TORCH, cxx11_abi=None))
    assert find_fit(wheels, replace(unknown, gpus=("gfx942",), gpu_names=("",)), FACTS).fitting[0].version == CK
    python = replace(PYTHON, glibc=None, machine="aarch64", version="3.13.0", tag="cp313t")
    assert best(find_fit(wheels, replace(MI300X, python=python), FACTS)) == [f"{TRITON} None"]


def test_a_yanked_wheel_has_its_reason_and_a_replacement_is_preferred_whenever_it_was_published(
    rows: tuple[WheelRow, ...],
) -> None:
    yanked = [row.model_copy(update={"yanked": "wrong kernels"} if row.version == CK else {}) for row in rows]
    fit = find_fit(as_read(yanked), MI300X, FACTS)
    assert best(fit)[0] == "2.7.4.post1+rocm64torch2.9 cp311"
    assert why(fit, CK) == ("yanked: wrong kernels",)
    (old,) = [row for row in rows if row.version == CK and "cp311" in row.filename]
    names = [old.filename.replace("-1-cp311", f"-{build}-cp311") for build in ("1b", "1", "2", "1a")]
    several = [old.model_copy(update={"filename": name, "sha256": f"{at}" * 64}) for at, name in enumerate(names)]
    fitting = find_fit(as_read(several), MI300X, FACTS).fitting
    assert [wheel.filename.split("-")[2] for wheel in fitting] == ["2", "1b", "1a", "1"]


def test_near_misses_are_sorted_by_the_number_of_reasons(wheels: tuple[PublishedWheel, ...]) -> None:
    torch = InstalledTorch("2.13.0+rocm7.2", hip="7.2.1", cxx11_abi=True)
    machine = replace(MI300X, torch=torch, python=replace(PYTHON, version="3.12.1", tag="cp312"))
    fit = find_fit(wheels, machine, FACTS)
    assert not fit.fitting
    assert fit.near_misses[0].reasons == ("built for Python 3.11, you have 3.12",)
    counts = [len(miss.reasons) for miss in fit.near_misses]
    assert counts == sorted(counts)
    assert why(fit, CK) == (
        "built for torch 2.9, you have 2.13",
        "built for ROCm 6.4, your torch for 7.2",
        "built for Python 3.11, you have 3.12",
    )


@pytest.mark.parametrize(
    ("python", "gpu", "version"),
    [
        (PYTHON, "gfx942", "2.8.3+rocm72torch2.13"),
        (replace(PYTHON, version="3.12.1", tag="cp312"), "gfx942", CK),
        (PYTHON, "gfx1030", TRITON),
        (PYTHON, "gfx1151", None),
    ],
)
def test_without_torch_the_best_wheel_decides_the_torch(
    wheels: tuple[PublishedWheel, ...], python: Python, gpu: str, version: str | None
) -> None:
    found = find_fit(wheels, Machine(python, gpus=(gpu,)), FACTS).with_other_torch
    assert (found.version if found else None) == version


@pytest.mark.parametrize(
    ("gpu", "version"), [("gfx942", "2.8.3+rocm72torch2.13"), ("gfx1100", "2.8.3+rocm72torch2.14triton")]
)
def test_the_torch_for_ck_is_preferred_to_a_newer_one_for_triton(tmp_path: Path, gpu: str, version: str) -> None:
    newer = rows_of(tmp_path, ["fa2.8.3-rocm7.2-torch2.14.1-py3-triton"], offload_archs=("gfx942", "gfx1100"))
    wheels = as_read([*small_release(tmp_path / "made"), *newer])
    found = find_fit(wheels, Machine(PYTHON, gpus=(gpu,)), FACTS).with_other_torch
    assert found and found.version == version


def test_only_a_torch_that_pytorch_builds_is_suggested(tmp_path: Path) -> None:
    """A Triton wheel accepts any Python from 3.9 on and any system, but its torch does not."""
    expected: list[tuple[dict[str, str | None], str | None]] = [
        ({"version": "3.10.1", "tag": "cp310"}, "2.8.3+rocm72torch2.14triton"),
        ({"version": "3.9.18", "tag": "cp39"}, "2.8.3+rocm64torch2.8triton"),
        ({"version": "3.15.0", "tag": "cp315"}, None),
        ({"tag": "pp311"}, None),
        ({"glibc": None}, None),
        ({"machine": "aarch64"}, None),
        ({"system": "Darwin"}, None),
    ]
    cells = ["fa2.8.3-rocm7.2-torch2.14.1-py3-triton", "fa2.8.3-rocm6.4-torch2.8.0-py3-triton"]
    wheels = as_read(rows_of(tmp_path, cells, offload_archs=("gfx942",)))
    for changed, version in expected:
        python = replace(PYTHON, **changed)  # type: ignore[arg-type] # values for any field
        found = find_fit(wheels, Machine(python, gpus=("gfx942",)), FACTS).with_other_torch
        assert (found.version if found else None) == version


PREVIEW = "2.8.4+rocm72torch2.13git4a948e9"
TORCH_213 = replace(ROCM_TORCH, version="2.13.0+rocm7.2", hip="7.2.53211-0f2d60242")


@pytest.fixture(scope="module")
def preview(tmp_path_factory: pytest.TempPathFactory) -> tuple[PublishedWheel, ...]:
    """The wheels of torch 2.13: two releases, and a preview for Radeon too."""
    archs = ("gfx942", "gfx1100", "gfx1101")
    cells = [f"fa2.8.3-rocm7.2-torch2.13.0-{tag}" for tag in ("cp311-ck", "py3-triton")]
    released = rows_of(tmp_path_factory.mktemp("released"), cells)
    made = rows_of(tmp_path_factory.mktemp("preview"), ["fa2.8.4+git4a948e9-rocm7.2-torch2.13.0-cp311-ck"])
    return as_read([*released, *(row.model_copy(update={"offload_archs": archs}) for row in made)])


def test_a_preview_is_offered_after_every_release(preview: tuple[PublishedWheel, ...]) -> None:
    fit = find_fit(preview, replace(MI300X, torch=TORCH_213), FACTS)
    assert [wheel.version for wheel in fit.fitting] == [*(f"2.8.3+rocm72torch2.13{x}" for x in ("", "triton")), PREVIEW]


def test_a_preview_and_an_arch_that_nobody_tested_may_work(preview: tuple[PublishedWheel, ...]) -> None:
    radeon = replace(MI300X, torch=TORCH_213, gpus=("gfx1101",), gpu_names=("Radeon RX 7800 XT",))
    (wheel,) = [wheel for wheel in find_fit(preview, radeon, FACTS).fitting if wheel.version == PREVIEW]
    (caution,) = gpu_warnings(wheel, radeon, FACTS)
    assert caution.startswith("may work: ")
    assert "2.8.4 preview (commit 4a948e9) is not a release of upstream" in caution
    assert "compiled for gfx1101, and not proved on it" in caution
    assert not [*gpu_warnings(preview[0], replace(radeon, gpus=("gfx942",)), FACTS)], "a release"


MIXED = replace(MI300X, gpus=("gfx1036", "gfx1100"), gpu_names=("", "Radeon RX 7900 XTX"))


def test_a_wheel_for_some_gpus_matches_if_the_others_are_hidden(wheels: tuple[PublishedWheel, ...]) -> None:
    fit = find_fit(wheels, MIXED, FACTS)
    assert best(fit) == [f"{TRITON} None"]
    igpu = product_names("gfx1036")
    assert hide_gpus_hint(fit.fitting[0], MIXED, FACTS) == (
        f"first run `export HIP_VISIBLE_DEVICES=1`: the wheel promises nothing for gfx1036 ({igpu})"
    )
    assert why(fit, CK) == (
        "has no code for gfx1036 (Ryzen 7000 (Raphael) graphics)",
        "has no code for gfx1100 (Radeon RX 7900 XTX)",
    )


def test_a_wheel_for_all_gpus_comes_first(wheels: tuple[PublishedWheel, ...]) -> None:
    both = replace(MI300X, gpus=("gfx942", "gfx1100"), gpu_names=("", ""))
    first, *others = find_fit(wheels, both, FACTS).fitting
    assert (first.version, hide_gpus_hint(first, both, FACTS)) == (TRITON, "")
    assert others[0].version == CK
    assert hide_gpus_hint(others[0], both, FACTS).startswith(
        "first run `export HIP_VISIBLE_DEVICES=0`: the wheel has no code for gfx1100"
    )


def test_the_variables_select_the_visible_gpus_and_torchs_list_comes_before_the_drivers() -> None:
    expected: list[tuple[dict[str, str], list[str]]] = [
        ({}, ["gfx1036", "gfx1100"]),
        ({"HIP_VISIBLE_DEVICES": "1,0"}, ["gfx1100", "gfx1036"]),
        ({"HIP_VISIBLE_DEVICES": ""}, ["gfx1036", "gfx1100"]),
        ({"ROCR_VISIBLE_DEVICES": "GPU-0123456789abcdef"}, ["gfx1036", "gfx1100"]),
        ({"ROCR_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "0"}, ["gfx1100"]),
        ({"HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "1"}, ["gfx1036"]),
        ({"HIP_VISIBLE_DEVICES": "7"}, []),
        ({"HSA_OVERRIDE_GFX_VERSION": "10.3.0"}, ["gfx1030", "gfx1030"]),
        ({"HSA_OVERRIDE_GFX_VERSION": "11.0.10"}, ["gfx110a", "gfx110a"]),
        ({"HSA_OVERRIDE_GFX_VERSION": "9.0.10"}, ["gfx1036", "gfx1100"]),
        ({"HSA_OVERRIDE_GFX_VERSION": "new"}, ["gfx1036", "gfx1100"]),
    ]
    for environ, archs in expected:
        assert [arch for arch, _ in list_visible_gpus(replace(MIXED, environ=environ))] == archs
    seen = replace(MIXED, torch=replace(ROCM_TORCH, archs=("gfx1100",)))
    assert list_visible_gpus(seen) == [("gfx1100", "Radeon RX 7900 XTX")]


def test_only_missing_dependencies_are_installed_and_the_fallback_is_none(
    rows: tuple[WheelRow, ...], tmp_path: Path
) -> None:
    einops = next(row for row in rows if row.project == "einops")
    others = [
        {"version": version, "filename": f"einops-{version}-py3-none-any.whl", "yanked": yanked}
        for version, yanked in (("0.8.1", None), ("0.10.0", None), ("0.11.0", "empty"))
    ]
    wheels = as_read([*rows, *(einops.model_copy(update=changes) for changes in others), *fallback_rows(tmp_path)])
    assert [wheel.filename for wheel in find_fit(wheels, MI300X, FACTS).needed] == ["einops-0.10.0-py3-none-any.whl"]
    assert find_fit(wheels, replace(MI300X, packages={"einops": "0.7.0"}), FACTS).needed == ()


def test_the_newest_fallback_that_is_not_yanked_is_found(tmp_path: Path) -> None:
    bad = fallback_row(tmp_path, "0.11.0").model_copy(update={"yanked": "wrong"})
    rows = [fallback_row(tmp_path, "0.10.0"), *fallback_rows(tmp_path), fallback_row(tmp_path, "0.9.0"), bad]
    found = find_fallbacks(as_read(rows), MI300X, FACTS)
    assert [wheel.version for wheel in found] == ["0.10.0", "2.6.3+fallback"]
    assert find_fallbacks(as_read([bad]), MI300X, FACTS) == ()


def test_the_fallback_needs_a_torch_that_imports_and_is_new_enough(tmp_path: Path) -> None:
    wheels = as_read([fallback_row(tmp_path)])
    expected: list[tuple[InstalledTorch | None, bool]] = [
        (ROCM_TORCH, True),
        (InstalledTorch("2.5.1+cpu"), True),
        (InstalledTorch("2.10.0+cu130", cuda="13.0"), True),
        (InstalledTorch("2.4.1+rocm6.1", hip="6.1"), False),
        (InstalledTorch("2.9.1+rocm6.4", error="ImportError: libamdhip64.so"), False),
        (InstalledTorch("unknown"), False),
        (None, False),
    ]
    for torch, runs in expected:
        assert bool(find_fallbacks(wheels, replace(MI300X, torch=torch), FACTS)) == runs
