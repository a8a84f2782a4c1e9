"""Distributions installed for a Python: found in its own folders, in its order, from any other Python."""

from __future__ import annotations

from pathlib import Path

import pytest

from doctor.fake_machines import make_python, write, write_metadata
from wheelfactory.core.errors import InputError
from wheelfactory.core.query import Interpreter


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An environment without packages."""
    return make_python(tmp_path_factory.mktemp("env") / "venv")


def test_the_first_distribution_of_a_name_is_the_one_that_python_takes(python: str, tmp_path: Path) -> None:
    for folder, version in (("first", "2.8.3"), ("second", "2.7.4")):
        write_metadata(tmp_path / folder, "flash-attn", version)
    packages = Interpreter([python], {"PYTHONPATH": f"{tmp_path}/first:{tmp_path}/second"}).find_packages()
    assert [found.version for found in packages.distributions("Flash.Attn")] == ["2.8.3", "2.7.4"]


def test_packages_of_the_running_python_are_not_found(python: str) -> None:
    assert list(Interpreter([python], {}).find_packages().distributions("pytest")) == []


def test_an_isolated_python_ignores_pythonpath(python: str, tmp_path: Path) -> None:
    write_metadata(tmp_path, "flash-attn", "2.8.3")
    isolated = Interpreter([python, "-I"], {"PYTHONPATH": str(tmp_path)})
    assert list(isolated.find_packages().distributions("flash-attn")) == []


def test_module_files_are_found_without_an_import(python: str, tmp_path: Path) -> None:
    module = write(tmp_path / "flash_attn/__init__.py", "raise SystemExit('imported')")
    packages = Interpreter([python], {"PYTHONPATH": str(tmp_path)}).find_packages("flash_attn", "absent")
    assert packages.origins == {"flash_attn": str(module), "absent": None}


def test_a_package_installed_later_is_found(python: str, tmp_path: Path) -> None:
    environ = {"PYTHONPATH": str(tmp_path)}
    assert list(Interpreter([python], environ).find_packages().distributions("flash-attn")) == []
    write_metadata(tmp_path, "flash-attn", "2.8.3")
    assert len(list(Interpreter([python], environ).find_packages().distributions("flash-attn"))) == 1


def test_a_program_that_is_not_python_is_refused() -> None:
    for name in ("/nowhere/python", "/bin/false", "/bin/true"):
        with pytest.raises(InputError, match=f"cannot examine this Python: {name}"):
            Interpreter([name], {}).find_packages()
