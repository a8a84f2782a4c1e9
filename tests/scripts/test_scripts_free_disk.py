"""Unused software is deleted from the disk of a hosted runner, and from no other machine."""

from __future__ import annotations

import ast
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from wheelfactory.core.files import ROOT

SCRIPT = ROOT / "scripts/free_disk.py"
HOSTED = {"RUNNER_ENVIRONMENT": "github-hosted"}
ANDROID, DOTNET = "usr/local/lib/android", "usr/share/dotnet"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("free_disk", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def disk(tmp_path: Path, script: ModuleType) -> Path:
    """The disk of a runner, with software to remove and software to keep."""
    root = tmp_path / "disk"
    for name in (*script.UNUSED, "/opt/hostedtoolcache/Python/3.12.1/x64/bin", "/opt/hostedtoolcache/node", "/usr/bin"):
        folder = root / name.lstrip("/") / "deep"
        folder.mkdir(parents=True)
        (folder / "file").write_text(name)
    return root


def files(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def free(script: ModuleType, root: Path, environ: Mapping[str, str] = HOSTED) -> list[str]:
    lines: list[str] = script.free_disk(root, environ)
    return lines


@pytest.mark.parametrize("runner", [None, "self-hosted", "GitHub-hosted"])
def test_no_other_machine_loses_a_file(script: ModuleType, disk: Path, runner: str | None) -> None:
    before = files(disk)
    environ = {"GITHUB_ACTIONS": "true", "CI": "true", **({} if runner is None else {"RUNNER_ENVIRONMENT": runner})}
    assert free(script, disk, environ) == ["not a GitHub-hosted runner: nothing removed"]
    assert files(disk) == before


def test_a_hosted_runner_keeps_what_is_used_and_says_how_much_was_freed(
    script: ModuleType, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = iter([14_000_000_000, 41_550_000_000])
    monkeypatch.setattr(script.shutil, "disk_usage", lambda _: SimpleNamespace(free=next(left)))
    *lines, last = free(script, disk)
    assert files(disk) == {
        "opt/hostedtoolcache/Python/3.12.1/x64/bin/deep/file",
        "opt/hostedtoolcache/node/deep/file",
        "usr/bin/deep/file",
    }
    assert lines[0] == "removed  /usr/local/lib/android (Android SDK and NDK, 12 GB)"
    assert [line.split()[1] for line in lines] == list(script.UNUSED)
    assert last == "freed 27.6 GB; 41.5 GB are free now"


def test_missing_folders_are_skipped(script: ModuleType, disk: Path) -> None:
    for name in script.UNUSED:
        shutil.rmtree(disk / name.lstrip("/"), ignore_errors=True)
    (disk / DOTNET).mkdir()
    lines = free(script, disk)
    assert [line.split()[1] for line in lines[:-1]] == ["/usr/share/dotnet"]


@pytest.mark.parametrize("linked", [ANDROID, "usr/local/lib", f"{DOTNET}/link"])
def test_a_link_is_not_followed(script: ModuleType, disk: Path, tmp_path: Path, linked: str) -> None:
    """Of a folder, of one above it, or in one: that is removed."""
    (disk / linked).mkdir(exist_ok=True)
    (disk / linked / "kept").touch()
    (disk / linked).rename(tmp_path / "elsewhere")
    (disk / linked).symlink_to(tmp_path / "elsewhere")
    before = files(tmp_path / "elsewhere")
    lines = free(script, disk)
    assert ("skipped  /usr/local/lib/android (a link)" in lines) == (not linked.startswith(DOTNET))
    assert files(tmp_path / "elsewhere") == before != set()
    assert not (disk / DOTNET).exists()


def test_the_python_that_runs_it_stays(script: ModuleType, disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(disk / "usr/share/miniconda/deep/file"))
    assert "skipped  /usr/share/miniconda (contains the running Python)" in free(script, disk)
    assert (disk / "usr/share/miniconda/deep/file").exists()
    assert not (disk / ANDROID).exists()


def test_a_failed_removal_is_reported_and_the_rest_is_removed(
    script: ModuleType, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove = shutil.rmtree

    def rmtree(path: str, ignore_errors: bool) -> None:
        if not path.endswith("android"):
            remove(path, ignore_errors=ignore_errors)

    monkeypatch.setattr(script.shutil, "rmtree", rmtree)
    assert free(script, disk)[0].startswith("partly removed  /usr/local/lib/android ")
    assert files(disk / ANDROID)
    assert not (disk / DOTNET).exists()


def test_the_table_names_folders_of_software_and_none_that_is_used(script: ModuleType) -> None:
    used = (
        "/opt/hostedtoolcache/Python",
        "/usr/bin/python3",
        "/usr/bin/docker",
        "/var/lib/docker",
        "/home/runner/work",
    )
    for name in script.UNUSED:
        assert os.path.normpath(name) == name
        assert len(Path(name).parts) > 2
        assert not any(path.startswith(name) for path in used)


def test_the_script_does_nothing_on_this_machine() -> None:
    """Run the script as on a hosted runner, on any machine."""
    environ = {**os.environ, "RUNNER_ENVIRONMENT": "self-hosted"}
    done = subprocess.run([sys.executable, SCRIPT], env=environ, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "not a GitHub-hosted runner: nothing removed\n"), done.stderr


def test_it_runs_on_an_old_python_with_nothing_installed() -> None:
    tree = ast.parse(SCRIPT.read_text(), feature_version=(3, 9))
    imported = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {
        alias.name if isinstance(node, ast.Import) else str(node.module) for node in imported for alias in node.names
    }
    assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names
