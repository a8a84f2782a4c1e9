"""The sandbox limits what a step reaches, and records its attempts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from workflows.conftest import RunText
from workflows.sandbox import STAND_INS

STEP = "  one: {{runs-on: u, steps: [{{run: {!r}}}]}}\n"


def test_a_program_that_would_leave_the_sandbox_is_only_recorded_and_an_unlisted_one_not_found(
    run_text: RunText,
) -> None:
    run = run_text(STEP.format(" && ".join(f"{program} install 'two words'" for program in STAND_INS)))
    assert run.result == "success"
    for program in STAND_INS:
        (call,) = run.calls(program)
        assert (call.argv, call.job) == ((program, "install", "two words"), "one")
    run = run_text(STEP.format("perl -v"))
    assert run.result == "failure"
    assert "perl: command not found" in run.job("one").output


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can take the network away")
def test_only_the_loopback_network_exists(run_text: RunText) -> None:
    run = run_text("""
  one:
    runs-on: u
    steps:
      - run: |
          grep -c : /proc/net/dev
          python3 -c 'import socket as s; a = s.create_server(("127.0.0.1", 0)); s.create_connection(a.getsockname())'
""")
    assert run.result == "success"
    assert run.job("one").output == "1\n"


def test_home_temporary_folder_and_environment_belong_to_one_job(
    run_text: RunText, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEAK", "leaked")
    run = run_text(
        STEP.format(
            'echo "[$LEAK] $GIVEN"; touch ~/a "$TMPDIR/b" c; find ~ . -type f; test "$PWD" = "$GITHUB_WORKSPACE"'
        )
        + "  two: {needs: one, runs-on: u, steps: [{run: 'test ! -e ~/a && test ! -e c'}]}\n",
        settings={"environ": {"GIVEN": "given"}},
    )
    assert run.result == "success", run.output()
    assert run.job("one").output.startswith("[] given\n")
    assert str(Path.home()) not in run.job("one").output


def test_a_checkout_copies_files_that_git_does_not_ignore(run_text: RunText, tree: Path) -> None:
    (tree / ".gitignore").write_text("ignored\n")
    (tree / "ignored").write_text("")
    (tree / "kept").write_text("as it was")
    checkout = "{uses: actions/checkout@0000000000000000000000000000000000000000}"
    run = run_text(f"  one: {{runs-on: u, steps: [{checkout}, {{run: 'ls; echo other > kept'}}]}}\n")
    assert run.job("one").output == "kept\n"
    assert (tree / "kept").read_text() == "as it was"
