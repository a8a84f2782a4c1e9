"""The hint of an error: the cause found in the log of a failed build, else the error's own hint."""

from __future__ import annotations

from pathlib import Path

import pytest

from wheelfactory.commands.options import find_hint
from wheelfactory.core.errors import BuildError, FactoryError, ProgramError

KILLED = "c++: fatal error: Killed signal terminated program cc1plus\n"
REFUSED = "AssertionError: One of GPU archs of ['gfx9999'] is invalid or not supported by Flash-Attention\n"
STARVED = "out of memory: the container had 0.2 GiB"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "cell.log"


def test_an_error_without_a_log_has_its_own() -> None:
    assert find_hint(FactoryError("no room", "here", "make some")) == "make some"
    assert find_hint(BuildError("no Python", "here", "install one")) == "install one"


def test_a_failed_build_has_the_cause_its_remedy_and_the_log(log: Path) -> None:
    log.write_text(f"one\n{REFUSED}two\n")
    hint = find_hint(ProgramError("build failed", "build_rocm.sh", "", log=log))
    assert hint.startswith(f"arch refused ({REFUSED.strip()}): ")
    assert hint.endswith(f"; the full log is {log}")


def test_a_log_that_tells_no_cause_is_named_alone(log: Path) -> None:
    log.write_text("nothing\n")
    assert find_hint(ProgramError("build failed", "build_rocm.sh", "", log=log)) == f"the full log is {log}"


@pytest.mark.parametrize("text", ["nothing\n", KILLED], ids=["no cause", "want of memory"])
def test_want_of_memory_is_told_by_the_error_that_knows_how_much_there_was(text: str, log: Path) -> None:
    log.write_text(text)
    error = BuildError("build failed", "build_rocm.sh", STARVED, log=log)
    assert find_hint(error) == f"{STARVED}; the full log is {log}"


def test_another_cause_comes_before_it(log: Path) -> None:
    log.write_text(REFUSED)
    error = BuildError("build failed", "build_rocm.sh", STARVED, log=log)
    assert find_hint(error).startswith("arch refused (")


def test_a_log_that_somebody_removed_leaves_the_error_its_own(log: Path) -> None:
    assert find_hint(BuildError("build failed", "build_rocm.sh", STARVED, log=log)) == STARVED
