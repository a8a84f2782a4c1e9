"""Run what edits matrix.yaml, and print what it found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from wheelfactory.commands.options import print_messages, print_results
from wheelfactory.core.errors import DONE, FAILED, FactoryError


class Findings(Protocol):
    """What one source had to say about matrix.yaml."""

    @property
    def lines(self) -> Iterator[str]:
        """Report lines for the reviewer."""

    @property
    def summary(self) -> str:
        """The counts, on one line."""


def run_chore(work: Callable[[], int]) -> int:
    """Run the work of a script and return its exit code, or that of its error, which is printed."""
    import truststore  # many networks use their own certificate authority

    truststore.inject_into_ssl()
    try:
        return work()
    except FactoryError as error:
        print_messages(f"error: {error}", f"hint: {error.hint}")
        return error.exit_code
    except KeyboardInterrupt:
        print_messages("error: interrupted: by Ctrl-C", "hint: run the same command again")
        return FAILED


def print_findings(findings: Findings) -> int:
    """Print the report lines on stdout and the counts on stderr; return the exit code of success."""
    print_results(*findings.lines)
    print_messages(findings.summary)
    return DONE
