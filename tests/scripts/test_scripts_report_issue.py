"""What a scheduled workflow found is reported in one issue: a stand-in for gh keeps the issues, as GitHub does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from wheelfactory.core.files import ROOT

SCRIPT = ROOT / "scripts/report_issue.py"
RUN = "https://github.com/someone/wheels/actions/runs/42"
GH = """\
#!/bin/sh
printf '%s\\n' "$*" >> "$STATE/calls"
for argument; do case "$argument" in --body-file=*) cp "${argument#--body-file=}" "$STATE/body" ;; esac; done
[ ! -e "$STATE/down" ] || { echo "HTTP 502" >&2; exit 1; }
case "$1 $2" in
  "issue list") cat "$STATE/open" ;;
  "issue comment") echo "https://github.com/someone/wheels/issues/$3#issuecomment-1" ;;
  "issue create") echo '[{"number": 9}]' > "$STATE/open"; echo https://github.com/someone/wheels/issues/9 ;;
esac
"""

Report = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """What the stand-in keeps: its calls, the last text, and the open issues with the label."""
    folder = tmp_path / "state"
    folder.mkdir()
    (folder / "open").write_text("[]")
    return folder


@pytest.fixture
def report(tmp_path: Path, state: Path) -> Report:
    """Runs the script with a report, or without one."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/gh").write_text(GH)
    (tmp_path / "bin/gh").chmod(0o755)
    of_run = {"GITHUB_SERVER_URL": "https://github.com", "GITHUB_REPOSITORY": "someone/wheels", "GITHUB_RUN_ID": "42"}
    environ = {**os.environ, **of_run, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "STATE": str(state)}

    def run(text: str | None, kind: str = "drift") -> subprocess.CompletedProcess[str]:
        if text is not None:
            (tmp_path / "report.txt").write_text(text)
        command = (sys.executable, SCRIPT, kind, tmp_path / "report.txt")
        return subprocess.run(command, env=environ, capture_output=True, text=True)

    return run


def calls(state: Path) -> list[str]:
    """The commands of gh so far, each by its first words."""
    return [" ".join(line.split()[:3]) for line in (state / "calls").read_text().splitlines()]


def test_the_first_failure_opens_an_issue_and_the_second_comments_on_it(report: Report, state: Path) -> None:
    first = report("failed: a.whl: import after pip\n")
    assert (first.returncode, first.stdout) == (0, "https://github.com/someone/wheels/issues/9\n")
    assert calls(state) == ["issue list --label=drift", "label create drift", "issue create --title=The"]
    body = (state / "body").read_text()
    assert f"in {RUN}. Its report:\n\n    failed: a.whl: import after pip\n\n" in body
    second = report("failed: b.whl: row\n")
    assert (second.returncode, second.stdout) == (0, "https://github.com/someone/wheels/issues/9#issuecomment-1\n")
    assert calls(state)[3:] == ["issue list --label=drift", "issue comment 9"]
    assert "    failed: b.whl: row\n" in (state / "body").read_text()


def test_of_several_open_issues_the_oldest_gets_the_comment_also_without_a_report(report: Report, state: Path) -> None:
    (state / "open").write_text(json.dumps([{"number": 12}, {"number": 7}]))
    assert "issues/7#" in report(None).stdout
    assert "\n    none: the job ended before it could write one." in (state / "body").read_text()


def test_each_kind_has_an_issue_of_its_own_and_an_empty_report_none(report: Report, state: Path) -> None:
    assert report("failed     cannot read an index\n", "refresh").returncode == 0
    assert calls(state) == ["issue list --label=refresh", "label create refresh", "issue create --title=The"]
    assert "how-to/refresh.md" in (state / "body").read_text()
    assert report("", "refresh").stdout == "nothing to report\n"
    assert len(calls(state)) == 3


def test_nothing_in_a_report_reaches_github_as_markup(report: Report, state: Path) -> None:
    report("@someone\n```\n# title\n\u202e\x1b[31mred\n\nlast\n")
    body = (state / "body").read_text()
    block = body[body.index("Its report:\n\n") + 13 : body.index("\n\nRepair")].splitlines()
    assert all(line.startswith("    ") for line in block)
    assert block[:3] == ["    @someone", "    ```", "    # title"]
    assert block[3].endswith("?[31mred")
    assert body.isascii()


def test_a_long_report_is_cut_below_the_limit_of_an_issue(report: Report, state: Path) -> None:
    assert report("x\n" * 100_000).returncode == 0
    body = (state / "body").read_text()
    assert len(body) < 65_536
    assert "\n    ... The log of the run has the rest.\n\nRepair" in body


def test_a_failure_of_gh_is_one_error(report: Report, state: Path) -> None:
    (state / "down").touch()
    done = report("x")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: command failed: gh issue list")
    assert done.stderr.splitlines()[-1].startswith("hint: check the connection to GitHub")
    (state / "down").unlink()
    (state / "open").write_text("not JSON")
    assert report("x").stderr.startswith("error: unexpected output of gh: not JSON\nhint: ")
