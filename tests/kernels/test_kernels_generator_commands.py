"""The commands of a setup.py that run the generator: read as they would run, or refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from wheelfactory.core.errors import SourceError
from wheelfactory.kernels.generator_commands import (
    FilteredCommand,
    digest_kernel_sources,
    filter_commands,
    parse_generator_commands,
)
from wheelfactory.matrix.facts import GeneratorFilter


@pytest.mark.parametrize(
    ("setup", "why"),
    [
        ("print('generate.py')", "never runs generate.py"),
        ("import (", "invalid syntax"),
        ("subprocess.run(['generate.py', f(x)])", "computes an argument of generate.py: f(x)"),
        ("subprocess.run(['generate.py', archs])", "computes an argument of generate.py: archs"),
        ("a = b\nb = a\nsubprocess.run(['generate.py', a])", "computes an argument"),
        ("subprocess.run(['generate.py', os.getenv('OPT_DIM')])", "computes an argument"),
        ("subprocess.run(['generate.py', 7])", "computes an argument of generate.py: 7"),
        ("subprocess.run(['generate.py', *more])", "computes an argument"),
    ],
)
def test_a_setup_py_without_readable_generator_command_is_an_error(setup: str, why: str) -> None:
    with pytest.raises(SourceError, match="cannot list the kernel sources") as refused:
        parse_generator_commands(setup, "9", ())
    assert why in str(refused.value)


GENERATOR = "csrc/ck/example/generate.py"
DIGESTED_SETUP = """\
import os, subprocess, torch

def rename(sources):
    pass

if not IS_ROCM:
    nvcc_flags = ["-O3"]
elif IS_ROCM:
    subprocess.run(["python", "csrc/ck/example/generate.py", "-d", "fwd"])
    flags = ["-O3", "-DCK_USE_XDL"]

setup(name="flash_attn")
"""
TREE = {
    "setup.py": DIGESTED_SETUP,
    GENERATOR: "print()",
    "csrc/ck/include/tile.hpp": "// tile",
    "csrc/flash_attn/cuda.h": "// CUDA",
    "build/fmha_fwd_d32.cpp": "// kernel",
    "flash_attn/__init__.py": "__version__ = '9'",
}


def digest_of(folder: Path, **changes: str) -> str:
    """The digest of `TREE` with other files; a file without text is missing."""
    for name, text in {**TREE, **changes}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        if not text:
            path.unlink()
    return digest_kernel_sources(folder, GENERATOR)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        pytest.param("csrc/ck/include/tile.hpp", "// Tile", id="a byte of a header"),
        pytest.param("csrc/ck/include/new.hpp", "// tile", id="a new header"),
        pytest.param(GENERATOR, "print(1)", id="the generator"),
        pytest.param("build/fmha_fwd_d64.cpp", "// kernel", id="one more generated file"),
        pytest.param("setup.py", DIGESTED_SETUP.replace('"fwd"', '"bwd"'), id="an argument of the generator"),
        pytest.param("setup.py", DIGESTED_SETUP.replace("XDL", "WMMA"), id="a flag of the kernels"),
    ],
)
def test_what_reaches_a_kernel_changes_the_digest(name: str, text: str, tmp_path: Path) -> None:
    assert digest_of(tmp_path / "other", **{name: text}) != digest_of(tmp_path / "one")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        pytest.param("csrc/flash_attn/cuda.h", "// another", id="a header of CUDA"),
        pytest.param("setup.py", DIGESTED_SETUP.replace("nvcc_flags = [", "nvcc_flags = ['-g', "), id="a flag of CUDA"),
        pytest.param("setup.py", "# a line\n" + DIGESTED_SETUP, id="a line above"),
        pytest.param("flash_attn/__init__.py", "__version__ = '10'", id="the version"),
        pytest.param("csrc/ck/example/__pycache__/generate.pyc", "bytecode", id="what a run of the generator leaves"),
    ],
)
def test_what_does_not_reach_a_kernel_does_not_change_it(name: str, text: str, tmp_path: Path) -> None:
    assert digest_of(tmp_path / "other", **{name: text}) == digest_of(tmp_path / "one")


# filters

COMMANDS = [("python", "ck/generate.py", "-d", direction, "--output_dir", "build") for direction in ("fwd", "bwd")]


def filters(*pairs: tuple[str, str]) -> list[GeneratorFilter]:
    return [GeneratorFilter(direction=direction, filter=pattern) for direction, pattern in pairs]


def test_a_filter_belongs_to_the_command_of_its_direction() -> None:
    assert filter_commands(COMMANDS, filters(("bwd", "*_a_*"))) == (FilteredCommand(COMMANDS[1][1:], "*_a_*"),)


@pytest.mark.parametrize(
    "commands",
    [COMMANDS[1:], [*COMMANDS, COMMANDS[0]], [(*COMMANDS[0], "--filter", "*")], [(*COMMANDS[0], "-d", "bwd")]],
    ids=["none", "twice", "with a filter", "two directions"],
)
def test_a_direction_without_one_plain_command_is_not_filtered(commands: list[tuple[str, ...]]) -> None:
    with pytest.raises(SourceError, match="does not run the generator once, without a filter, for fwd"):
        filter_commands(commands, filters(("fwd", "*_a_*")))
