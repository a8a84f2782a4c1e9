"""The script that serves jobs with a fresh runner each. Stand-ins: an archive for GitHub's runner, and a ``gh``."""

from __future__ import annotations

import os
import subprocess
import tarfile
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts/ephemeral_runner.sh"

CONFIG = '#!/bin/sh\necho "$@" >> "$(dirname "$0")/../home/left-over"\necho "config $*" >> {log}\n'
RUN = '#!/bin/sh\necho "run $(wc -l < "$HOME/left-over") $(env | cut -d= -f1 | sort | tr "\\n" " ")" >> {log}\n{then}\n'


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def serve(
    tmp_path: Path, log: Path, *arguments: str, then: str = "", gh: str = "echo T-1"
) -> subprocess.CompletedProcess[str]:
    """Run the script with stand-ins; `then` is what the runner does at its end."""
    made, tools, machines = (tmp_path / name for name in ("made", "tools", "machines"))
    for folder in (made, tools, machines):
        folder.mkdir()
    for path, text in ((made / "config.sh", CONFIG), (made / "run.sh", RUN), (tools / "gh", f"#!/bin/sh\n{gh}\n")):
        path.write_text(text.replace("{log}", str(log)).replace("{then}", then))
        path.chmod(0o755)
    with tarfile.open(tmp_path / "runner.tar.gz", "w:gz") as archive:
        for name in ("config.sh", "run.sh"):
            archive.add(made / name, name)
    environ = {"PATH": f"{tools}:{os.environ['PATH']}", "TMPDIR": str(machines), "GH_TOKEN": "secret"}
    command: list[str | Path] = [SCRIPT, "OWNER/REPO", "mi300x", tmp_path / "runner.tar.gz", *arguments]
    done = subprocess.run(command, env=environ, capture_output=True, text=True)
    assert list(machines.iterdir()) == []
    return done


def test_each_job_has_a_runner_and_a_home_of_its_own_that_are_gone_afterwards(tmp_path: Path, log: Path) -> None:
    done = serve(tmp_path, log, "2")
    assert done.returncode == 0, done.stderr
    first, run, second, again = log.read_text().splitlines()
    for config in (first, second):
        assert config.startswith(
            "config --url https://github.com/OWNER/REPO --token T-1 --labels mi300x --name mi300x-"
        )
        assert config.endswith(" --ephemeral --unattended")
    assert first != second  # the name
    assert run == again
    assert run.startswith("run 1 ")  # nothing of the job before is in its home


def test_a_job_sees_nothing_of_the_users_environment(tmp_path: Path, log: Path) -> None:
    serve(tmp_path, log, "1")
    seen = set(log.read_text().splitlines()[1].split()[2:])
    assert seen - {"PWD", "OLDPWD", "SHLVL", "_"} == {"HOME", "LANG", "PATH"}


def test_a_runner_that_fails_ends_the_script(tmp_path: Path, log: Path) -> None:
    done = serve(tmp_path, log, "3", then="exit 7")
    assert done.returncode == 1
    assert "error: the runner failed: job 1" in done.stderr
    assert len(log.read_text().splitlines()) == 2


def test_without_a_token_no_runner_is_started(tmp_path: Path, log: Path) -> None:
    done = serve(tmp_path, log, "3", gh="exit 4")
    assert done.returncode == 1
    assert not log.exists()


def test_missing_arguments_are_named(tmp_path: Path) -> None:
    done = subprocess.run([SCRIPT, "OWNER/REPO"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "hint: scripts/ephemeral_runner.sh OWNER/REPO LABEL RUNNER_ARCHIVE [JOBS]" in done.stderr
