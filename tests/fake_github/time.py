"""A clock that advances only during sleep."""

from __future__ import annotations


class Clock:
    """Seconds since 1970, and the recorded pauses."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0
        self.pauses: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        """Advance the time without waiting."""
        self.pauses.append(seconds)
        self.now += seconds
