"""The ways to fail that a user can do something about; `cli` turns each into one line, a hint and an exit code."""

from __future__ import annotations

from pathlib import Path

DONE = 0
FAILED = 1
BAD_INPUT = 2
VERIFICATION_REFUSED = 3
BUILD_FAILED = 4
NOTHING_TO_DO = 5
RUN_AGAIN = 6


class FactoryError(Exception):
    """Something that went wrong, with the thing it went wrong for and the next step to take.

    `what` names the kind of trouble, `which` the file, cell or option, `hint` the next thing to do.
    """

    exit_code = FAILED

    def __init__(self, what: str, which: str, hint: str) -> None:
        super().__init__(f"{what}: {which}")
        self.what = what
        self.which = which
        self.hint = hint


class InputError(FactoryError):
    """A matrix, a selection or an argument that cannot be used."""

    exit_code = BAD_INPUT


class SourceError(FactoryError):
    """The sources of a release could not be had, or are not what the matrix promises."""

    exit_code = BUILD_FAILED


class BuildError(FactoryError):
    """A cell that cannot be built here, or whose build failed.

    `log` is where the whole output is, if somebody who shows the error is to look there for the cause (`explain`);
    `hint` is then what helps if the log tells no other one; empty if only the log can tell.
    """

    exit_code = BUILD_FAILED

    def __init__(self, what: str, which: str, hint: str, *, log: Path | None = None) -> None:
        super().__init__(what, which, hint)
        self.log = log


class ProgramError(BuildError):
    """A program that ran to its end and says that it failed; not one that was killed or could not be started."""


class RunAgainError(FactoryError):
    """The time that was given is up; what was done is kept, and the same command goes on from there."""

    exit_code = RUN_AGAIN


class VerificationError(FactoryError):
    """A wheel that is not what it says it is."""

    exit_code = VERIFICATION_REFUSED


class PublishError(FactoryError):
    """A release that could not be changed without breaking what is published."""
