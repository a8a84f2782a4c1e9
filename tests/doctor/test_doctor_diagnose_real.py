"""The doctor with upstream's own flash-attn, torch's own libraries and several Tritons, as far as a CPU allows.

The CPU build of torch replaces the one for ROCm, which imports the same way; the machine reports a ROCm build.
"""

from __future__ import annotations

import subprocess
import sysconfig
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from doctor.known import FACTS
from doctor_installs import MODULE, TRITON_TORCH, Site, good_machine, only
from shared_folder import file_lock
from wheel_factory import read_zip
from wheelfactory.build.environments import make_build_environment, make_layered_environment, make_triton_environment
from wheelfactory.doctor.diagnose import diagnose_machine
from wheelfactory.doctor.machine import Machine

pytestmark = pytest.mark.slow

TRITON = "3.7.1"


def made_site(cache: Path, folder: Path, triton: str | None = None) -> Site:
    """An environment with torch, einops and perhaps a Triton."""
    with file_lock(cache, "environments"):
        torch = make_build_environment(cache)
        layers = [torch.site_packages, *([make_triton_environment(cache, triton).site_packages] if triton else [])]
    made = make_layered_environment(folder / "env", torch.python, torch.version, layers)
    return Site(made.site_packages, made.python)


def machine_of(site: Site, triton: str | None) -> Machine:
    """A machine with a simulated GPU, whose torch reports a ROCm build."""
    packages = {"einops": "0.8.2", **({"triton": triton} if triton else {})}
    return good_machine(site, replace(TRITON_TORCH, archs=("gfx1100",)), packages=packages, gpus=("gfx1100",))


def test_our_wheel_with_the_triton_of_its_torch_has_nothing(cache: Path, tmp_path: Path, triton_wheel: Path) -> None:
    machine = machine_of(made_site(cache, tmp_path, TRITON).add_wheel(triton_wheel), TRITON)
    assert machine.flash_attn
    assert machine.flash_attn.error == ""
    assert machine.flash_attn.build_record["cell"] == "fa2.8.3-rocm7.2-torch2.13.0-py3-triton"
    assert diagnose_machine(machine, FACTS) == ()


@pytest.mark.parametrize(
    ("triton", "message"),
    [
        ("3.1.0", "ValueError: 'IS_CAUSAL' is not in list"),
        ("3.9.0", "ValueError: key contains names that are not kernel arguments: IS_CAUSAL, dropout_p, MAX_SEQLENS_Q"),
    ],
)
def test_a_triton_that_does_not_take_the_kernels(
    cache: Path, tmp_path: Path, triton_wheel: Path, triton: str, message: str
) -> None:
    found = only(machine_of(made_site(cache, tmp_path, triton).add_wheel(triton_wheel), triton))
    assert found.name == "unsupported Triton"
    assert f"needs Triton >=3.2,<3.9, you have triton {triton}: `{message}" in found.what
    assert found.remedy.endswith("https://download.pytorch.org/whl/rocm7.2 triton-rocm==3.7.1")


# compiled against torch's own headers


def upstreams(triton_wheel: Path) -> dict[str, bytes]:
    """What upstream's wheels have in common."""
    return {name: data for name, data in read_zip(triton_wheel).items() if name.startswith("flash_attn/")}


def binding(cache: Path, *, cxx11: bool) -> bytes:
    """A module that is compiled and linked with torch as torch's cpp_extension does it."""
    source = """
        #include <Python.h>
        #include <c10/util/Exception.h>
        static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "flash_attn_2_cuda", nullptr, -1, nullptr};
        PyMODINIT_FUNC PyInit_flash_attn_2_cuda() {
            PyObject *made = PyModule_Create(&definition);
            TORCH_CHECK(made, std::string("not made"));
            return made;
        }
    """
    torch = make_build_environment(cache).site_packages / "torch"
    flags = ["-shared", "-fPIC", "-std=c++20", f"-D_GLIBCXX_USE_CXX11_ABI={int(cxx11)}"]
    includes = [f"-I{torch}/include", f"-I{sysconfig.get_path('include')}"]
    with tempfile.NamedTemporaryFile(suffix=".so") as made:
        libraries = ["-x", "none", f"-L{torch}/lib", "-lc10", "-o", made.name]
        subprocess.run(["c++", "-x", "c++", "-", *flags, *includes, *libraries], input=source, text=True, check=True)
        return Path(made.name).read_bytes()


def test_a_compiled_wheel_for_this_torch_lacks_only_device_code_and_one_of_the_old_abi_a_symbol(
    cache: Path, tmp_path: Path, triton_wheel: Path
) -> None:
    site = made_site(cache, tmp_path)
    site.add_flash_attn("2.8.3+rocm72torch2.13", {**upstreams(triton_wheel), MODULE: binding(cache, cxx11=True)})
    machine = good_machine(site, TRITON_TORCH)
    assert machine.flash_attn
    assert (bool(machine.flash_attn.extension), machine.flash_attn.error) == (True, "")
    assert only(machine).name == "no AMD code"  # it is compiled without a HIP compiler

    site.add({MODULE: binding(cache, cxx11=False)})
    found = only(good_machine(site, TRITON_TORCH))
    assert found.name == "C++ ABI mismatch"
    assert "was built with the old C++ ABI (_GLIBCXX_USE_CXX11_ABI=0)" in found.what
    assert "`undefined symbol: c10::detail::torchCheckFail (_ZN3c106detail14torchCheckFailEPKcS2_jRKSs)`" in found.what
