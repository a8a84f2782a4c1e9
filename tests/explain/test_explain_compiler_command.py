"""Parsing a compile command flag by flag."""

from __future__ import annotations

import pytest

from explain.build_logs import KERNEL_283, KERNEL_MAIN, ROCM_HIPCC, command
from wheelfactory.explain.compiler_command import CompilerCommand, find_compiler_command


def parsed(line: str) -> CompilerCommand:
    found = find_compiler_command(line)
    assert found
    return found


def test_every_flag_of_upstreams_command_is_known() -> None:
    found = parsed(f"[111/2525] {command()}")
    assert (found.compiler, found.rocm, found.archs) == (ROCM_HIPCC, "7.2.0", ("gfx942",))
    assert found.name == KERNEL_MAIN
    assert found.output.endswith(f"/{KERNEL_MAIN}.o")
    assert found.unknown == ()


def test_header_directories_have_their_owner() -> None:
    owners = [owner.split(",")[0].split(";")[0] for _, owner in parsed(command()).headers]
    assert owners == ["Composable Kernel"] * 3 + ["torch"] * 2 + ["ROCm", "Python"]


def test_each_flag_has_its_meaning_and_setter() -> None:
    expected = [
        ("-O3", "flash-attn", "optimization"),
        ("-std=c++20", "flash-attn", "C++20"),
        ("-DUSE_ROCM=1", "torch", "use ROCm"),
        ("-DCK_USE_XDL", "flash-attn", "matrix cores"),
        ("-mllvm -amdgpu-early-inline-all=true", "flash-attn", "compile time explodes"),
        ("-fno-gpu-rdc", "torch", "each object"),
        ("-DTORCH_EXTENSION_NAME=flash_attn_2_cuda", "torch", "_cuda on AMD too"),
        ('-DPYBIND11_COMPILER_TYPE="_gcc"', "torch", "ABI"),
    ]
    flags = {flag.text: flag for flag in parsed(command()).flags}
    for text, set_by, meaning in expected:
        assert flags[text].set_by == set_by
        assert meaning in flags[text].meaning


def test_unknown_flags_are_listed() -> None:
    found = parsed(f"{command()} -mllvm -amdgpu-frobnicate=3 -ffrobnicate -DFROB=1 @response")
    assert found.unknown == ("-mllvm -amdgpu-frobnicate=3", "-ffrobnicate", "-DFROB=1", "@response")


def test_repeated_archs_are_listed_once() -> None:
    found = parsed(command(archs=("gfx90a", "gfx942", "gfx90a")))
    assert found.archs == ("gfx90a", "gfx942")


@pytest.mark.parametrize("launcher", ["/venv/bin/python -ISB /w/launcher.py", "/usr/bin/ccache"])
def test_a_launcher_before_the_compiler_is_recognized(launcher: str) -> None:
    found = parsed(f"{launcher} {command()}")
    assert found.compiler == ROCM_HIPCC
    assert found.launcher == tuple(launcher.split())


def test_every_flag_of_this_programs_command_is_known() -> None:
    flags = f"-O3 --offload-arch=gfx942 -mllvm -amdgpu-early-inline-all=false -cuid={KERNEL_283}"
    found = parsed(f"/usr/bin/hipcc {flags} -x hip -c build/{KERNEL_283}.hip -o /w/a.o")
    assert (found.name, found.rocm, found.unknown) == (KERNEL_283, "", ())


def test_a_command_truncated_within_quotes_is_parsed_up_to_there() -> None:
    whole = command()
    found = parsed(whole[: whole.index("_gcc")])
    assert found.archs == ("gfx942",)


def test_other_lines_are_no_command() -> None:
    for line in ("gcc --version", "python -c 'import torch' -o x", "hipcc -c -o a.o", "cp a.hip -o b -c c", ""):
        assert find_compiler_command(line) is None
