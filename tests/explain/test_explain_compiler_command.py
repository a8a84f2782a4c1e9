"""A compile command, taken apart flag by flag."""

from __future__ import annotations

import pytest

from explain.build_logs import KERNEL_283, KERNEL_MAIN, ROCM_HIPCC, command
from wheelfactory.explain.compiler_command import CompilerCommand, find_compiler_command


def taken_apart(line: str) -> CompilerCommand:
    found = find_compiler_command(line)
    assert found
    return found


def test_the_command_of_the_question_is_known_to_its_last_flag() -> None:
    found = taken_apart(f"[111/2525] {command()}")
    assert (found.compiler, found.rocm, found.archs) == (ROCM_HIPCC, "7.2.0", ("gfx942",))
    assert found.name == KERNEL_MAIN
    assert found.output.endswith(f"/{KERNEL_MAIN}.o")
    assert found.unknown == ()


def test_header_folders_are_told_by_whose_they_are() -> None:
    of = [whose.split(",")[0].split(";")[0] for _, whose in taken_apart(command()).headers]
    assert of == ["Composable Kernel"] * 3 + ["torch"] * 2 + ["ROCm", "Python"]


@pytest.mark.parametrize(
    ("flag", "set_by", "meaning"),
    [
        ("-O3", "flash-attn", "optimize"),
        ("-std=c++20", "flash-attn", "C++20"),
        ("-DUSE_ROCM=1", "torch", "ROCm side"),
        ("-DCK_USE_XDL", "flash-attn", "matrix cores"),
        ("-mllvm -amdgpu-early-inline-all=true", "flash-attn", "run away"),
        ("-fno-gpu-rdc", "torch", "whole"),
        ("-DTORCH_EXTENSION_NAME=flash_attn_2_cuda", "torch", "_cuda on AMD too"),
        ('-DPYBIND11_COMPILER_TYPE="_gcc"', "torch", "ABI"),
    ],
)
def test_each_flag_has_its_meaning_and_its_giver(flag: str, set_by: str, meaning: str) -> None:
    (found,) = (one for one in taken_apart(command()).flags if one.text == flag)
    assert found.set_by == set_by
    assert meaning in found.meaning


def test_a_flag_that_is_not_known_is_said_to_be_unknown() -> None:
    found = taken_apart(f"{command()} -mllvm -amdgpu-frobnicate=3 -ffrobnicate -DFROB=1 @response")
    assert found.unknown == ("-mllvm -amdgpu-frobnicate=3", "-ffrobnicate", "-DFROB=1", "@response")


def test_several_archs_are_each_there_once() -> None:
    found = taken_apart(command(archs=("gfx90a", "gfx942", "gfx90a")))
    assert found.archs == ("gfx90a", "gfx942")


def test_a_launcher_in_front_of_the_compiler_is_not_the_compiler() -> None:
    found = taken_apart(f"/venv/bin/python -ISB /w/launcher.py {command()}")
    assert found.compiler == ROCM_HIPCC
    assert found.launcher == ("/venv/bin/python", "-ISB", "/w/launcher.py")


def test_the_command_of_this_program_is_known_too() -> None:
    flags = f"-O3 --offload-arch=gfx942 -mllvm -amdgpu-early-inline-all=false -cuid={KERNEL_283}"
    found = taken_apart(f"/usr/bin/ccache /usr/bin/hipcc {flags} -x hip -c build/{KERNEL_283}.hip -o /w/a.o")
    assert (found.name, found.rocm, found.unknown) == (KERNEL_283, "", ())


def test_a_command_that_was_cut_off_within_quotes_is_read_as_far_as_it_goes() -> None:
    whole = command()
    found = taken_apart(whole[: whole.index("_gcc")])
    assert found.archs == ("gfx942",)


@pytest.mark.parametrize(
    "line",
    ["gcc --version", "python -c 'import torch' -o x", "hipcc -c -o a.o", "cp a.hip -o b -c c", ""],
)
def test_what_compiles_nothing_is_no_command(line: str) -> None:
    assert find_compiler_command(line) is None
