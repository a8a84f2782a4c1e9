"""A preview's Triton wheel takes its kernels from the installed aiter, without a variable."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from aiter_factory import KERNELS, KERNELS_TEXT, PREVIEW
from wheelfactory.wheel.corrections import ACTIVATION_MODULE, added_members

TRITON_ONLY = "AITER_TRITON_ONLY"

REPORT = (
    "import os, sys, aiter\nimport flash_attn_2_cuda as found\n"
    f"print(aiter.seen, os.environ.get('{TRITON_ONLY}'), found.fwd.__module__)\n"
)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder of packages with the wheel's module and an aiter that reports the variable as it sees it at import."""
    (tmp_path / KERNELS).parent.mkdir(parents=True)
    (tmp_path / KERNELS).write_text(KERNELS_TEXT)
    (tmp_path / "aiter/__init__.py").write_text(f"import os\nseen = os.environ.get('{TRITON_ONLY}')\n")
    (tmp_path / ACTIVATION_MODULE).write_bytes(added_members(PREVIEW)[ACTIVATION_MODULE])
    return tmp_path


def python(site: Path, code: str = "import flash_attn_2_cuda\n" + REPORT, **variables: str) -> tuple[str, str]:
    """What Python prints, and the last line of its error."""
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(site), **variables}
    done = subprocess.run([sys.executable, "-B", "-c", code], env=environ, capture_output=True, text=True)
    return done.stdout.strip(), (done.stderr.splitlines() or [""])[-1]


MODULE = KERNELS.removesuffix(".py").replace("/", ".")


def test_an_aiter_without_rocm_modules_is_imported_with_the_variable_which_is_gone_afterwards(site: Path) -> None:
    assert python(site) == (f"1 None {MODULE}", "")

    (site / "aiter_meta/hsa/gfx942").mkdir(parents=True)
    (site / "aiter/jit").mkdir()
    (site / "aiter/jit/module_norm.so").write_bytes(b"")
    assert python(site) == (f"1 None {MODULE}", ""), "what pip leaves of a removed one does not count"


@pytest.mark.parametrize("name", ["aiter_meta/hsa/gfx942/kernel.co", "hsa/gfx942/kernel.co"])
def test_an_aiter_with_rocm_modules_keeps_them(name: str, site: Path) -> None:
    (site / name).parent.mkdir(parents=True)
    (site / name).write_bytes(b"")
    assert python(site) == (f"None None {MODULE}", "")


@pytest.mark.parametrize("value", ["0", "1"])
def test_a_value_of_the_users_is_kept(value: str, site: Path) -> None:
    assert python(site, **{TRITON_ONLY: value}) == (f"{value} {value} {MODULE}", "")


def test_the_variable_is_gone_after_a_failed_import_too(site: Path) -> None:
    (site / KERNELS).write_text("raise ImportError('no Triton')\n")
    code = (
        "import os\n"
        "try:\n import flash_attn_2_cuda\n"
        f"except ImportError as error:\n print(error, '{TRITON_ONLY}' in os.environ)"
    )
    assert python(site, code) == ("no Triton False", "")


@pytest.mark.parametrize("value", ["FALSE", "0", "no"])
def test_requesting_the_other_backend_is_an_error_that_flash_attn_does_not_ignore(value: str, site: Path) -> None:
    _, error = python(site, FLASH_ATTENTION_TRITON_AMD_ENABLE=value)
    assert error.startswith(f"RuntimeError: FLASH_ATTENTION_TRITON_AMD_ENABLE={value} asks for the Composable Kernel")


def test_a_missing_aiter_is_named_with_its_remedy(site: Path) -> None:
    (site / "aiter").rename(site / "other")
    _, error = python(site)
    assert error.startswith("RuntimeError: this flash-attn takes its Triton kernels from aiter, which is not installed")
    assert "install amd-aiter" in error


@pytest.mark.parametrize("older", ["", KERNELS_TEXT.replace(", num_splits=0", "")], ids=["none", "fewer parameters"])
def test_an_aiter_without_these_kernels_is_named_with_its_folder(older: str, site: Path) -> None:
    """AMD's 0.1.7.post2.dev18, the one on PyPI, has them with fewer parameters."""
    (site / KERNELS).parent.rename(site / "aiter/ops/elsewhere")
    if older:
        (site / KERNELS).parent.mkdir()
        (site / KERNELS).write_text(older)
    _, error = python(site)
    assert error.startswith(f"RuntimeError: the aiter in {site / 'aiter'} has no kernels for this flash-attn")
