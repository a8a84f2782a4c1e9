"""Sites on loopback with real wheels and doctor.py, and the environment of their user."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import loopback
from doctor.known import WRITTEN
from release_factory import PYTHON_TAG, flash_attn_wheel, make_release, stub_wheel
from wheelfactory.site.doctor_file import build_single_file

CK_CELL = f"fa2.8.3-rocm6.4-torch2.9.1-{PYTHON_TAG}-ck"
TRITON_CELL = "fa2.8.3-rocm6.4-torch2.9.1-py3-triton"
CELLS = (
    *(CK_CELL, TRITON_CELL, f"fa2.8.3-rocm7.2-torch2.9.1-{PYTHON_TAG}-ck"),
    *(f"fa2.8.3-rocm6.4-torch2.8.0-{PYTHON_TAG}-ck", f"fa2.7.4.post1-rocm6.4-torch2.9.1-{PYTHON_TAG}-ck"),
)
"""The cells of the release; the first is the best match for `ROCM_TORCH`."""
CK_VERSION = "2.8.3+rocm64torch2.9"

IMPORTABLE = """\
import sys, types
name = "flash_attn.flash_attn_interface"
sys.modules[name] = types.SimpleNamespace(flash_attn_func=print)
"""
"""The content of a stub of flash-attn that imports."""


def make_site_release(folder: Path, content: str = IMPORTABLE) -> Path:
    """Write a release with `CELLS` and einops; each flash-attn runs `content` on import."""
    made = folder.with_name(f"{folder.name}-made")
    wheels = [flash_attn_wheel(made, cell, content) for cell in CELLS]
    make_release(folder, [*wheels, stub_wheel(made, "einops", "0.8.2")])
    return folder


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a release with its doctor.py on loopback; yield the address."""
    with loopback.served(folder) as found:
        (folder / "doctor.py").write_text(build_single_file(WRITTEN, f"{found.url}/"), encoding="utf-8")
        yield f"{found.url}/"


def users_environ(home: Path) -> Mapping[str, str]:
    """Return the environment of a user with uv on PATH, without the tester's configuration, caches and proxies."""
    return {
        "PATH": f"{sys.prefix}/bin:{os.environ['PATH']}",
        "HOME": str(home),
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "UV_NO_CONFIG": "1",
        "UV_CACHE_DIR": str(home / "uv"),
    }
