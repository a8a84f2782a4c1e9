"""An installed Triton wheel works without a variable, and explains a variable that selects the other backend."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from wheel_factory import TRITON, finished_wheel
from wheelfactory.build.environments import (
    Environment,
    make_build_environment,
    make_triton_environment,
    open_wheel_environment,
)
from wheelfactory.core.files import FALLBACK_SOURCES
from wheelfactory.verify.accuracy import NUMBERS_PROGRAM
from wheelfactory.wheel.activation.members import ACTIVATION_MODULE

pytestmark = pytest.mark.slow

VARIABLE = "FLASH_ATTENTION_TRITON_AMD_ENABLE"

SAYS_BACKEND = "from flash_attn.flash_attn_interface import flash_attn_gpu as gpu; print(gpu.fwd.__module__)"
TRITON_BACKEND = "flash_attn.flash_attn_triton_amd.interface_fa"


@pytest.fixture(scope="module")
def installed(upstream: Mapping[str, bytes], cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A Python with the real Triton wheel of 2.8.3, its Triton, and a CPU torch in place of ROCm's."""
    wheel = finished_wheel(tmp_path_factory.mktemp("wheel"), TRITON, members=upstream)
    torch, triton = make_build_environment(cache), make_triton_environment(cache, "3.7.1")
    layers = [torch.site_packages, triton.site_packages]
    with open_wheel_environment(cache, wheel, torch.python, torch.version, layers) as environment:
        yield environment.python


def python(installed: Path, code: str, value: str | None = None) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": "/usr/bin:/bin", **({} if value is None else {VARIABLE: value})}
    return subprocess.run([installed, "-B", "-c", code], env=environ, capture_output=True, text=True)


@pytest.mark.parametrize("value", [None, "", "1"], ids=["unset", "empty", "1"])
def test_the_backend_is_triton_for_every_value_but_off(installed: Path, value: str | None) -> None:
    done = python(installed, SAYS_BACKEND, value)

    assert (done.stdout.strip(), done.returncode) == (TRITON_BACKEND, 0)
    assert VARIABLE not in done.stderr


@pytest.mark.parametrize("value", ["FALSE", "0"])
def test_requesting_the_other_backend_raises_with_a_remedy(installed: Path, value: str) -> None:
    done = python(installed, SAYS_BACKEND, value)

    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"ImportError: {VARIABLE}={value} asks for the Composable Kernel backend")
    assert "unset the variable" in last


def test_who_imports_the_module_by_its_name_gets_a_whole_one(installed: Path) -> None:
    code = f"import flash_attn_2_cuda as m; print(m.fwd.__module__); {SAYS_BACKEND}"

    assert python(installed, code).stdout.split() == [TRITON_BACKEND] * 2


def test_without_the_module_the_wheel_needs_the_variable(
    upstream: Mapping[str, bytes], cache: Path, tmp_path: Path
) -> None:
    members = {name: data for name, data in upstream.items() if name != ACTIVATION_MODULE}
    torch, triton = make_build_environment(cache), make_triton_environment(cache, "3.7.1")
    layers = [torch.site_packages, triton.site_packages]
    wheel = finished_wheel(tmp_path, TRITON, members=members)
    with open_wheel_environment(cache, wheel, torch.python, torch.version, layers) as environment:
        assert "No module named 'flash_attn_2_cuda'" in python(environment.python, SAYS_BACKEND).stderr
        assert python(environment.python, SAYS_BACKEND, "TRUE").stdout.strip() == TRITON_BACKEND


def test_a_compiled_module_that_was_left_there_comes_first(installed: Path, upstream: Mapping[str, bytes]) -> None:
    left = Path(Environment(installed.parent.parent, "3").folder)
    (site,) = left.glob("lib/python3*/site-packages")
    extension = site / "flash_attn_2_cuda.abi3.so"
    extension.write_bytes(b"not even a library")
    try:
        assert "flash_attn_2_cuda.abi3.so: file too short" in python(installed, SAYS_BACKEND).stderr
    finally:
        extension.unlink()


CALL = """
import sys
sys.path[:0] = {folders}
from check_numbers import accept_cpu_tensors
accept_cpu_tensors()
import torch
from flash_attn import flash_attn_func
q = torch.randn(1, 24, 2, 16)
try:
    print(tuple(flash_attn_func(q, q, q, window_size=(4, 3), dropout_p={dropout}).shape))
except NotImplementedError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("dropout", "value", "words"), [(0.0, "1", "(1, 24, 2, 16)"), (0.0, "0", "ignore"), (0.5, "1", "ignore")]
)
def test_the_fallback_computes_a_window_if_the_variable_asks_for_it_but_not_its_dropout(
    dropout: float, value: str, words: str, installed: Path
) -> None:
    folders = [str(NUMBERS_PROGRAM.parent), str(FALLBACK_SOURCES / "src")]
    environ = {"PATH": "/usr/bin:/bin", "FLASH_ATTENTION_AMD_FALLBACK": value}
    code = CALL.format(folders=folders, dropout=dropout)
    done = subprocess.run([installed, "-B", "-c", code], env=environ, capture_output=True, text=True)
    assert words in done.stdout, done.stderr
