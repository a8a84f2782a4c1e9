"""The faults of one request, and what the server does for each."""

from __future__ import annotations

from dataclasses import dataclass

LAG_S = 5.0


@dataclass(frozen=True)
class Fault:
    """One fault; `name` is its name in test ids."""

    name: str
    done: bool = False
    """Whether GitHub carries out the request before it fails."""
    uploads_only: bool = False
    changes_only: bool = False
    """Whether it applies only to requests that change something."""
    kills: bool = False
    """Whether SIGKILL ends the publishing process."""
    lags: bool = False
    """Whether lists show this change and later ones only `LAG_S` seconds later."""

    def hits(self, call: str) -> bool:
        """Whether it applies to a request, given as method, path and asset name."""
        return (not self.uploads_only or "/assets " in call) and not (self.changes_only and call.startswith("GET"))


CUT_BEFORE = Fault("connection cut before GitHub did anything")
CUT_DURING = Fault("connection cut in the middle of an upload", uploads_only=True)
CUT_AFTER = Fault("connection cut after GitHub did it", done=True)
CUT_ANSWER = Fault("answer cut in the middle", done=True)
ERROR_BEFORE = Fault("500, nothing done")
ERROR_AFTER = Fault("500, but it was done", done=True, changes_only=True)
STARTER = Fault("502 that leaves an empty asset (`starter`)", uploads_only=True)
SECONDARY = Fault("403 secondary rate limit with Retry-After")
PRIMARY = Fault("429 with nothing left until x-ratelimit-reset")
DAMAGED = Fault("other bytes stored than were sent (wrong digest)", uploads_only=True)
DUPLICATE = Fault("422, an asset of that name is there already", uploads_only=True)
LAG = Fault("lists that show a change only seconds later", done=True, changes_only=True, lags=True)
CUT_AND_LAG = Fault(
    "connection cut after GitHub did it, and lists show it only seconds later", done=True, changes_only=True, lags=True
)
KILL_AFTER = Fault("`kill -9` of the publishing process after GitHub did it", done=True, kills=True)
"""Before GitHub did it is the same state as after the request before."""

FAULTS = (
    CUT_BEFORE,
    CUT_DURING,
    CUT_AFTER,
    CUT_ANSWER,
    ERROR_BEFORE,
    ERROR_AFTER,
    STARTER,
    SECONDARY,
    PRIMARY,
    DAMAGED,
    DUPLICATE,
    LAG,
    CUT_AND_LAG,
    KILL_AFTER,
)
"""Every fault. Tests inject each at every request that it applies to."""
