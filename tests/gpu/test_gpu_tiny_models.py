"""Tiny models of transformers and diffusers with each kind of wheel: right, or refused with a remedy.

An emulator of gfx942 executes the Triton wheel's kernels.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from shared_folder import file_lock
from warm_python import WarmPython, start_warm_python
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
from wheelfactory.wheel.corrections import ACTIVATION_MODULE

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


IMPORTS = (
    f"sys.path.append({str(PROGRAMS)!r})",
    "import runpy",
    "from tiny_models import MODELS, claim_a_gpu",
    "claim_a_gpu()",
    "import transformers",
    "for model in MODELS.values():",
    "    getattr(transformers, f'{model.family}ForCausalLM')",
    "assert 'flash_attn' not in sys.modules",
)
"""What takes most of the time of each program, and does not depend on variables."""


@dataclass(frozen=True)
class Installed:
    """A Python with the frameworks, where a wheel is installed beside the fallback."""

    python: WarmPython

    def run(self, program: str, *arguments: str | Path, **variables: str) -> Any:
        """Return the JSON that a program prints in its last line."""
        path = str(PROGRAMS / program)
        given = f"sys.argv = {[path, *map(str, arguments)]!r}"
        return json.loads(self.python.run(given, f"runpy.run_path({path!r}, run_name='__main__')", **variables)[-1])

    def run_models(self, *arguments: str, **variables: str) -> Verdicts:
        """Return a verdict by model and dtype."""
        found = self.run("tiny_models.py", *arguments, **variables)
        return {(each["model"], each["dtype"]): each for each in found["models"]}


@contextmanager
def install(wheel: Path, cache: Path, layers: Sequence[Environment]) -> Iterator[Installed]:
    base = Base.of(*layers)
    base = replace(base, layers=(*base.layers, make_frameworks(cache), FALLBACK_SOURCES / "src"))
    with open_wheel_environment(cache, base, wheel) as environment:
        given = {"PATH": os.environ["PATH"], "HOME": str(environment.folder), "HF_HUB_OFFLINE": "1"}
        with start_warm_python(environment.python, *IMPORTS, environ=given) as python:
            yield Installed(python)


@pytest.fixture(scope="module")
def with_triton(cache: Path, layers: list[Environment], triton_wheel: Path) -> Iterator[Installed]:
    with install(triton_wheel, cache, layers) as installed:
        yield installed


@pytest.fixture(scope="module")
def with_fallback(cache: Path, layers: list[Environment]) -> Iterator[Installed]:
    """The fallback named flash_attn."""
    (wheel,) = make_products([FLASH_ATTN_FALLBACK], small_machine(cache, os.environ))
    with install(wheel, cache, layers) as installed:
        yield installed


def test_models_train_as_with_eager_attention_or_name_what_computes_their_option(
    with_triton: Installed, triton_cache: Path
) -> None:
    """Logits with and without padding, decoding with a cache, gradients, and two steps of training."""
    models = ("--models", "llama grouped,mistral,gemma2")
    found = with_triton.run_models("flash_attn", "cpu", *models, TRITON_CACHE_DIR=str(triton_cache))

    assert {name: each["kind"] for (name, _), each in found.items()} == {
        "llama grouped": "right",
        "mistral": "refused",
        "gemma2": "refused",
    }
    assert len(found["llama grouped", "float16"]["losses"]) == 3
    for name, words in {
        "mistral": ("window_size", "Mistral", "flash-attention-amd", "sdpa"),
        "gemma2": ("softcap", "Gemma 2", "flash-attention-amd", "eager"),
    }.items():
        assert [word for word in words if word not in found[name, "float16"]["reason"]] == []


def test_the_fallback_registers_an_attention_that_computes_every_model_as_eager_does(with_triton: Installed) -> None:
    arguments = ("flash_attention_amd.transformers", "cpu", "--dtypes", "float32", "--limit", "5e-6")

    found = with_triton.run_models(*arguments)

    assert {name: (each["kind"], each["reason"]) for name, each in found.items()} == dict.fromkeys(
        [(name, "float32") for name in ("llama", "llama grouped", "mistral", "gemma2")], ("right", "")
    )


def test_a_model_with_the_fallback_is_one_graph(with_fallback: Installed) -> None:
    """A batch, and a row with two sequences. Padding is read when the mask is made, which breaks a graph."""
    assert with_fallback.run("compiled_models.py") < 1e-6


def test_with_the_variable_the_fallback_computes_what_these_errors_name(with_triton: Installed) -> None:
    arguments = ("flash_attn", "cpu", "--dtypes", "bfloat16", "--models", "mistral,gemma2")

    found = with_triton.run_models(*arguments, FLASH_ATTENTION_AMD_FALLBACK="1")

    assert {key: (each["kind"], each["reason"]) for key, each in found.items()} == dict.fromkeys(
        [(name, "bfloat16") for name in ("mistral", "gemma2")], ("right", "")
    )


def test_each_program_takes_the_fallback_named_flash_attn_and_computes_the_same(with_fallback: Installed) -> None:
    """vLLM takes it on Instinct only: on Radeon it looks for the module of the Triton kernels."""
    found = with_fallback.run("frameworks.py", "float32")

    assert found["taken"] == TAKEN
    assert max(found["errors"].values()) < 1e-6


def test_the_lines_of_the_page_select_it(with_fallback: Installed, tmp_path: Path) -> None:
    found = with_fallback.run("page_lines.py", ROOT / "docs/how-to/use-it-in.md", tmp_path)

    assert found == ["flash_attention_2", "amd_fallback", "flash"]


def test_each_program_takes_the_triton_wheel_and_vllm_on_radeon_with_its_variable(
    with_triton: Installed, triton_cache: Path
) -> None:
    variables = {"FLASH_ATTENTION_TRITON_AMD_ENABLE": "TRUE", "TRITON_CACHE_DIR": str(triton_cache)}

    found = with_triton.run("frameworks.py", "float16", **variables)

    assert found["taken"] == [*TAKEN, "vllm gfx1100"]
    assert max(found["errors"].values()) < 4e-3


def test_each_program_takes_the_python_part_of_a_ck_wheel(
    cache: Path, layers: list[Environment], upstream: Mapping[str, bytes], tmp_path: Path
) -> None:
    """With an empty stand-in for the extension, which cannot be loaded without ROCm."""
    members = {**upstream, ACTIVATION_MODULE: b'"""A stand-in for the extension."""\n'}
    wheel = finished_wheel(tmp_path, tags="py3-none-any", members=members)

    with install(wheel, cache, layers) as installed:
        assert installed.run("frameworks.py") == {"taken": TAKEN}
