"""A CK wheel refuses the arguments that its extension ignores, and passes on all others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from wheel_factory import CK, PACKAGE
from wheelfactory.wheel.activation.corrections import read_corrections
from wheelfactory.wheel.activation.members import CHECKED_CALLS, CHECKED_EXTENSION, added_members

# a stand-in for the compiled extension, with the numbers of arguments that upstream's interface passes
ARGUMENTS = {"fwd": 13, "varlen_fwd": 22, "bwd": 19, "varlen_bwd": 25, "fwd_kvcache": 20}
EXTENSION = "\n".join(f"def {name}(*given):\n    return {name!r}, len(given)" for name in ARGUMENTS)

PROGRAM = """
import json, sys
from flash_attn import checked_extension
name, count, place, value = json.loads(sys.argv[1])
given = [None] * count
given[{"fwd": 10, "varlen_fwd": 18, "bwd": 15, "varlen_bwd": 20, "fwd_kvcache": 17}[name]] = 0.0
if place is not None:
    given[place] = value
try:
    print(*getattr(checked_extension, name)(*given), getattr(checked_extension, name).__module__)
except NotImplementedError as error:
    print(error)
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    for name, data in {**PACKAGE, **added_members(CK, PACKAGE), "flash_attn_2_cuda.py": EXTENSION.encode()}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    return tmp_path


def call(site: Path, name: str, place: int | None, value: object) -> str:
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(site)}
    given = json.dumps([name, ARGUMENTS[name], place, value])
    return subprocess.run(
        [sys.executable, "-B", "-c", PROGRAM, given], env=environ, capture_output=True, text=True
    ).stdout


@pytest.mark.parametrize(
    ("name", "place", "option", "instead"),
    [
        ("fwd", 10, "softcap", "Gemma 2"),
        ("varlen_fwd", 6, "seqused_k", "packed sequences"),
        ("varlen_fwd", 7, "leftpad_k", "packed sequences"),
        ("varlen_fwd", 18, "softcap", "flash-attention-amd"),
        ("bwd", 15, "softcap", "eager"),
        ("varlen_bwd", 20, "softcap", "eager"),
        ("fwd_kvcache", 9, "cache_leftpad", "a cache without unused rows"),
        ("fwd_kvcache", 17, "softcap", "flash-attention-amd"),
    ],
)
def test_what_the_extension_ignores_is_refused(site: Path, name: str, place: int, option: str, instead: str) -> None:
    error = call(site, name, place, 5.0)
    assert f"ignore {option}, so this call would give wrong numbers" in error
    assert instead in error


@pytest.mark.parametrize("name", ARGUMENTS)
def test_other_calls_are_those_of_the_extension(site: Path, name: str) -> None:
    assert call(site, name, None, None) == f"{name} {ARGUMENTS[name]} flash_attn_2_cuda\n"


def test_an_extension_without_a_cache_function_is_wrapped_too(site: Path) -> None:
    (site / "flash_attn_2_cuda.py").write_text(EXTENSION.partition("def fwd_kvcache")[0])  # as in 2.6.3
    assert call(site, "fwd", None, None) == "fwd 13 flash_attn_2_cuda\n"


def test_every_release_with_the_extension_imports_the_module() -> None:
    lines = [
        line.text
        for one in read_corrections()
        if one.file == "flash_attn/flash_attn_interface.py" and str(one.backend) == "ck"
        for line in one.lines.values()
    ]
    module = CHECKED_EXTENSION.removesuffix(".py").partition("/")[2]
    assert sum(f"import {module} as flash_attn_" in line for line in lines) == 4  # 2.6.3, 2.7.4, 2.8.3, the preview


def test_its_triton_code_is_checked_as_in_a_triton_wheel() -> None:
    assert CHECKED_CALLS in added_members(CK, PACKAGE)
    assert CHECKED_CALLS not in added_members(CK, ())  # 2.6.3 has none
