"""Find the hint for an error: for a failed build, the cause in its log and the remedy."""

from __future__ import annotations

from wheelfactory.core.errors import BuildError, FactoryError

# for this cause the error's own hint is better, because it names the available memory
OUT_OF_MEMORY = "out of memory"


def find_hint(error: FactoryError) -> str:
    """Return the hint for an error; reads the build log if the error has one."""
    if not isinstance(error, BuildError) or error.log is None:
        return error.hint
    from wheelfactory.explain.causes import find_cause  # imported late: every command imports this module

    try:
        with error.log.open(encoding="utf-8", errors="replace") as file:
            cause = find_cause(file)
    except OSError:  # the log was removed; the error is still valid
        return error.hint
    known = f"{cause.name} ({cause.evidence}): {cause.remedy}" if cause else ""
    if error.hint and (cause is None or cause.name == OUT_OF_MEMORY):
        known = error.hint
    return "; ".join(filter(None, (known, f"the full log is {error.log}")))
