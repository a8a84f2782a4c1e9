"""The probe for the torch of a Python, as a file and as text."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from doctor.fake_machines import ROCM_TORCH, FakeTorch, make_python
from wheelfactory.core.files import TOOLCHAIN_PROBE
from wheelfactory.core.query import QueryResult, query_program
from wheelfactory.wheel.build_record import Toolchain


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


def test_the_probe_reports_a_missing_torch(tmp_path: Path) -> None:
    found = Toolchain.model_validate_json(probed(make_python(tmp_path / "env")).stdout)
    assert found.python
    assert (found.torch, found.hip, found.compiler) == (None, None, None)


def test_triton_is_imported_only_on_request(python: str, tmp_path: Path) -> None:
    (tmp_path / "triton.py").write_text("__version__ = '3.5.1'\nprint('triton is there')\n")
    environ = {"PYTHONPATH": str(tmp_path)}
    without, with_it = (
        query_program([python, str(TOOLCHAIN_PROBE), "gpus", *more], environ, 60) for more in ((), ("triton",))
    )
    assert "triton is there" not in without.stdout
    assert with_it.answers == {**without.answers, "triton": "3.5.1"}


def test_modules_beside_the_program_are_not_imported(python: str, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise OSError('not the torch that is installed')")
    copy = shutil.copy(TOOLCHAIN_PROBE, tmp_path)
    assert query_program([python, str(copy), "gpus"], {}, 60).answers["torch"] == "2.9.1+rocm6.4"


def test_as_text_it_imports_what_the_variables_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also from the folder that one happens to be in, if that is named."""
    bare = make_python(tmp_path / "env")
    (tmp_path / "torch.py").write_text(ROCM_TORCH.code)
    monkeypatch.chdir(tmp_path)
    text = TOOLCHAIN_PROBE.read_text(encoding="utf-8")
    assert "torch" not in query_program([bare, "-c", text, "gpus"], {}, 60).answers
    assert (
        query_program([bare, "-c", text, "gpus"], {"PYTHONPATH": str(tmp_path)}, 60).answers["torch"] == "2.9.1+rocm6.4"
    )


def test_a_failed_torch_import_shows_its_own_error(tmp_path: Path) -> None:
    broken = make_python(tmp_path / "env", FakeTorch("2.9.1", "raise OSError('libhip.so: file too short')"))
    answer = probed(broken, "gpus")
    assert set(answer.answers) == {"executable", "python"}
    assert answer.last_line == "OSError: libhip.so: file too short"
