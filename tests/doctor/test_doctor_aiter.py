"""A preview's Triton wheel and its aiter, in every state: real packages, imported by a real Python."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aiter_factory import KERNELS, KERNELS_TEXT, PREVIEW
from doctor.known import FACTS
from doctor.releases import as_read, small_release
from doctor_installs import (
    EINOPS,
    MODULE,
    PACKAGE,
    TORCH_MODULE,
    TRITON_MODULE,
    TRITON_TORCH,
    VARIABLE,
    Site,
    broken_module,
    good_machine,
    only,
)
from report_rows import einops_row
from wheelfactory.core.label import is_own_aiter
from wheelfactory.doctor.diagnose import diagnose_machine
from wheelfactory.doctor.fit import find_fit
from wheelfactory.doctor.gpu_match import gpu_warnings
from wheelfactory.doctor.machine import Machine
from wheelfactory.doctor.published_wheels import PublishedWheel
from wheelfactory.doctor.report_output import machine_lines
from wheelfactory.doctor.steps import Target, wheel_step
from wheelfactory.wheel.corrections import added_members

VERSION = "2.8.4+rocm72torch2.13tritongit4a948e9"
OURS, OF_AMD = "0.0.20260602", "0.1.14.post1"

# as upstream's after 2.8.3: TRUE imports aiter itself, anything else the extension or the module that the wheel brings
INTERFACE = f"""
import os, warnings
uses_triton = os.environ.get("{VARIABLE}") == "TRUE"
if not uses_triton:
    try:
        import flash_attn_2_cuda
    except ImportError:
        warnings.warn("flash_attn_2_cuda (which has ROCm/HIP kernels) not found, falling back to Triton implementation")
        uses_triton = True
if uses_triton:
    from aiter.ops.triton._triton_kernels.flash_attn_triton_amd import interface_v2 as flash_attn_gpu
else:
    import flash_attn_2_cuda as flash_attn_gpu
def flash_attn_func(): ...
"""

# as aiter's: without ROCm it imports only with the variable
AITER = """
import os
if os.environ.get("AITER_TRITON_ONLY") != "1":
    raise RuntimeError("ROCm version file not found")
"""


@pytest.fixture
def preview(site: Site) -> Site:
    """The wheel, beside torch, Triton, einops and a Triton-only aiter."""
    kernels = {KERNELS: KERNELS_TEXT.encode(), "aiter/__init__.py": AITER.encode()}
    site.add({**TORCH_MODULE, **EINOPS, **TRITON_MODULE, **kernels})
    members = {**PACKAGE, "flash_attn/flash_attn_interface.py": INTERFACE.encode(), **added_members(PREVIEW)}
    return site.add_flash_attn(VERSION, members, requires=("einops", "amd-aiter>=0.0", "torch==2.13.*"))


def machine_of(site: Site, version: str | None = OURS) -> Machine:
    named = {} if version is None else {"amd-aiter": version}
    every = {"triton-rocm": "3.7.1", "einops": "0.8.2", **named}
    return good_machine(site, TRITON_TORCH, packages=every, gpus=("gfx1100",))


def test_one_that_imports_has_no_problem_and_is_named(preview: Site) -> None:
    ours = machine_of(preview)
    assert diagnose_machine(ours, FACTS) == ()
    assert f"aiter       {OURS}, Triton only, of this factory" in list(machine_lines(ours))
    preview.add({"aiter/__init__.py": b"", "aiter_meta/hsa/gfx942/a.co": b""})
    amds = machine_of(preview, OF_AMD)
    assert diagnose_machine(amds, FACTS) == ()
    assert f"aiter       {OF_AMD}, not of this factory" in list(machine_lines(amds))


def test_a_missing_aiter_comes_with_the_wheel(preview: Site) -> None:
    (preview.folder / "aiter").rename(preview.folder / "elsewhere")
    found = only(machine_of(preview, None))
    assert (found.name, found.remedy) == ("no aiter", "install the matching wheel")
    assert found.what == f"flash-attn {VERSION} takes its Triton kernels from amd-aiter, which is not installed"


def test_an_aiter_without_these_kernels_is_named_as_it_is_installed(preview: Site) -> None:
    (preview.folder / KERNELS).write_text(KERNELS_TEXT.replace(", num_splits=0", ""))
    machine = machine_of(preview, None)
    found = only(replace(machine, packages={**machine.packages, "aiter": "0.1.3"}))
    assert found.name == "aiter does not fit"
    assert "the installed aiter 0.1.3 has none for it" in found.what
    assert found.remedy.startswith("install a newer one of AMD's")
    assert found.remedy.endswith("uninstall --yes aiter; then install the matching wheel")


def test_one_of_amds_that_does_not_import_is_to_be_repaired_or_replaced(preview: Site) -> None:
    preview.add({"aiter_meta/hsa/gfx942/a.co": b""})
    found = only(machine_of(preview, OF_AMD))
    assert found.name == "aiter does not import"
    assert found.what.startswith(
        f"amd-aiter {OF_AMD}, not of this factory, does not import: `RuntimeError: ROCm version"
    )
    assert found.remedy.startswith("repair it, if other programs need its ROCm modules; else ")


@pytest.mark.parametrize(("variable", "value"), [(VARIABLE, "TRUE"), ("AITER_TRITON_ONLY", "0")])
def test_a_variable_that_bypasses_the_wheel_is_to_be_unset(preview: Site, variable: str, value: str) -> None:
    found = only(machine_of(preview.with_settings(**{variable: value})))
    assert (found.name, found.remedy) == ("variable bypasses the wheel", f"unset {variable}")
    assert "ROCm version file not found" in found.what


def test_two_distributions_in_one_folder_are_named(preview: Site) -> None:
    machine = machine_of(preview)
    found = only(replace(machine, packages={**machine.packages, "aiter": "0.1.3"}))
    assert found.name == "two aiter installs"
    assert found.what.startswith(f"amd-aiter {OURS}, Triton only, of this factory, and aiter 0.1.3 are both installed")
    assert "amd-aiter aiter" in found.remedy


@pytest.mark.parametrize(
    ("version", "own"),
    [(OURS, True), (OF_AMD, False), ("0.1.7.post2.dev18", False), ("0.0.0", False), ("0.1.dev1", False)],
)
def test_the_version_tells_whose_it_is(version: str, own: bool) -> None:
    assert is_own_aiter(version) is own


# -- what is installed with a wheel

PREVIEW_LABEL = "rocm64torch2.9tritongit4a948e9"


@pytest.fixture
def published(tmp_path: Path) -> tuple[PublishedWheel, ...]:
    """A release with a preview for Triton and our aiter."""
    rows = small_release(tmp_path)
    triton = next(row for row in rows if row.cell and row.cell.endswith("triton"))
    label = PREVIEW_LABEL
    changes = {
        "cell": "fa2.8.4+git4a948e9-rocm6.4-torch2.9.1-py3-triton",
        "label": label,
        "version": f"2.8.4+{label}",
        "filename": f"flash_attn-2.8.4+{label}-py3-none-any.whl",
    }
    aiter_row = {"project": "amd-aiter", "version": OURS, "filename": f"amd_aiter-{OURS}-py3-none-any.whl"}
    return as_read([*rows, triton.model_copy(update=changes), einops_row(tmp_path).model_copy(update=aiter_row)])


def test_only_a_wheel_that_requires_aiter_brings_it(published: tuple[PublishedWheel, ...]) -> None:
    fit = find_fit(published, good_machine(packages={}), FACTS)
    brought = {wheel.version: [one.project for one in fit.with_dependencies(wheel)] for wheel in published}
    assert brought["2.8.4+rocm64torch2.9tritongit4a948e9"] == ["amd-aiter", "einops", "flash-attn"]
    assert brought["2.8.3+rocm64torch2.9triton"] == ["einops", "flash-attn"]


def test_installing_a_wheel_again_brings_a_missing_aiter_too(published: tuple[PublishedWheel, ...]) -> None:
    wheel = next(one for one in published if one.label and one.label.commit)
    needed = tuple(one for one in published if one.project == "amd-aiter")
    target = Target(good_machine().python, "python3", has_pip=True)
    ((command,),) = [wheel_step(target, (*needed, wheel), "https://wheels.example/", again=True).commands]
    assert command.endswith(f" amd-aiter=={OURS} flash-attn=={wheel.version}")
    assert "https://wheels.example/simple/rocm64/torch2.9/triton-preview/" in command


def test_a_wheel_whose_aiter_would_overwrite_one_under_its_former_name_does_not_match(
    published: tuple[PublishedWheel, ...],
) -> None:
    def why_not(**packages: str) -> str:
        fit = find_fit(published, replace(good_machine(), packages=packages), FACTS)
        found = {miss.wheel.version: " ".join(miss.reasons) for miss in fit.near_misses}
        return found.get(f"2.8.4+{PREVIEW_LABEL}", "")

    overwritten = "requires amd-aiter, which would overwrite the installed aiter 0.1.3: run `"
    assert overwritten in why_not(aiter="0.1.3")
    assert "uninstall --yes aiter` first" in why_not(aiter="0.1.3")
    assert overwritten not in why_not(**{"aiter": "0.1.3", "amd-aiter": OF_AMD})
    assert overwritten not in why_not()


def test_an_aiter_of_amds_that_stays_is_a_caution(published: tuple[PublishedWheel, ...]) -> None:
    wheel = next(one for one in published if one.label and one.label.commit)
    machine = replace(good_machine(), packages={"amd-aiter": OF_AMD})
    assert any(f"the installed amd-aiter {OF_AMD}, which stays" in one for one in gpu_warnings(wheel, machine, FACTS))
    ours = replace(machine, packages={"amd-aiter": OURS})
    assert not any("which stays" in one for one in gpu_warnings(wheel, ours, FACTS))


# a CK wheel of a preview: flash-attn hides why its extension does not load


@pytest.mark.parametrize("has_aiter", [True, False], ids=["with an aiter", "without an aiter"])
def test_an_extension_that_does_not_load_is_the_error_whether_or_not_aiter_takes_its_place(
    site: Site, has_aiter: bool
) -> None:
    site.add({**TORCH_MODULE, **EINOPS})
    if has_aiter:
        site.add({"aiter/__init__.py": b"", KERNELS: b""})
    members = {**PACKAGE, "flash_attn/flash_attn_interface.py": INTERFACE.encode()}
    version = VERSION.replace("triton", "")
    site.add_flash_attn(version, {**members, MODULE: broken_module(undefined=("_ZN3c105checkEv",))})
    found = site.read()
    assert "undefined symbol: _ZN3c105checkEv" in found.error
    assert "aiter" not in found.error


def test_without_an_extension_the_fallback_of_upstream_is_no_error(site: Site) -> None:
    site.add({**TORCH_MODULE, **EINOPS, "aiter/__init__.py": b"", KERNELS: b""})
    site.add_flash_attn("2.8.4", {**PACKAGE, "flash_attn/flash_attn_interface.py": INTERFACE.encode()})
    assert site.read().error == ""
