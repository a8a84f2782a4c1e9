"""An error -> the hint to show with it: for a failed build, the cause that its log tells and the remedy."""

from __future__ import annotations

from wheelfactory.core.errors import BuildError, FactoryError

OUT_OF_MEMORY = "out of memory"
"""The cause that an error without a log knows more of: it names how much memory there was."""


def find_hint(error: FactoryError) -> str:
    """What to do about an error; reads the log of one that has a log."""
    if not isinstance(error, BuildError) or error.log is None:
        return error.hint
    from wheelfactory.explain.causes import find_cause  # every command imports this, and few look up a cause

    try:
        with error.log.open(encoding="utf-8", errors="replace") as file:
            cause = find_cause(file)
    except OSError:  # it was removed meanwhile; the error stands without it
        return error.hint
    known = f"{cause.name} ({cause.evidence}): {cause.remedy}" if cause else ""
    if error.hint and (cause is None or cause.name == OUT_OF_MEMORY):
        known = error.hint
    return "; ".join(filter(None, (known, f"the full log is {error.log}")))
