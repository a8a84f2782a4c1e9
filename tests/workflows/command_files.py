"""The files through which a step speaks: GITHUB_OUTPUT, GITHUB_ENV and GITHUB_PATH."""

from __future__ import annotations


class CommandFileError(Exception):
    """A line that GitHub does not take."""


def read_pairs(text: str, file: str) -> dict[str, str]:
    """``name=value`` lines, and ``name<<WORD`` up to a line that is WORD. Raises `CommandFileError`."""
    found: dict[str, str] = {}
    lines = iter(text.splitlines())
    for line in lines:
        if not line:
            continue
        equals, here = line.find("="), line.find("<<")
        if here > 0 and (equals < 0 or here < equals):
            name, word = line[:here], line[here + 2 :]
            found[name] = _until(lines, word, name, file)
        elif equals > 0:
            found[line[:equals]] = line[equals + 1 :]
        else:
            raise CommandFileError(f"Invalid format '{line}' in {file}")
    return found


def _until(lines: object, word: str, name: str, file: str) -> str:
    held: list[str] = []
    for line in lines:  # type: ignore[attr-defined]
        if line == word:
            return "\n".join(held)
        held.append(line)
    raise CommandFileError(f"Invalid value of {name} in {file}: no line is {word}")
