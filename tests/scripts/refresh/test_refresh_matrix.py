"""The weekly refresh as a command: each source on loopback is asked, and one that fails does not stop the others."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from container_registry import ContainerRegistry
from refresh.news import find_news
from refresh.torch_index import TorchIndex
from scripts.refresh.torch_pages import TorchPages, known
from small_matrix import Edit, edited
from wheelfactory.core.errors import BAD_INPUT, DONE, FAILED
from wheelfactory.core.files import ROOT
from wheelfactory.matrix.load import load_matrix

SCRIPT = ROOT / "scripts/refresh_matrix.py"
UPSTREAM = "https://github.com/Dao-AILab/flash-attention"
PREVIEW: tuple[Edit, Edit] = ("  '2.6.3':\n", "  '2.6.4+git418d677':\n"), ("      tag: v2.6.3\n", "")
DEAD = "http://127.0.0.1:9"


@pytest.fixture
def matrix(tmp_path: Path, hub: ContainerRegistry) -> Path:
    """A small matrix with a preview, which knows torch 2.10.0 but lists it for no ROCm; the registry has its images."""
    path = tmp_path / "matrix.yaml"
    path.write_text(edited(known("2.10.0"), *PREVIEW))
    for rocm in load_matrix(path).rocm.values():
        for image in rocm.images:
            hub.add(image.tag)
    return path


@pytest.fixture
def index(pages: TorchPages) -> TorchPages:
    """An index with one release more than the matrix lists, and the page of all builds; flash-attn as on PyPI."""
    pages.have("6.4", "2.10.0", "3.12", "3.11")
    pages.have("6.4", "2.9.1", "3.12", "3.11")
    pages.have("6.2", "2.5.1", "3.11", platform="linux_x86_64")
    pages.files["/whl"] = [
        f"torch-{torch}+{label}-cp312-cp312-manylinux_2_28_x86_64.whl"
        for torch, label in (("2.9.1", "rocm6.4"), ("2.10.0", "rocm7.10"), ("2.9.1", "rocm7.10"), ("2.9.1", "cu128"))
    ]
    pages.files["/whl/flash-attn/"] = ["flash_attn-2.8.3.tar.gz", "flash_attn-2.9.0.tar.gz", "flash_attn-2.5.0.tar.gz"]
    return pages


@pytest.fixture
def environ(tmp_path: Path, index: TorchPages) -> dict[str, str]:
    """Where PyPI and upstream's repository are on this machine: git itself goes to another address."""
    upstream = tmp_path / "upstream"
    git = ["git", "-C", str(upstream), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "init", "--quiet", str(upstream)], check=True)
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "--message", "newer"], check=True)
    return {
        **os.environ,
        "PIP_INDEX_URL": index.url,
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.file://{upstream}.insteadOf",
        "GIT_CONFIG_VALUE_0": UPSTREAM,
    }


def run(environ: dict[str, str], *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, SCRIPT, *arguments], env=environ, capture_output=True, text=True)


def test_each_source_is_asked_and_what_needs_a_person_is_reported(
    matrix: Path, hub: ContainerRegistry, index: TorchPages, environ: dict[str, str], tmp_path: Path
) -> None:
    report = tmp_path / "report.txt"
    places = ("--index", index.url, "--registry", hub.url)
    done = run(environ, "--online", "--matrix", matrix, "--report", report, *places)
    assert done.returncode == DONE, done.stderr
    assert load_matrix(matrix).rocm["6.4"].torch == ("2.10.0", "2.9.1")
    assert "added      to ROCm 6.4: torch 2.10.0" in done.stdout
    assert done.stdout.count("pinned     rocm/pytorch:") == 5
    rocm, release, commit = report.read_text().splitlines()
    assert rocm == "suggested  an entry under rocm: for 7.10: PyTorch's index has torch 2.10.0+rocm7.10"
    assert release == "suggested  an entry under flash-attn: for 2.9.0, which PyPI has"
    assert commit.startswith(
        "suggested  another commit for the preview 2.6.4+git418d677: upstream's main branch is at "
    )


GH = """\
#!/bin/sh
case "$2" in list) echo "[]" ;; create) echo https://github.com/owner/name/pull/7 ;; esac
"""


def test_the_pull_request_holds_all_that_follows(
    matrix: Path, checkout: Path, hub: ContainerRegistry, index: TorchPages, environ: dict[str, str], tmp_path: Path
) -> None:
    """From the sources to the branch on the server: its tree needs no further command, and the changelog says why."""
    shutil.copy(matrix, checkout / "matrix.yaml")
    environ |= {"PYTHONPATH": str(checkout / "src"), "PATH": f"{tmp_path}:{environ['PATH']}", "GH_TOKEN": "t"}
    (tmp_path / "gh").write_text(GH)
    (tmp_path / "gh").chmod(0o755)
    origin = tmp_path / "origin.git"

    def execute(*command: str | Path) -> str:
        done = subprocess.run(command, cwd=checkout, env=environ, capture_output=True, text=True)
        assert done.returncode == DONE, done.stderr
        return done.stdout

    refresh = (sys.executable, "scripts/refresh_matrix.py")
    execute(*refresh)
    execute("git", "init", "--quiet", "--initial-branch=main")
    execute("git", "add", "--all")
    execute("git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "--message", "first")
    execute("git", "clone", "--quiet", "--bare", ".", origin)
    execute("git", "remote", "add", "origin", origin)
    execute(*refresh, "--online", "--report", tmp_path / "report", "--index", index.url, "--registry", hub.url)
    proposed = execute(sys.executable, "scripts/propose_changes.py", "refresh", "main", "Refresh it")
    assert proposed == "opened https://github.com/owner/name/pull/7\n"
    changed = execute("git", "--git-dir", origin, "diff", "--name-only", "main", "refresh").split()
    assert changed == ["CHANGELOG.md", "README.md", "matrix.yaml", "tests/data/cells.txt"]
    execute("git", "reset", "--quiet", "--hard")
    execute("git", "pull", "--quiet", "origin", "refresh")
    assert "### Wheels\n\n- Added to ROCm 6.4: torch 2.10.0.\n" in (checkout / "CHANGELOG.md").read_text()
    assert execute(*refresh) == ""


@pytest.mark.slow  # real retries
def test_a_dead_source_is_reported_and_the_others_are_used(
    matrix: Path, hub: ContainerRegistry, environ: dict[str, str], tmp_path: Path
) -> None:
    report = tmp_path / "report.txt"
    dead = {**environ, "PIP_INDEX_URL": DEAD}
    done = run(dead, "--online", "--matrix", matrix, "--report", report, "--index", DEAD, "--registry", hub.url)
    assert done.returncode == DONE, done.stderr
    failed = [line for line in report.read_text().splitlines() if line.startswith("failed")]
    assert [line.partition(", http")[0] for line in failed[:3]] == [
        "failed     cannot read an index: ROCm 6.4",
        "failed     cannot read an index: ROCm 6.2",
        "failed     cannot read an index: all builds",
    ]
    assert done.stdout.count("pinned     rocm/pytorch:") == 5
    assert "suggested  another commit" in report.read_text()
    assert run(dead, "--online", "--matrix", matrix, "--index", DEAD, "--registry", hub.url).returncode == FAILED


def test_a_preview_of_the_newest_commit_is_no_news(matrix: Path, index: TorchPages, environ: dict[str, str]) -> None:
    head = subprocess.run(
        ["git", "ls-remote", UPSTREAM, "HEAD"], env=environ, capture_output=True, text=True, check=True
    )
    commit = head.stdout.partition("\t")[0]
    old = "418d677192b483dfc1decfdf9aadca40b402485d"
    matrix.write_text(matrix.read_text().replace(old, commit).replace(f"+git{old[:7]}", f"+git{commit[:7]}"))
    found = find_news(load_matrix(matrix), TorchIndex(index.url, environ), environ)
    assert [line for line in found.suggestions if "preview" in line] == []


def test_an_invalid_matrix_is_reported_before_any_request(
    matrix: Path, hub: ContainerRegistry, index: TorchPages, environ: dict[str, str]
) -> None:
    hub.asked.clear()
    matrix.write_text(edited(("torch: ['2.9.1']", "torch: ['2.99']")))
    done = run(environ, "--online", "--matrix", matrix, "--index", index.url, "--registry", hub.url)
    assert done.returncode == BAD_INPUT
    assert "torch 2.99 has no entry" in done.stderr
    assert (index.asked, hub.asked) == ([], [])
