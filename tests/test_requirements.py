"""The lock files of ./factory: every package of pyproject.toml with a hash, and pip installs nothing else."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

from docs.pages import repository_files
from wheelfactory.core.files import ROOT

LOCKS = {"factory": ("verify",), "check": ("check",), "docs": ("docs", "verify"), "dev": ("dev",)}
"""The name of each lock file -> the extras of pyproject.toml that it has beside the dependencies; smallest first."""

PROJECTS = ("pyproject.toml", "packages/remote_execution/pyproject.toml")

PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")

Locked = Mapping[str, frozenset[str]]
"""Requirements, each with its hashes."""


@cache
def read_lock(name: str) -> Locked:
    """The requirements of a lock file, such as ``tomli==2.5.0 ; python_full_version < '3.11'``."""
    text = (ROOT / f"requirements/{name}.txt").read_text().replace("\\\n", " ")
    lines = [line.split(" --hash=") for line in text.splitlines() if line and not line.startswith("#")]
    return {line[0].strip(): frozenset(each.strip() for each in line[1:]) for line in lines}


def locked_versions(name: str, environment: Mapping[str, str]) -> dict[NormalizedName, str]:
    """The packages and versions that a lock file has for an environment."""
    found: dict[NormalizedName, str] = {}
    for requirement in map(Requirement, read_lock(name)):
        if requirement.marker is None or requirement.marker.evaluate(dict(environment)):
            assert canonicalize_name(requirement.name) not in found, f"twice: {requirement.name}"
            found[canonicalize_name(requirement.name)] = str(requirement.specifier).removeprefix("==")
    return found


def declared(asked: Iterable[str]) -> Iterator[Requirement]:
    """The dependencies in pyproject.toml and of the client of clusters, and those of extras with the extras that these
    name."""
    tomllib = pytest.importorskip("tomllib", reason="from Python 3.11 on")
    project, client = (tomllib.loads((ROOT / name).read_text())["project"] for name in PROJECTS)
    extras = project["optional-dependencies"]
    waiting = [*project["dependencies"], *client["dependencies"], *(text for extra in asked for text in extras[extra])]
    while waiting:
        requirement = Requirement(waiting.pop())
        if requirement.name == project["name"]:
            waiting += [text for inner in requirement.extras for text in extras[inner]]
        else:
            yield requirement


@pytest.mark.parametrize("name", LOCKS)
def test_each_package_has_one_version_and_hashes_and_no_address(name: str) -> None:
    assert read_lock(name)
    for text, hashes in read_lock(name).items():
        assert re.fullmatch(r"[\w.-]+==[\w.]+( ; .+)?", text)
        assert hashes, text
        assert all(re.fullmatch("sha256:[0-9a-f]{64}", each) for each in hashes), text
    assert "://" not in (ROOT / f"requirements/{name}.txt").read_text()


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("name", LOCKS)
def test_each_dependency_of_pyproject_is_locked_at_a_version_that_it_allows(name: str, python: str) -> None:
    environment = {"python_version": python, "python_full_version": f"{python}.5", "extra": ""}
    locked = locked_versions(name, environment)
    for requirement in declared(LOCKS[name]):
        if requirement.marker is None or requirement.marker.evaluate({**environment}):
            assert requirement.specifier.contains(locked[canonicalize_name(requirement.name)]), str(requirement)


def test_a_package_is_the_same_in_every_lock_file() -> None:
    small, *middle, large = (read_lock(name).items() for name in LOCKS)
    assert all(small < one < large for one in middle)


@pytest.mark.parametrize("name", LOCKS)
def test_the_packages_are_those_that_the_dependencies_need(name: str) -> None:
    """pip installs the lock file without dependencies, so a missing one would be found by an import only."""
    needed: set[NormalizedName] = set()
    waiting = [(requirement, "") for requirement in declared(LOCKS[name])]
    seen = set()
    while waiting:
        requirement, extra = waiting.pop()
        package = canonicalize_name(requirement.name)
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        needed.add(package)
        for asked in ("", *requirement.extras):
            if (package, asked) not in seen:
                seen.add((package, asked))
                waiting += [(Requirement(text), asked) for text in distribution(package).requires or ()]
    assert set(locked_versions(name, {})) == needed


@pytest.mark.slow
def test_locking_again_changes_nothing(tmp_path: Path) -> None:
    """A red test here: run ./factory lock, which pyproject.toml is ahead of."""
    for name in (*PROJECTS, "scripts/lock_requirements.py", *(f"requirements/{lock}.txt" for lock in LOCKS)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    subprocess.run([sys.executable, tmp_path / "scripts/lock_requirements.py"], check=True)
    for lock in LOCKS:
        assert (tmp_path / f"requirements/{lock}.txt").read_text() == (ROOT / f"requirements/{lock}.txt").read_text()


def call(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    environ["PATH"] = f"{Path(sys.base_prefix) / 'bin'}:{environ['PATH']}"
    return subprocess.run([checkout / "factory", *arguments], env=environ, capture_output=True, text=True)


def installed(checkout: Path) -> dict[NormalizedName, str]:
    """What is installed in the environment of a checkout."""
    (packages,) = checkout.glob(".venv/lib/python3*/site-packages")
    # Python's ensurepip brings pip and, before Python 3.12, setuptools
    names = (path.name.removesuffix(".dist-info").split("-") for path in packages.glob("*.dist-info"))
    return {canonicalize_name(name): version for name, version in names if name != "setuptools"}


@pytest.mark.slow
def test_the_first_call_installs_exactly_what_is_locked_and_another_hash_stops_it(tmp_path: Path) -> None:
    for name in repository_files():
        if not name.startswith(("tests/", "docs/")):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / name)
    lock = tmp_path / "requirements/factory.txt"
    right = lock.read_text()
    first, *_ = re.findall(r"^[\w.-]+==(?:.*\\\n)*.*\n", lock.read_text(), re.MULTILINE)
    _, _, last = lock.read_text().rpartition("\nzstandard==")
    lock.write_text(f"{first}zstandard=={re.sub('sha256:.{8}', 'sha256:00000000', last)}")
    done = call(tmp_path, "--version")
    assert (done.returncode, done.stdout) == (1, "")
    assert "THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE" in done.stderr
    error, hint = done.stderr.splitlines()[-2:]
    assert error == "error: cannot install the packages of requirements/factory.txt: pip failed, see above"
    assert hint.startswith("hint: ")
    assert "if a hash differs, do not use that package" in hint
    assert installed(tmp_path).keys() == {"pip"}

    lock.write_text(right)
    done = call(tmp_path, "matrix", "--only", "*-triton")  # the unfinished environment is not taken for a finished one
    assert done.returncode == 0, done.stderr
    assert '"include"' in done.stdout
    assert installed(tmp_path) == locked_versions("factory", {})
    refused = call(tmp_path, "kernels", "ck-62327233-rocm6.4-gfx942", "--executor", "local", "--remote", "nowhere")
    assert "not an address of a Remote Execution server: nowhere" in refused.stderr  # the client is on the path, too
    assert call(tmp_path, "--version").stderr == ""  # nothing is installed again
