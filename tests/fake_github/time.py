"""A clock that only runs while somebody sleeps."""

from __future__ import annotations


class Clock:
    """Seconds since 1970, and the pauses that were kept."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0
        self.pauses: list[float] = []

    def __call__(self) -> float:
        """The time."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let time pass at once."""
        self.pauses.append(seconds)
        self.now += seconds
