"""Parse the file of a step's outputs, GITHUB_OUTPUT."""

from __future__ import annotations


class CommandFileError(Exception):
    """A line that GitHub rejects."""


def read_pairs(text: str, file: str) -> dict[str, str]:
    """Parse ``name=value`` lines. Raises `CommandFileError` for any other line, also for a value of several lines."""
    found: dict[str, str] = {}
    for line in filter(None, text.splitlines()):
        name, equals, value = line.partition("=")
        if not (name and equals) or "<<" in name:
            raise CommandFileError(f"Invalid format '{line}' in {file}")
        found[name] = value
    return found
