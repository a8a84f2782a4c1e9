"""Diagnoses of installs that are really broken: each is created and imported by a real Python."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from doctor.known import FACTS
from doctor_installs import (
    CK_RECORD,
    CK_TORCH,
    CK_VERSION,
    EINOPS,
    MODULE,
    OLD_PACKAGE,
    PACKAGE,
    TORCH_MODULE,
    TRITON_MODULE,
    TRITON_TORCH,
    TRITON_VERSION,
    VARIABLE,
    Site,
    broken_module,
    ck_record,
    ck_site,
    good_machine,
    good_module,
    module_calling,
    only,
    triton_site,
)
from elf_factory import library
from wheelfactory.doctor.diagnose import diagnose_machine
from wheelfactory.doctor.machine import INSTALL_MATCHING_WHEEL, INSTALL_TORCH, InstalledTorch

INDEX = "https://download.pytorch.org/whl/rocm7.2"
CHECK = "namespace c10 { void check(std::string const &); }"
TORCH_210 = replace(CK_TORCH, version="2.10.0+rocm6.4")


# what works


def test_a_working_compiled_wheel_has_no_problem(site: Site) -> None:
    made = ck_site(site, good_module("gfx90a", "gfx942", "gfx950"))
    machine = good_machine(made.with_settings(**{VARIABLE: "1"}))  # flash-attn enables Triton only for TRUE
    assert machine.flash_attn
    assert (machine.flash_attn.error, machine.flash_attn.extension_archs) == ("", ("gfx90a", "gfx942", "gfx950"))
    assert diagnose_machine(machine, FACTS) == ()


@pytest.mark.parametrize("value", [None, "1"])
def test_our_working_triton_wheel_has_no_problem(site: Site, value: str | None) -> None:
    made = triton_site(site, ours=True).with_settings(**({VARIABLE: value} if value else {}))
    machine = good_machine(made, TRITON_TORCH, packages={"triton-rocm": "3.7.1", "einops": "0.8.2"}, gpus=("gfx1151",))
    assert machine.flash_attn
    assert machine.flash_attn.error == ""
    assert diagnose_machine(machine, FACTS) == ()


# symbols


@pytest.mark.parametrize(
    ("version", "record", "requires", "built_for"),
    [
        (CK_VERSION, CK_RECORD, (), "torch 2.9 (from its build record), you have torch 2.10.0+rocm6.4"),
        (CK_VERSION, None, (), "torch 2.9 (from its label), you have torch 2.10.0+rocm6.4"),
        ("2.8.3+rocm7.0torch2.9.cxx11", None, (), "torch 2.9 (from its label), you have torch 2.10.0+rocm6.4"),
        ("2.8.3", None, ("torch==2.9.*",), "torch 2.9 (from its requirements), you have torch 2.10.0+rocm6.4"),
        ("2.8.3+rocm6.4", None, (), "another torch than torch 2.10.0+rocm6.4"),
    ],
    ids=["record", "label", "label of another factory", "requirement", "nothing"],
)
def test_an_undefined_symbol_in_a_wheel_for_another_torch(
    site: Site, version: str, record: bytes | None, requires: tuple[str, ...], built_for: str
) -> None:
    module = module_calling(CHECK, 'c10::check("")', cxx11=True)
    made = ck_site(site, module, version=version, record=record, requires=requires)
    found = only(good_machine(made, TORCH_210))
    assert found.name == "torch mismatch"
    assert f"was built for {built_for}: `undefined symbol: c10::check (_ZN3c105checkERKNSt7__cxx1112" in found.what
    assert found.remedy == INSTALL_MATCHING_WHEEL


@pytest.mark.parametrize(("wheel", "torch"), [(False, True), (True, False)])
def test_an_undefined_symbol_of_another_cxx_abi(site: Site, wheel: bool, torch: bool) -> None:
    made = ck_site(site, module_calling(CHECK, 'c10::check("")', cxx11=wheel))
    found = only(good_machine(made, replace(CK_TORCH, cxx11_abi=torch)))
    assert found.name == "C++ ABI mismatch"
    kinds = {True: "new", False: "old"}
    assert f"the {kinds[wheel]} C++ ABI (_GLIBCXX_USE_CXX11_ABI={int(wheel)})" in found.what
    assert f"but torch 2.9.1+rocm6.4 uses the {kinds[torch]} one ({int(torch)})" in found.what


def test_the_abi_of_the_build_record_counts_if_the_symbol_has_no_string(site: Site) -> None:
    module = module_calling("namespace c10 { void check(int); }", "c10::check(1)", cxx11=True)
    made = ck_site(site, module, record=ck_record(cxx11_abi=False))
    assert only(good_machine(made)).name == "C++ ABI mismatch"


# libraries


@pytest.mark.parametrize(
    ("missing", "hip", "name", "message"),
    [
        ("hipNewestThing", "6.4", "ROCm mismatch", "built for another ROCm than torch 2.9.1"),
        ("PyUnstable_Newest", "6.4", "Python mismatch", "built for another Python than"),
        ("libamdhip64.so.6", "7.0.51831", "ROCm mismatch", "built for ROCm 6.4, but torch 2.9.1 for ROCm 7.0"),
        ("libhiprtc.so.6", "6.3.42131", "ROCm mismatch", "built for ROCm 6.4, but torch"),
        ("libamdhip64.so.6 of another wheel", "7.14.60850", "ROCm mismatch", "built for another ROCm, but torch"),
        ("libamdhip64.so.6 of another wheel", "6.4.43482", "ROCm library missing", ""),
        ("libamdhip64.so.7 of another wheel", "7.15.26333", "ROCm library missing", ""),
        ("libofnobody.so.1", "6.4", "unknown import error", ""),
    ],
)
def test_a_missing_symbol_or_library(site: Site, missing: str, hip: str, name: str, message: str) -> None:
    missing, _, of_another = missing.partition(" ")
    is_library = ".so." in missing
    module = broken_module(needed=(missing,)) if is_library else broken_module(undefined=(missing,))
    made = ck_site(site, module, version="2.8.3+other" if of_another else CK_VERSION, record=None)
    found = only(good_machine(made, replace(CK_TORCH, version="2.9.1", hip=hip)))
    assert found.name == name
    assert message in found.what
    error = f"{missing}: cannot open shared object file" if is_library else f"undefined symbol: {missing}"
    quoted = f"ImportError: {error}: No such file or directory" if name == "unknown import error" else error
    assert f"`{quoted}`" in found.what
    if name == "ROCm library missing":
        assert found.remedy == f"find /opt/rocm -name '{missing}*', then add its directory to LD_LIBRARY_PATH"
    assert ("LD_DEBUG=libs " in found.remedy) is (name == "unknown import error")


@pytest.mark.parametrize(
    ("torch", "kind", "library"),
    [
        (InstalledTorch("2.9.1+cpu", cxx11_abi=True, sees_gpu=False), "a CPU build", "libtorch_hip.so"),
        (InstalledTorch("2.9.1", cuda="12.8", cxx11_abi=True), "a CUDA build (CUDA 12.8)", "libc10_hip.so"),
    ],
    ids=["CPU", "CUDA"],
)
def test_torch_not_built_for_rocm(site: Site, torch: InstalledTorch, kind: str, library: str) -> None:
    found = only(good_machine(ck_site(site, broken_module(needed=(library,))), torch, devices=()))
    assert found.name == "torch is not built for ROCm"
    assert found.what.startswith(
        f"torch {torch.version} is {kind}; flash-attn on an AMD GPU needs torch built for ROCm"
    )
    assert f"{library}: cannot open shared object file" in found.what
    assert found.remedy == INSTALL_TORCH


@pytest.mark.parametrize(
    ("version", "works", "message"),
    [
        ("2.8.3", False, "(it has no label, so it was built from PyPI's sources or elsewhere)"),
        ("2.8.3+cu12torch2.9cxx11abiTRUE", False, "is built for CUDA: `libcudart.so.12: cannot"),
        ("2.8.3+cu12torch2.9cxx11abiTRUE", True, "is built for CUDA"),
    ],
    ids=["sdist of PyPI", "CUDA wheel", "CUDA wheel that imports"],
)
def test_a_flash_attn_for_cuda_with_torch_for_rocm(site: Site, version: str, works: bool, message: str) -> None:
    module = good_module() if works else broken_module(needed=("libcudart.so.12",))
    found = only(good_machine(ck_site(site, module, version=version, record=None, requires=("torch", "einops"))))
    assert found.name == "built for CUDA"
    assert message in found.what


def needing_future_version(library_name: str, version: str, folder: Path) -> bytes:
    """Return a compiled module that needs a library version that does not exist yet."""
    folder.mkdir()
    script, later = folder / "versions", folder / library_name
    script.write_text(f"{version} {{ global: from_later; }};")
    flags = (f"-Wl,--version-script={script}", f"-Wl,-soname,{library_name}")
    later.write_bytes(library(defined=("from_later",), flags=flags))
    return broken_module(undefined=("from_later",), flags=("-Wl,--no-as-needed", str(later)))


def test_a_wheel_for_a_newer_glibc(site: Site, tmp_path: Path) -> None:
    machine = good_machine(ck_site(site, needing_future_version("libc.so.6", "GLIBC_2.99", tmp_path / "made")))
    found = only(machine)
    assert found.name == "glibc too old"
    assert f"needs glibc 2.99 or newer, this machine has {machine.python.glibc}: `version GLIBC_2.99" in found.what


def test_a_wheel_for_a_newer_libstdcxx_of_the_system_or_of_conda(site: Site, tmp_path: Path) -> None:
    machine = good_machine(ck_site(site, needing_future_version("libstdc++.so.6", "GLIBCXX_3.4.99", tmp_path / "made")))
    assert machine.flash_attn
    found = only(machine)
    assert found.name == "libstdc++ too old"
    assert "`version GLIBCXX_3.4.99 not found` in " in found.what
    assert found.remedy == "use a newer Linux distribution or container"
    moved = machine.flash_attn.error.replace("/lib/", "/opt/conda/lib/", 1)
    conda = only(replace(machine, flash_attn=replace(machine.flash_attn, error=moved)))
    assert conda.remedy == "conda install --channel conda-forge libstdcxx-ng"


def test_files_that_are_damaged_or_missing(site: Site) -> None:
    for left, message in ((0, "file too short"), (1000, "killed by SIGBUS")):
        found = only(good_machine(ck_site(site, good_module("gfx942")[:left])))
        assert found.name == "damaged files"
        assert found.what == f"files of flash-attn {CK_VERSION} are damaged or missing: `{message}`"
        assert "-m pip uninstall --yes flash-attn; then install the matching wheel" in found.remedy
    ck_site(site, good_module("gfx942"))
    (site.folder / "flash_attn/flash_attn_interface.py").unlink()
    found = only(good_machine(site))
    assert found.name == "damaged files"
    assert "`No module named 'flash_attn.flash_attn_interface'`" in found.what


# no module flash_attn_2_cuda


def test_a_wheel_for_another_python(site: Site) -> None:
    module = "flash_attn_2_cuda.cpython-38-x86_64-linux-gnu.so"
    found = only(good_machine(ck_site(site, good_module("gfx942"), name=module)))
    tag = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    assert found.name == "Python mismatch"
    assert f"({tag}, x86_64) cannot load {module} of flash-attn {CK_VERSION}" in found.what


@pytest.mark.parametrize(
    ("value", "state"), [(None, f"{VARIABLE} is not set"), (" TRUE", f"{VARIABLE} is ' TRUE', not 'TRUE'")]
)
def test_a_triton_wheel_built_elsewhere_that_is_not_enabled(site: Site, value: str | None, state: str) -> None:
    made = triton_site(site, ours=False).with_settings(**({} if value is None else {VARIABLE: value}))
    found = only(good_machine(made, TRITON_TORCH))
    assert found.name == "Triton is not enabled"
    assert found.what.endswith(f"only the Triton backend, and {state}: `No module named 'flash_attn_2_cuda'`")
    assert found.remedy == f"export {VARIABLE}=TRUE"


def test_our_triton_wheel_with_the_ck_backend_selected(site: Site) -> None:
    made = triton_site(site, ours=True).with_settings(**{VARIABLE: "FALSE"})
    found = only(good_machine(made, TRITON_TORCH))
    assert found.name == "wrong backend selected"
    assert found.what.startswith(f"{VARIABLE}=FALSE asks for the Composable Kernel backend")
    assert found.remedy.startswith(f"unset {VARIABLE}, then ")


def test_triton_selected_in_a_compiled_wheel(site: Site) -> None:
    made = ck_site(site, good_module("gfx90a"), record=None).add(TRITON_MODULE).with_settings(**{VARIABLE: "TRUE"})
    found = only(good_machine(made))  # with Triton, missing code for gfx942 does not matter
    assert found.name == "Triton overrides compiled kernels"
    assert found.what == f"{VARIABLE}=TRUE makes flash-attn {CK_VERSION} use Triton instead of its compiled kernels"


def test_a_wheel_without_kernels(site: Site) -> None:
    site.add({**TORCH_MODULE, **EINOPS}).add_flash_attn("2.6.3+rocm62torch2.9triton", OLD_PACKAGE)
    found = only(good_machine(site))
    assert found.name == "no kernels"
    assert "contains neither compiled kernels nor the Triton backend" in found.what


# other packages


def test_the_fallback_that_is_missing_is_installed_from_a_site(site: Site) -> None:
    """No other index has it."""
    files = {**OLD_PACKAGE, "flash_attn/flash_attn_interface.py": b"import flash_attention_amd\n"}
    site.add(TORCH_MODULE).add_flash_attn("2.6.3+fallback", files, requires=("flash-attention-amd",))
    found = only(good_machine(site))
    assert (found.name, found.remedy) == ("missing requirement", INSTALL_MATCHING_WHEEL)


def test_no_aiter(site: Site) -> None:
    """flash-attn after 2025-12 imports its Triton backend from aiter."""
    newer = {**OLD_PACKAGE, "flash_attn/flash_attn_interface.py": b"import torch, aiter\n"}
    site.add(TORCH_MODULE).add_flash_attn("2.8.4+rocm72torch2.13triton", newer, requires=())
    found = only(good_machine(site, TRITON_TORCH))
    assert found.name == "no aiter"
    assert "`No module named 'aiter'`" in found.what


@pytest.mark.parametrize("value", ["TRUE", None])
def test_missing_einops_is_diagnosed_even_if_the_import_works(site: Site, value: str | None) -> None:
    made = triton_site(site, ours=True) if value else ck_site(site, good_module("gfx942"))
    made.remove("einops")
    found = only(
        good_machine(made.with_settings(**({VARIABLE: value} if value else {})), TRITON_TORCH if value else CK_TORCH)
    )
    assert found.name == "missing requirement"
    assert "requires einops, which is not installed" in found.what
    assert found.remedy == f"{site.python} -m pip install --no-deps einops"


def test_a_leftover_module_with_and_without_an_import_error(site: Site) -> None:
    triton_site(site, ours=True)
    left = site.folder / MODULE
    left.write_bytes(good_module("gfx90a"))
    loads = only(good_machine(site, TRITON_TORCH))
    left.write_bytes(broken_module(undefined=("_ZN3c105checkEv",)))
    fails = only(good_machine(site, TRITON_TORCH))
    assert (loads.name, fails.name) == ("leftover module",) * 2
    assert loads.what == (
        f"{left} does not belong to flash-attn {TRITON_VERSION}; an earlier install left it, and Python imports it"
    )
    assert fails.what.endswith("undefined symbol: _ZN3c105checkEv`")
    assert loads.remedy == fails.remedy == f"rm {left}"


def test_the_module_of_a_second_install_is_no_leftover(site: Site) -> None:
    """Such as metadata left by an interrupted install, which Python can find first."""
    ck_site(site, good_module("gfx942"))
    read = site.read()
    other = f"{CK_VERSION} in {site.folder}"
    shadowed = replace(
        read, version="1", extension=None, stray_modules=(str(site.folder / MODULE),), other_installs=(other,)
    )
    found = diagnose_machine(replace(good_machine(site), flash_attn=shadowed), FACTS)
    assert [diagnosis.name for diagnosis in found] == ["two flash-attn installs"]
    assert other in found[0].what
    mixed = replace(shadowed, error="ImportError: cannot import name 'x' from 'flash_attn'")
    assert only(replace(good_machine(site), flash_attn=mixed)) == found[0], "no unknown error"


def test_two_installs_in_one_directory(site: Site) -> None:
    site.add_flash_attn("2.7.4.post1", PACKAGE)
    ck_site(site, good_module("gfx942"))
    whats = {diagnosis.name: diagnosis.what for diagnosis in diagnose_machine(good_machine(site), FACTS)}
    assert "2.7.4.post1" in whats["two flash-attn installs"]
    assert CK_VERSION in whats["two flash-attn installs"]


def test_a_second_install_later_on_the_path_is_no_problem(site: Site, tmp_path: Path) -> None:
    behind = Site(tmp_path / "behind", site.python).add_flash_attn("2.7.4.post1", PACKAGE)
    made = ck_site(site, good_module("gfx942"))
    machine = good_machine(made.with_settings(PYTHONPATH=f"{made.folder}:{behind.folder}"))
    assert machine.flash_attn
    assert machine.flash_attn.other_installs == (f"2.7.4.post1 in {behind.folder}",)
    assert diagnose_machine(machine, FACTS) == ()


def test_a_directory_that_shadows_the_install(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout = tmp_path / "check out"
    (checkout / "flash_attn").mkdir(parents=True)
    (checkout / "flash_attn/__init__.py").write_text("raise ImportError('of the checkout')")
    monkeypatch.chdir(checkout)
    found = only(good_machine(ck_site(site, good_module("gfx942"))))
    assert found.name == "directory shadows flash-attn"
    assert found.what.startswith(f"'{checkout}' contains a directory flash_attn")


# what is not known


@pytest.mark.parametrize(
    ("init", "message"),
    [
        pytest.param(b"raise RuntimeError('first\\nsecond')", "RuntimeError: first second", id="raises"),
        pytest.param(b"import yaml_of_nobody", "No module named 'yaml_of_nobody'", id="misses a module"),
    ],
)
def test_an_unknown_error_is_quoted(site: Site, init: bytes, message: str) -> None:
    ck_site(site, good_module("gfx942"))
    (site.folder / "flash_attn/__init__.py").write_bytes(init)
    found = only(good_machine(site))
    assert found.name == "unknown import error"
    assert message in found.what
    command = "-X faulthandler -c 'from flash_attn.flash_attn_interface import flash_attn_func'"
    assert found.remedy == f"for details, run: {site.python} {command}"


def test_an_error_of_hip_about_missing_code(site: Site) -> None:
    """Not reproduced, because that needs a GPU."""
    machine = good_machine(ck_site(site, good_module("gfx942")))
    assert machine.flash_attn
    for error in ("hipErrorNoBinaryForGpu: Unable to find code object", "HIP error: invalid device function"):
        found = only(replace(machine, flash_attn=replace(machine.flash_attn, error=f"RuntimeError: {error}")))
        assert found.name == "no code for this GPU"
        assert error in found.what


def test_the_remedy_uses_uv_without_pip(site: Site) -> None:
    machine = good_machine(ck_site(site, b""))
    found = only(replace(machine, python=replace(machine.python, pip=None)))
    assert found.remedy.startswith(f"uv pip uninstall --python {site.python} flash-attn; then ")
