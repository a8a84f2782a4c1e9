"""Tiny models of transformers and diffusers with each kind of wheel: right, or refused with a remedy.

An emulator of gfx942 executes the Triton wheel's kernels.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from shared_folder import file_lock
from wheel_factory import finished_wheel, small_machine
from wheelfactory.build.environments import (
    Base,
    Environment,
    make_build_environment,
    make_numpy_environment,
    make_triton_environment,
    open_wheel_environment,
)
from wheelfactory.build.products import make_products
from wheelfactory.core.cell import FLASH_ATTN_FALLBACK
from wheelfactory.core.files import FALLBACK_SOURCES, ROOT, scratch_dir
from wheelfactory.wheel.activation.corrections import ACTIVATION_MODULE

pytestmark = pytest.mark.slow

FRAMEWORKS = ("transformers==5.17.0", "diffusers==0.42.1")
Verdicts: TypeAlias = Mapping[tuple[str, str], Any]
PROGRAMS = Path(__file__).parent
TAKEN = ["transformers", "diffusers", "comfyui", "vllm gfx942"]


def make_frameworks(cache: Path) -> Path:
    """Return the package folder of an environment with transformers and diffusers; create it if it is not cached."""
    folder = cache / f"{'-'.join(FRAMEWORKS).replace('==', '-')}-{sys.version_info[1]}"
    with file_lock(cache, "frameworks"):
        if not folder.exists():
            with scratch_dir(cache) as scratch:
                venv.create(scratch / "venv", symlinks=True)
                install = ("uv", "pip", "install", "--quiet", "--python", scratch / "venv/bin/python", *FRAMEWORKS)
                subprocess.run([sys.executable, "-m", *install], check=True)
                (scratch / "venv").rename(folder)
    return next(folder.glob("lib/python*/site-packages"))


@pytest.fixture(scope="module")
def layers(cache: Path) -> list[Environment]:
    """What torch for ROCm brings: torch, Triton and numpy."""
    with file_lock(cache, "environments"):
        return [make_build_environment(cache), make_triton_environment(cache, "3.7.1"), make_numpy_environment(cache)]


def run_program(python: Path, program: str, *arguments: str | Path, **variables: str) -> Any:
    """Return the JSON that a program prints in its last line."""
    environ = {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", **variables}
    command = [python, "-I", PROGRAMS / program, *arguments]  # which keeps the bytecode of the frameworks
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def run_with(
    wheel: Path, cache: Path, layers: Sequence[Environment], program: str, *arguments: str, **variables: str
) -> Any:
    """Run a program with a wheel installed beside the fallback."""
    base = Base.of(*layers)
    base = replace(base, layers=(*base.layers, make_frameworks(cache), FALLBACK_SOURCES / "src"))
    with open_wheel_environment(cache, base, wheel) as environment:
        return run_program(environment.python, program, *arguments, **variables)


def run_models(
    wheel: Path, cache: Path, layers: Sequence[Environment], home: Path, *arguments: str, **variables: str
) -> Verdicts:
    """Return a verdict by model and dtype."""
    found = run_with(wheel, cache, layers, "tiny_models.py", *arguments, HOME=str(home), **variables)
    return {(each["model"], each["dtype"]): each for each in found["models"]}


def test_models_train_as_with_eager_attention_or_name_what_computes_their_option(
    cache: Path, layers: list[Environment], triton_wheel: Path, triton_cache: Path, tmp_path: Path
) -> None:
    """Logits with and without padding, decoding with a cache, gradients, and two steps of training."""
    found = run_models(triton_wheel, cache, layers, tmp_path, "flash_attn", "cpu", TRITON_CACHE_DIR=str(triton_cache))

    assert {name: each["kind"] for (name, _), each in found.items()} == {
        "llama": "right",
        "llama grouped": "right",
        "mistral": "refused",
        "gemma2": "refused",
    }
    assert len(found["llama", "float16"]["losses"]) == 3
    for name, words in {
        "mistral": ("window_size", "Mistral", "flash-attention-amd", "sdpa"),
        "gemma2": ("softcap", "Gemma 2", "flash-attention-amd", "eager"),
    }.items():
        assert [word for word in words if word not in found[name, "float16"]["reason"]] == []


def test_the_fallback_registers_an_attention_that_computes_every_model_as_eager_does(
    cache: Path, layers: list[Environment], triton_wheel: Path, tmp_path: Path
) -> None:
    arguments = ("flash_attention_amd.transformers", "cpu", "--dtypes", "float32", "--limit", "5e-6")

    found = run_models(triton_wheel, cache, layers, tmp_path, *arguments)

    assert {name: (each["kind"], each["reason"]) for name, each in found.items()} == dict.fromkeys(
        [(name, "float32") for name in ("llama", "llama grouped", "mistral", "gemma2")], ("right", "")
    )


def test_a_model_with_the_fallback_is_one_graph(cache: Path, layers: list[Environment]) -> None:
    """A batch, and a row with two sequences. Padding is read when the mask is made, which breaks a graph."""
    folders = make_frameworks(cache), FALLBACK_SOURCES / "src"
    assert run_program(layers[0].python, "compiled_models.py", *folders) < 1e-6


def test_with_the_variable_the_fallback_computes_what_these_errors_name(
    cache: Path, layers: list[Environment], triton_wheel: Path, tmp_path: Path
) -> None:
    arguments = ("flash_attn", "cpu", "--dtypes", "bfloat16", "--models", "mistral,gemma2")

    found = run_models(triton_wheel, cache, layers, tmp_path, *arguments, FLASH_ATTENTION_AMD_FALLBACK="1")

    assert {key: (each["kind"], each["reason"]) for key, each in found.items()} == dict.fromkeys(
        [(name, "bfloat16") for name in ("mistral", "gemma2")], ("right", "")
    )


def test_each_program_takes_the_fallback_named_flash_attn_and_computes_the_same(
    cache: Path, layers: list[Environment]
) -> None:
    """vLLM takes it on Instinct only: on Radeon it looks for the module of the Triton kernels."""
    (wheel,) = make_products([FLASH_ATTN_FALLBACK], small_machine(cache, os.environ))

    found = run_with(wheel, cache, layers, "frameworks.py", "float32")

    assert found["taken"] == TAKEN
    assert max(found["errors"].values()) < 1e-6


def test_the_lines_of_the_page_select_it(cache: Path, layers: list[Environment], tmp_path: Path) -> None:
    (wheel,) = make_products([FLASH_ATTN_FALLBACK], small_machine(cache, os.environ))

    found = run_with(wheel, cache, layers, "page_lines.py", str(ROOT / "docs/how-to/use-it-in.md"), str(tmp_path))

    assert found == ["flash_attention_2", "amd_fallback", "flash"]


def test_each_program_takes_the_triton_wheel_and_vllm_on_radeon_with_its_variable(
    cache: Path, layers: list[Environment], triton_wheel: Path, triton_cache: Path, tmp_path: Path
) -> None:
    places = {"HOME": str(tmp_path), "TRITON_CACHE_DIR": str(triton_cache)}

    found = run_with(
        triton_wheel, cache, layers, "frameworks.py", "float16", FLASH_ATTENTION_TRITON_AMD_ENABLE="TRUE", **places
    )

    assert found["taken"] == [*TAKEN, "vllm gfx1100"]
    assert max(found["errors"].values()) < 4e-3


def test_each_program_takes_the_python_part_of_a_ck_wheel(
    cache: Path, layers: list[Environment], upstream: Mapping[str, bytes], tmp_path: Path
) -> None:
    """With an empty stand-in for the extension, which cannot be loaded without ROCm."""
    members = {**upstream, ACTIVATION_MODULE: b'"""A stand-in for the extension."""\n'}
    wheel = finished_wheel(tmp_path, tags="py3-none-any", members=members)

    assert run_with(wheel, cache, layers, "frameworks.py") == {"taken": TAKEN}
