"""Errors that a user can act on; `cli` prints each as one error line and a hint, and sets the exit code."""

from __future__ import annotations

from pathlib import Path

DONE = 0
FAILED = 1
BAD_INPUT = 2
VERIFICATION_FAILED = 3
BUILD_FAILED = 4
NOTHING_TO_DO = 5
RUN_AGAIN = 6


class FactoryError(Exception):
    """An error for a user: `what` failed, `which` file, cell or option, and a `hint` with the next step."""

    exit_code = FAILED

    def __init__(self, what: str, which: str, hint: str) -> None:
        super().__init__(f"{what}: {which}")
        self.what = what
        self.which = which
        self.hint = hint


class InputError(FactoryError):
    """An invalid matrix, selection, file or argument."""

    exit_code = BAD_INPUT


class SourceError(FactoryError):
    """The sources of a release cannot be fetched, or differ from the pin in the matrix."""

    exit_code = BUILD_FAILED


class BuildError(FactoryError):
    """A cell cannot be built on this machine, or its build failed.

    If `log` is set, `cli` looks there for the cause (`explain`) and falls back to `hint`, which may be empty.
    """

    exit_code = BUILD_FAILED

    def __init__(self, what: str, which: str, hint: str, *, log: Path | None = None) -> None:
        super().__init__(what, which, hint)
        self.log = log


class ProgramError(BuildError):
    """A program exited with a failure status. A program that was killed or did not start raises another error."""


class RunAgainError(FactoryError):
    """The time limit is reached. Finished work is kept, and the same command continues from there."""

    exit_code = RUN_AGAIN


class VerificationError(FactoryError):
    """A wheel failed a verification gate, or a kernel archive is not attested by the workflow that makes them."""

    exit_code = VERIFICATION_FAILED


class PublishError(FactoryError):
    """A change to a release would break published files, or the host refused it."""


def as_factory_error(error: OSError) -> FactoryError:
    """Return an error of the operating system for a user."""
    which = str(error.filename or "while reading or writing")
    return FactoryError(error.strerror or type(error).__name__, which, "fix the cause, then run the same command again")
