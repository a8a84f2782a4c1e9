"""The non-AMD GPU test mode: with Triton's real compiler for NVIDIA, which refuses AMD's launch options without it.

Only the driver is a stand-in: it says that the GPU is an H100, and launches nothing.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from wheelfactory.build.environments import make_build_environment, make_layered_environment, make_triton_environment
from wheelfactory.core.process import capture
from wheelfactory.verify.proofs import PROGRAMS

pytestmark = pytest.mark.slow

PROGRAM = """
import json, sys
sys.path.append({programs!r})
import triton, triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from check_numbers import parse
from without_amd_gpu import drop_amd_launch_options

class Utils:
    kernels = []

    def load_binary(self, name, *_):
        self.kernels.append(name)
        return 1, 1, 0, 0, 1024

    def get_device_properties(self, _):
        return {{"max_shared_mem": 227 << 10}}  # of a block (CUDA programming guide, compute capability 9.0)

class NvidiaDriver:
    utils = Utils()

    def launcher_cls(self, *_):
        return lambda *_: None

    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self):
        return 0

    def get_current_stream(self, _):
        return 0

    def get_benchmarker(self):
        return lambda kernel, **_: (kernel(), [0.0, 0.0, 0.0])[1]

driver.set_active(NvidiaDriver())

@triton.jit
def plain(SIZE: tl.constexpr):
    tl.device_assert(tl.program_id(0) < SIZE)

@triton.jit
def own(waves_per_eu: tl.constexpr):
    tl.device_assert(tl.program_id(0) < waves_per_eu)

@triton.autotune(configs=[triton.Config({{"SIZE": 16, "waves_per_eu": 2, "matrix_instr_nonkdim": 16}})], key=[])
@triton.jit
def tuned(SIZE: tl.constexpr):
    tl.device_assert(tl.program_id(0) < SIZE)

def launched(kernel, **options):
    count = len(driver.active.utils.kernels)
    try:
        kernel[(1,)](**options)
    except Exception as error:
        return f"{{type(error).__name__}}: {{error}}"
    return driver.active.utils.kernels[-1] if len(driver.active.utils.kernels) > count else "nothing"

before = [launched(plain, SIZE=16, waves_per_eu=1), launched(tuned)]
dropped = drop_amd_launch_options()
at_first = sorted(dropped)
after = {{
    "own": launched(own, waves_per_eu=4),
    "own dropped": sorted(dropped),
    "plain": launched(plain, SIZE=16, waves_per_eu=1),
    "plain dropped": sorted(dropped),
    "tuned": launched(tuned),
    "tuned dropped": sorted(dropped),
    "another option": launched(plain, SIZE=32, no_such_option=1),
}}
line = vars(parse(["flash_attn", "cuda", "full", "--non-amd-gpu", "!left out*", "forward*"]))
print(json.dumps({{"before": before, "at first": at_first, "line": line, **after}}))
"""


@pytest.fixture(scope="module")
def outcome(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("non_amd")
    torch, triton = make_build_environment(cache), make_triton_environment(cache, "3.7.1")
    layers = [torch.site_packages, triton.site_packages]
    environment = make_layered_environment(folder / "env", torch.python, torch.version, layers)
    program = folder / "program.py"
    program.write_text(PROGRAM.format(programs=str(PROGRAMS)))
    home = dict.fromkeys(("HOME", "TRITON_CACHE_DIR"), str(folder))
    output = capture([environment.python, "-I", "-B", program], environ={"PATH": os.defpath, **home})
    return json.loads(output.splitlines()[-1])


def test_nvidias_compiler_refuses_the_options_without_the_mode(outcome: Any) -> None:
    plain, tuned = outcome["before"]
    assert "Keyword argument waves_per_eu was specified but unrecognised" in plain
    assert "was specified but unrecognised" in tuned


def test_in_the_mode_it_compiles_and_the_options_are_noted(outcome: Any) -> None:
    assert outcome["at first"] == []
    assert (outcome["plain"], outcome["plain dropped"]) == ("plain", ["waves_per_eu"])
    assert (outcome["tuned"], outcome["tuned dropped"]) == ("tuned", ["matrix_instr_nonkdim", "waves_per_eu"])


def test_a_kernel_argument_is_not_dropped(outcome: Any) -> None:
    assert (outcome["own"], outcome["own dropped"]) == ("own", [])


def test_other_options_are_still_refused(outcome: Any) -> None:
    assert "no_such_option was specified but unrecognised" in outcome["another option"]


def test_the_program_takes_patterns_behind_the_option(outcome: Any) -> None:
    """As `validate` runs it for a wheel with known limits."""
    assert outcome["line"] == {
        "module": "flash_attn",
        "device": "cuda",
        "suite": "full",
        "non_amd_gpu": True,
        "patterns": ["!left out*", "forward*"],
    }
