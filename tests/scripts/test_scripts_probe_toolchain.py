"""The probe for the torch of a Python, as a file and as text."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from doctor.fake_machines import ROCM_TORCH, FakeTorch, make_python
from wheelfactory.core.files import TOOLCHAIN_PROBE
from wheelfactory.core.query import QueryResult, query_program
from wheelfactory.wheel.read import Toolchain


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python with a torch for ROCm."""
    return make_python(tmp_path_factory.mktemp("env") / "venv", ROCM_TORCH)


def probed(python: str, *arguments: str) -> QueryResult:
    return query_program([python, str(TOOLCHAIN_PROBE), *arguments], {}, 60)


def test_the_probe_prints_one_json_object(python: str) -> None:
    shown = probed(python).stdout.splitlines()[-1]
    found = Toolchain.model_validate_json(shown)
    assert (found.torch, found.hip, found.cxx11_abi) == ("2.9.1+rocm6.4", "6.4.43482-0f2d60242", True)
    assert set(json.loads(shown)) == set(Toolchain.model_fields)


def test_the_probe_reports_a_missing_torch_and_the_error_of_a_broken_one(tmp_path: Path) -> None:
    found = Toolchain.model_validate_json(probed(make_python(tmp_path / "env")).stdout)
    assert found.python
    assert (found.torch, found.hip, found.compiler) == (None, None, None)
    broken = make_python(tmp_path / "broken", FakeTorch("2.9.1", "raise OSError('libhip.so: file too short')"))
    answer = probed(broken, "gpus")
    assert set(answer.answers) == {"executable", "python"}
    assert answer.last_line == "OSError: libhip.so: file too short"


def test_triton_is_imported_only_on_request(python: str, tmp_path: Path) -> None:
    (tmp_path / "triton.py").write_text("__version__ = '3.5.1'\nprint('triton is there')\n")
    environ = {"PYTHONPATH": str(tmp_path)}
    without, with_it = (
        query_program([python, str(TOOLCHAIN_PROBE), "gpus", *more], environ, 60) for more in ((), ("triton",))
    )
    assert "triton is there" not in without.stdout
    assert with_it.answers == {**without.answers, "triton": "3.5.1"}


def test_only_what_the_variables_name_is_imported(python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a file nothing beside it; as text also from the folder that one happens to be in, if that is named."""
    (tmp_path / "torch.py").write_text(ROCM_TORCH.code.replace("2.9.1", "2.0.0"))
    copy = shutil.copy(TOOLCHAIN_PROBE, tmp_path)
    assert query_program([python, str(copy), "gpus"], {}, 60).answers["torch"] == "2.9.1+rocm6.4"
    bare = [make_python(tmp_path / "env"), "-c", TOOLCHAIN_PROBE.read_text(encoding="utf-8"), "gpus"]
    monkeypatch.chdir(tmp_path)
    assert "torch" not in query_program(bare, {}, 60).answers
    assert query_program(bare, {"PYTHONPATH": str(tmp_path)}, 60).answers["torch"] == "2.0.0+rocm6.4"
