"""Edit matrix.yaml: run what does, change single values and no other character, and print what was found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import yaml

from wheelfactory.commands.options import print_messages, print_results
from wheelfactory.core.errors import DONE, FAILED, FactoryError, InputError
from wheelfactory.core.files import atomic_path
from wheelfactory.matrix.document import KeyPath
from wheelfactory.matrix.facts import Matrix
from wheelfactory.matrix.load import load_matrix


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


@dataclass(frozen=True, order=True)
class Edit:
    """Replace the characters from `start` to `end` by `text`."""

    start: int
    end: int
    text: str


def compose_yaml(text: str) -> yaml.Node:
    """Parse a YAML text that is not empty; the marks of its nodes count characters."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)  # libyaml does not count a byte order mark
    assert root is not None
    return root


def find_node(node: yaml.Node, key_path: KeyPath) -> yaml.Node:
    """Find a node that is in the document."""
    for part in key_path:
        if isinstance(part, int):
            node = node.value[part]
        else:
            node = next(value for key, value in node.value if key.value == part)
    return node


def insert_line_below(text: str, index: int, line: str) -> Edit:
    """Insert a line below the line of the character at `index`, with the same line ending."""
    end = text.find("\n", index)
    if end < 0:
        return Edit(len(text), len(text), f"\n{line}")
    start = end + 1
    return Edit(start, start, line + line_ending(text, index))


def line_ending(text: str, index: int) -> str:
    """The line ending, ``\\n`` or ``\\r\\n``, of the line of the character at `index`."""
    end = text.find("\n", index)
    return "\r\n" if text[end - 1 : end] == "\r" else "\n"


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """Apply edits that do not overlap; duplicates, which aliases of one anchor make, count once."""
    for edit in sorted(set(edits), reverse=True):  # from the end, so that earlier positions stay valid
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text


def write_matrix(path: Path, before: bytes, text: str, expected: Matrix, *, part: str) -> None:
    """Replace a matrix file, whose content was `before`, by an edited text that loads as `expected`.

    `part` names the edited part in errors. Raises `FactoryError`, and leaves the file unchanged, if the text loads as
    another matrix, if the content is no longer `before`, or if the file cannot be written.
    """
    try:
        with atomic_path(path) as written:
            written.write_bytes(text.encode())
            # an anchor can make one text stand for two entries, which an edit then changes both
            try:
                is_expected = load_matrix(written) == expected
            except InputError:
                is_expected = False
            if not is_expected:
                hint = (
                    "edit it yourself: its anchors or YAML style cannot be edited by this script; nothing was changed"
                )
                raise FactoryError(f"cannot edit {part} of", str(path), hint)
            if path.read_bytes() != before:
                raise FactoryError("another program changed the file in the meantime", str(path), "run this again")
    except OSError as error:
        raise FactoryError("cannot write", f"{path} ({error.strerror})", "nothing was changed") from None
