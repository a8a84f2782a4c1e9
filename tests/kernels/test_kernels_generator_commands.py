"""The commands of a setup.py that run the generator: read as they would run, or refused."""

from __future__ import annotations

import sys

import pytest

from wheelfactory.core.errors import SourceError
from wheelfactory.kernels.generator_commands import parse_generator_commands

SETUP = """\
ck_dir = "csrc/ck"
optdim = os.getenv("OPT_DIM", "32,64")
for_all = "-d"
subprocess.run([sys.executable, f"{ck_dir}/generate.py", for_all, "fwd", "--output_dir", "build", "--optdim", optdim])
os.system(f"{sys.executable} {ck_dir}/generate.py -d bwd --output_dir build --optdim 64")
"""


def test_generator_commands_use_the_defaults_of_variables() -> None:
    first, second = parse_generator_commands(SETUP, "9", ())
    generator = (sys.executable, "csrc/ck/generate.py", "-d")
    assert first == (*generator, "fwd", "--output_dir", "build", "--optdim", "32,64")
    assert second == (*generator, "bwd", "--output_dir", "build", "--optdim", "64")


@pytest.mark.parametrize(
    ("setup", "why"),
    [
        ("import torch", "never runs generate.py"),
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


def test_a_command_in_a_loop_is_run_for_each_value_with_the_archs_of_the_build() -> None:
    setup = """\
targets = ",".join(kernel_targets)
for direction in ["fwd", "bwd"]:
    subprocess.run([sys.executable, "generate.py", "-d", direction, "--targets", targets], check=True)
"""
    assert parse_generator_commands(setup, "9", ("gfx942", "gfx1100")) == tuple(
        (sys.executable, "generate.py", "-d", direction, "--targets", "gfx942,gfx1100") for direction in ("fwd", "bwd")
    )
