"""Parse the files that a step writes: GITHUB_OUTPUT, GITHUB_ENV and GITHUB_PATH."""

from __future__ import annotations

from collections.abc import Iterator


class CommandFileError(Exception):
    """A line that GitHub rejects."""


def read_pairs(text: str, file: str) -> dict[str, str]:
    """Parse ``name=value`` lines and ``name<<WORD`` blocks. Raises `CommandFileError` for any other line."""
    found: dict[str, str] = {}
    lines = iter(text.splitlines())
    for line in lines:
        if not line:
            continue
        equals, here = line.find("="), line.find("<<")
        if here > 0 and (equals < 0 or here < equals):
            name, word = line[:here], line[here + 2 :]
            found[name] = _read_until(lines, word, name, file)
        elif equals > 0:
            found[line[:equals]] = line[equals + 1 :]
        else:
            raise CommandFileError(f"Invalid format '{line}' in {file}")
    return found


def _read_until(lines: Iterator[str], word: str, name: str, file: str) -> str:
    value: list[str] = []
    for line in lines:
        if line == word:
            return "\n".join(value)
        value.append(line)
    raise CommandFileError(f"Invalid value of {name} in {file}: no line is {word}")
