"""The user's Python with torch: how it is chosen, queried and checked."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from doctor.fake_machines import make_python
from wheelfactory.core.errors import InputError
from wheelfactory.gpu.torch_python import TorchPython, find_torch_python, find_user_python
from wheelfactory.gpu.validation_report import Hardware, Software

TORCH = """
from types import SimpleNamespace
__version__ = {version!r}
version = SimpleNamespace(hip={hip!r}, cuda={cuda!r})
cuda = SimpleNamespace(
    is_available=lambda: {gpu!r} is not None,
    device_count=lambda: 1,
    get_device_properties=lambda _: SimpleNamespace(**{gpu!r}),
)
print("what torch prints when it is imported")
"""
"""A stub of torch with only the queried attributes."""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with a torch written by tests."""
    return Path(make_python(tmp_path_factory.mktemp("env") / "venv"))


def with_torch(python: Path, code: str | None, triton: str | None = None) -> str:
    """The interpreter, its torch being that code (None for no torch)."""
    (site,) = python.parents[1].glob("lib/python3*/site-packages")
    for name, text in (("torch", code), ("triton", triton and f"__version__ = {triton!r}")):
        shutil.rmtree(site / name, ignore_errors=True)
        if text is not None:
            (site / name).mkdir()
            (site / name / "__init__.py").write_text(text)
    return str(python)


def torch(version: str, *, hip: str | None = None, cuda: str | None = None, gpu: object = None) -> str:
    return TORCH.format(version=version, hip=hip, cuda=cuda, gpu=gpu)


PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"


def test_a_gpu_of_amd_is_known_by_its_arch_without_features(python: Path) -> None:
    gpu = {"name": "AMD Instinct MI300X", "gcnArchName": "gfx942:sramecc+:xnack-", "major": 9, "minor": 4}
    given = with_torch(python, torch("2.9.1+rocm6.4", hip="6.4.43482", gpu=gpu), triton="3.5.1")

    software = Software(python=PYTHON, torch="2.9.1+rocm6.4", hip="6.4.43482", triton="3.5.1")
    mi300x = Hardware(vendor="amd", device="AMD Instinct MI300X", arch="gfx942")
    assert find_torch_python(given, os.environ) == TorchPython(python, software, mi300x)


def test_a_gpu_of_nvidia_is_known_by_its_compute_capability(python: Path) -> None:
    gpu = {"name": "NVIDIA H200", "major": 9, "minor": 0}
    found = find_torch_python(with_torch(python, torch("2.11.0+cu130", cuda="13.0", gpu=gpu)), os.environ)

    assert found.software == Software(python=PYTHON, torch="2.11.0+cu130", cuda="13.0")
    assert found.gpu == Hardware(vendor="nvidia", device="NVIDIA H200", arch="sm_90")


def test_the_default_is_the_users_python_and_without_a_gpu_there_is_no_vendor(python: Path) -> None:
    with_torch(python, torch("2.9.1+rocm6.4", hip="6.4.43482"))
    found = find_torch_python(None, {"PATH": str(python.parent)})
    software = Software(python=PYTHON, torch="2.9.1+rocm6.4", hip="6.4.43482")
    assert found == TorchPython(python.with_name("python3"), software)


NO_GPUS = torch("2.9.1").replace("None is not None", "1 / 0")


@pytest.mark.parametrize(
    ("code", "what", "which", "hint"),
    [
        pytest.param(None, "cannot import torch", "No module named 'torch'", "has torch with --python", id="none"),
        pytest.param("raise ImportError('libhip.so')", "cannot import torch", "libhip.so", "doctor", id="broken"),
        pytest.param("import os; os.abort()", "cannot import torch", "killed by SIGABRT", "doctor", id="crashes"),
        pytest.param(NO_GPUS, "torch cannot list the GPUs", "ZeroDivisionError", "doctor", id="fails later"),
    ],
)
def test_a_torch_that_does_not_work_is_refused_with_its_words(
    python: Path, code: str | None, what: str, which: str, hint: str
) -> None:
    with pytest.raises(InputError) as caught:
        find_torch_python(with_torch(python, code), os.environ)
    assert caught.value.what == what
    assert str(python) in caught.value.which
    assert which in caught.value.which
    assert hint in caught.value.hint


def test_a_torch_that_programs_would_not_see_does_not_count(python: Path, tmp_path: Path) -> None:
    """They run isolated, so one on PYTHONPATH alone is none."""
    (tmp_path / "torch.py").write_text(torch("2.9.1+cpu"))
    with pytest.raises(InputError) as caught:
        find_torch_python(with_torch(python, None), {**os.environ, "PYTHONPATH": str(tmp_path)})
    assert "PYTHONPATH and the user site directory are ignored" in caught.value.hint


ANSWER = """echo 'answer:{"executable": "/usr/bin/python3.8", "python": "3.8"}'"""


@pytest.mark.parametrize(
    ("script", "what", "which"),
    [
        ("exit 3", "cannot run this Python", "exit code 3"),
        ("echo no answer", "cannot run this Python", "no output"),
        (ANSWER, "Python is too old", "3.8"),
    ],
)
def test_another_program_and_an_old_one_are_refused_as_python(
    tmp_path: Path, script: str, what: str, which: str
) -> None:
    fake = tmp_path / "python3"
    fake.write_text(f"#!/bin/sh\n{script}\n")
    fake.chmod(0o755)
    with pytest.raises(InputError, match=what) as caught:
        find_torch_python(str(fake), os.environ)
    assert which in caught.value.which


def test_the_active_environment_comes_before_path(tmp_path: Path) -> None:
    own, other = Path(make_python(tmp_path / "own")).parent, Path(make_python(tmp_path / "other")).parent
    assert find_user_python({"VIRTUAL_ENV": str(own.parent), "PATH": str(other)}) == f"{own}/python3"
    assert find_user_python({"PATH": f"/nowhere:{other}"}) == f"{other}/python3"


def test_the_factorys_own_python_is_taken_only_if_there_is_no_other(python: Path) -> None:
    ours = f"{sys.prefix}/bin"
    assert (
        find_user_python({"VIRTUAL_ENV": sys.prefix, "PATH": f"{ours}:{python.parent}"}) == f"{python.parent}/python3"
    )
    assert find_user_python({"PATH": ours}) == sys.executable
