"""Each pinned action is compared with its tag: real git asks repositories in a folder instead of GitHub."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from wheelfactory.core.files import ROOT

SCRIPT = ROOT / "scripts/check_pins.py"
OTHER = "1" * 40


def git(folder: Path, *arguments: str) -> str:
    person = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false", "-c", "tag.gpgsign=false")
    command = ["git", "-C", str(folder), *person, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def commit(tmp_path: Path) -> str:
    """The commit that the tags v1.0.0 (annotated) and v2.0.0 of the action owner/action name."""
    action = tmp_path / "hub/owner/action"
    action.mkdir(parents=True)
    git(action, "init", "--quiet")
    git(action, "commit", "--quiet", "--allow-empty", "--message", "one")
    git(action, "tag", "--annotate", "--message", "one", "v1.0.0")
    git(action, "tag", "v2.0.0")
    return git(action, "rev-parse", "HEAD")


def check(tmp_path: Path, workflow: str) -> subprocess.CompletedProcess[str]:
    """Run the script in a tree with this workflow."""
    tree = tmp_path / "tree"
    for name, text in (("scripts/check_pins.py", SCRIPT.read_text()), (".github/workflows/x.yml", workflow)):
        (tree / name).parent.mkdir(parents=True)
        (tree / name).write_text(text)
    return run(tree / "scripts/check_pins.py", tmp_path)


def run(script: Path, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    config = {"KEY_0": f"url.file://{tmp_path}/hub/.insteadOf", "VALUE_0": "https://github.com/", "COUNT": "1"}
    environ = {**os.environ, **{f"GIT_CONFIG_{name}": value for name, value in config.items()}}
    return subprocess.run([sys.executable, script], env=environ, capture_output=True, text=True)


@pytest.mark.parametrize("tag", ["v1.0.0", "v2.0.0"], ids=["annotated", "lightweight"])
def test_the_commit_of_the_tag_is_right(tmp_path: Path, commit: str, tag: str) -> None:
    done = check(tmp_path, f"- uses: owner/action/sub@{commit} # {tag}\n- uses: owner/action@{commit} # {tag}\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"ok     owner/action {tag}  {commit}\n"


@pytest.mark.parametrize(
    ("uses", "why"),
    [
        (f"owner/action@{OTHER} # v1.0.0", f"pinned {OTHER}, the tag is "),
        (f"owner/action@{OTHER} # v1.0", "no such tag"),
        (f"owner/absent@{OTHER} # v1.0.0", "git cannot read the tags: fatal: "),
    ],
    ids=["moved", "absent", "unreachable"],
)
def test_anything_else_is_wrong(tmp_path: Path, commit: str, uses: str, why: str) -> None:
    done = check(tmp_path, f"- uses: owner/action@{commit} # v1.0.0\n- uses: {uses}\n")
    assert done.returncode == 1
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("WRONG"))
    assert f"  {why}" in line
    assert done.stderr.startswith("error: pinned actions: 1 of 2 are not the commit of their tag\nhint: ")


def test_no_action_at_all_is_an_error(tmp_path: Path) -> None:
    done = check(tmp_path, "- uses: owner/action@v1\n")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: pinned actions: none in .github\nhint: ")


def test_every_action_of_this_repository_is_compared(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    shutil.copytree(ROOT / ".github", tmp_path / "tree/.github")
    shutil.copytree(ROOT / "scripts", tmp_path / "tree/scripts")
    used = {
        name
        for path in ROOT.glob(".github/**/*.yml")
        for name in re.findall(r"uses: ([\w-]+/[\w-]+)", path.read_text())
    }
    done = run(tmp_path / "tree/scripts/check_pins.py", tmp_path)
    assert {line.split()[1] for line in done.stdout.splitlines()} == used
