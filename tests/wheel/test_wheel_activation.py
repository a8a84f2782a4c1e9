"""An installed Triton wheel works without a variable, and explains a variable that selects the other backend."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from wheel_factory import TRITON, finished_wheel
from wheelfactory.build.environments import (
    Base,
    Environment,
    make_build_environment,
    make_triton_environment,
    open_wheel_environment,
)
from wheelfactory.core.files import FALLBACK_SOURCES
from wheelfactory.verify.accuracy import NUMBERS_PROGRAM
from wheelfactory.wheel.corrections import ACTIVATION_MODULE

pytestmark = pytest.mark.slow

VARIABLE = "FLASH_ATTENTION_TRITON_AMD_ENABLE"

SAYS_BACKEND = "from flash_attn.flash_attn_interface import flash_attn_gpu as gpu; print(gpu.fwd.__module__)"
TRITON_BACKEND = "flash_attn.flash_attn_triton_amd.interface_fa"


FORKS = """
import json, os, sys, tempfile, torch, triton
for line in sys.stdin:
    environ, code = json.loads(line)
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        child = os.fork()
        if not child:
            os.dup2(output.fileno(), 1)
            os.dup2(errors.fileno(), 2)
            os.environ.update(environ)
            exec(code, {})
            sys.exit()
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        texts = [file.seek(0) or file.read() for file in (output, errors)]
    print(json.dumps([code, *texts]), flush=True)
"""
"""A program that forks for each line with variables and code, because torch and Triton take seconds to import."""


class Installed:
    """A Python with a wheel, which runs code in processes of its own."""

    def __init__(self, environment: Environment) -> None:
        self.site_packages = environment.site_packages
        command: list[str | Path] = [environment.python, "-B", "-c", FORKS]
        self._process = subprocess.Popen(
            command, env={"PATH": "/usr/bin:/bin"}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, code: str, **environ: str) -> subprocess.CompletedProcess[str]:
        given, answers = self._process.stdin, self._process.stdout
        assert given
        assert answers
        given.write(f"{json.dumps([environ, code])}\n")
        given.flush()
        return subprocess.CompletedProcess(code, *json.loads(answers.readline()))

    def end(self) -> None:
        self._process.communicate()


@pytest.fixture(scope="module")
def installed(
    upstream: Mapping[str, bytes], cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installed]:
    """A Python with the real Triton wheel of 2.8.3, its Triton, and a CPU torch in place of ROCm's."""
    wheel = finished_wheel(tmp_path_factory.mktemp("wheel"), TRITON, members=upstream)
    torch, triton = make_build_environment(cache), make_triton_environment(cache, "3.7.1")
    with open_wheel_environment(cache, Base.of(torch, triton), wheel) as environment:
        found = Installed(environment)
        yield found
        found.end()


@pytest.mark.parametrize("environ", [{}, {VARIABLE: ""}, {VARIABLE: "1"}], ids=["unset", "empty", "1"])
def test_the_backend_is_triton_for_every_value_but_off(installed: Installed, environ: Mapping[str, str]) -> None:
    done = installed.run(SAYS_BACKEND, **environ)

    assert (done.stdout.strip(), done.returncode) == (TRITON_BACKEND, 0)
    assert VARIABLE not in done.stderr


@pytest.mark.parametrize("value", ["FALSE", "0"])
def test_requesting_the_other_backend_raises_with_a_remedy(installed: Installed, value: str) -> None:
    done = installed.run(SAYS_BACKEND, **{VARIABLE: value})

    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"ImportError: {VARIABLE}={value} asks for the Composable Kernel backend")
    assert "unset the variable" in last


def test_who_imports_the_module_by_its_name_gets_a_whole_one(installed: Installed) -> None:
    code = f"import flash_attn_2_cuda as m; print(m.fwd.__module__); {SAYS_BACKEND}"

    assert installed.run(code).stdout.split() == [TRITON_BACKEND] * 2


def test_without_the_module_the_wheel_needs_the_variable(installed: Installed) -> None:
    module = installed.site_packages / ACTIVATION_MODULE
    hidden = module.rename(module.with_suffix(".hidden"))
    try:
        assert "No module named 'flash_attn_2_cuda'" in installed.run(SAYS_BACKEND).stderr
        assert installed.run(SAYS_BACKEND, **{VARIABLE: "TRUE"}).stdout.strip() == TRITON_BACKEND
    finally:
        hidden.rename(module)


def test_a_compiled_module_that_was_left_there_comes_first(installed: Installed) -> None:
    extension = installed.site_packages / "flash_attn_2_cuda.abi3.so"
    extension.write_bytes(b"not even a library")
    try:
        assert "flash_attn_2_cuda.abi3.so: file too short" in installed.run(SAYS_BACKEND).stderr
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
    dropout: float, value: str, words: str, installed: Installed
) -> None:
    folders = [str(NUMBERS_PROGRAM.parent), str(FALLBACK_SOURCES / "src")]
    done = installed.run(CALL.format(folders=folders, dropout=dropout), FLASH_ATTENTION_AMD_FALLBACK=value)
    assert words in done.stdout, done.stderr
