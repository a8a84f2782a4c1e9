"""Which flash-attn counts as missing, which as broken, and how it selects its kernels.

torch is an empty module, because no test calls it. test_bench_attention.py runs the implementations with a real torch.
"""

from __future__ import annotations

import sys
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from aiter_factory import KERNELS, KERNELS_TEXT, PREVIEW
from wheel_factory import TRITON
from wheelfactory.gpu.bench.measure import PROGRAMS
from wheelfactory.verify import proofs
from wheelfactory.wheel.corrections import ACTIVATION_MODULE, EXTENSION_MODULE, added_members

UPSTREAMS_CHOICE = """
import os
if os.environ.get("FLASH_ATTENTION_TRITON_AMD_ENABLE") == "TRUE":
    import aiter
"""
INTERFACE = f"import {EXTENSION_MODULE} as flash_attn_gpu\n\ndef flash_attn_func(): ...\n"


@pytest.fixture
def implementations(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module of the program; its imports are removed afterwards."""
    monkeypatch.syspath_prepend(PROGRAMS)
    monkeypatch.syspath_prepend(proofs.PROGRAMS)
    monkeypatch.setattr(sys, "modules", {**sys.modules, "torch": ModuleType("torch")})
    spec = spec_from_file_location("implementations", PROGRAMS / "implementations.py")
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    sys.modules["implementations"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an installed flash-attn, to which the test adds an extension."""
    (tmp_path / "flash_attn").mkdir()
    (tmp_path / "flash_attn/__init__.py").touch()
    (tmp_path / "flash_attn/flash_attn_interface.py").write_text(INTERFACE)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("site")
def test_without_an_extension_the_backend_is_not_there(implementations: Any) -> None:
    with pytest.raises(implementations.NotRunError, match=f"No module named '{EXTENSION_MODULE}'"):
        implementations.load_implementation("flash-attn", "cuda", "")


def test_a_triton_wheel_lacks_the_ck_backend(implementations: Any, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (site / ACTIVATION_MODULE).write_bytes(added_members(TRITON)[ACTIVATION_MODULE])
    monkeypatch.setenv("FLASH_ATTENTION_TRITON_AMD_ENABLE", "FALSE")
    with pytest.raises(implementations.NotRunError, match="asks for the Composable Kernel backend"):
        implementations.load_implementation("flash-attn", "cuda", "")


def test_an_extension_that_fails_to_load_is_broken_not_missing(implementations: Any, site: Path) -> None:
    (site / f"{EXTENSION_MODULE}{EXTENSION_SUFFIXES[0]}").write_bytes(b"\x7fELF, and no more")
    with pytest.raises(ImportError) as caught:
        implementations.load_implementation("flash-attn", "cuda", "")
    assert caught.value.name == EXTENSION_MODULE


def test_a_preview_is_measured_through_the_module_of_the_wheel(
    implementations: Any, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TRUE would bypass that module, and an aiter without ROCm modules would not be imported."""
    monkeypatch.setenv("FLASH_ATTENTION_TRITON_AMD_ENABLE", "TRUE")
    monkeypatch.delenv("AITER_TRITON_ONLY", raising=False)
    (site / KERNELS).parent.mkdir(parents=True)
    (site / KERNELS).write_text(KERNELS_TEXT)
    (site / "aiter/__init__.py").write_text("import os\nassert os.environ['AITER_TRITON_ONLY'] == '1'\n")
    (site / ACTIVATION_MODULE).write_bytes(added_members(PREVIEW)[ACTIVATION_MODULE])
    (site / "flash_attn/flash_attn_interface.py").write_text(UPSTREAMS_CHOICE + INTERFACE)
    (site / "amd_aiter-0.0.20260602.dist-info").mkdir()
    (site / "amd_aiter-0.0.20260602.dist-info/METADATA").write_text("Name: amd-aiter\nVersion: 0.0.20260602\n")

    loaded = implementations.load_implementation("flash-attn", "cuda", "")

    assert loaded.aiter == "0.0.20260602"
    assert loaded.module.fwd.__module__ == KERNELS.removesuffix(".py").replace("/", ".")
