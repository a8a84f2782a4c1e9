"""What the maintainers' scripts that edit matrix.yaml have in common: how they end and what they print."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from wheelfactory.commands.options import show, tell
from wheelfactory.core.errors import DONE, FAILED, FactoryError


class Findings(Protocol):
    """What came of a chore."""

    @property
    def lines(self) -> Iterable[str]:
        """What changed, and what only a person can do."""

    @property
    def summary(self) -> str:
        """All of it in one line."""


def run_chore(refresh: Callable[[], Findings]) -> int:
    """Refresh and print what came of it; gives the exit code. All or nothing, so an interruption changes nothing."""
    import truststore  # many networks have an authority of their own

    truststore.inject_into_ssl()
    try:
        findings = refresh()
    except FactoryError as error:
        tell(f"error: {error}\nhint: {error.hint}")
        return error.exit_code
    except KeyboardInterrupt:
        tell("error: interrupted: by Ctrl-C\nhint: nothing was changed")
        return FAILED
    show(*findings.lines)
    tell(findings.summary)
    return DONE
