"""Tiny models of real transformers with a Triton wheel, on an emulator of gfx942: right, or refused with a remedy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from shared_folder import file_lock
from wheelfactory.build.environments import (
    make_build_environment,
    make_numpy_environment,
    make_triton_environment,
    open_wheel_environment,
)
from wheelfactory.core.files import scratch_dir

pytestmark = pytest.mark.slow

TRANSFORMERS = "transformers==5.17.0"
PROGRAM = Path(__file__).with_name("tiny_models.py")


def make_transformers(cache: Path) -> Path:
    """Return the package folder of an environment with transformers; create it if it is not cached."""
    folder = cache / f"{TRANSFORMERS.replace('==', '-')}-{sys.version_info[1]}"
    with file_lock(cache, "transformers"):
        if not folder.exists():
            with scratch_dir(cache) as scratch:
                venv.create(scratch / "venv", symlinks=True)
                install = ("uv", "pip", "install", "--quiet", "--python", scratch / "venv/bin/python", TRANSFORMERS)
                subprocess.run([sys.executable, "-m", *install], check=True)
                (scratch / "venv").rename(folder)
    return next(folder.glob("lib/python*/site-packages"))


def test_models_train_as_with_eager_attention_or_name_what_computes_their_option(
    cache: Path, triton_wheel: Path, tmp_path: Path
) -> None:
    """Logits with and without padding, decoding with a cache, gradients, and three steps of training."""
    with file_lock(cache, "environments"):
        torch, numpy = make_build_environment(cache), make_numpy_environment(cache)
        layers = (torch, make_triton_environment(cache, "3.7.1"), numpy)
    folders = [*(layer.site_packages for layer in layers), make_transformers(cache)]
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}

    with open_wheel_environment(cache, triton_wheel, torch.python, torch.version, folders) as environment:
        command: list[str | Path] = [environment.python, "-I", "-B", PROGRAM, "flash_attn", "cpu"]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr[-2000:]
    found = {each["model"]: each for each in json.loads(done.stdout.splitlines()[-1])["models"]}
    assert {name: each["kind"] for name, each in found.items()} == {
        "llama": "right",
        "llama grouped": "right",
        "mistral": "refused",
        "gemma2": "refused",
    }
    assert len(found["llama"]["losses"]) == 4
    for name, words in {
        "mistral": ("window_size", "Mistral", "sdpa"),
        "gemma2": ("softcap", "Gemma 2", "eager"),
    }.items():
        assert [word for word in words if word not in found[name]["reason"]] == []
