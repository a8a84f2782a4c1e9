"""The text of matrix.yaml + what it is to say -> the same text with those characters changed, written or refused.

For chores that change single values: every other line and comment stays as a person wrote it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import yaml

from wheelfactory.core.errors import FactoryError, InputError
from wheelfactory.core.files import atomic_path
from wheelfactory.matrix.document import KeyPath
from wheelfactory.matrix.facts import Matrix
from wheelfactory.matrix.load import load_matrix


@dataclass(frozen=True, order=True)
class Edit:
    """Characters `start` to `end` of the text become `text`."""

    start: int
    end: int
    text: str


def compose_yaml(text: str) -> yaml.Node:
    """The nodes of a YAML text that is no empty one; their marks count its characters."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)  # the one in C does not count a byte order mark
    assert root is not None
    return root


def find_node(node: yaml.Node, place: KeyPath) -> yaml.Node:
    """The node at a place that the file has."""
    for part in place:
        if isinstance(part, int):
            node = node.value[part]
        else:
            node = next(value for key, value in node.value if key.value == part)
    return node


def insert_line_below(text: str, index: int, line: str) -> Edit:
    """A line below the one that a character is in, ended as that one is."""
    end = text.find("\n", index)
    if end < 0:
        return Edit(len(text), len(text), f"\n{line}")
    start = end + 1
    return Edit(start, start, line + line_ending(text, index))


def line_ending(text: str, index: int) -> str:
    """How the line that a character is in ends: ``\\n`` or ``\\r\\n``."""
    end = text.find("\n", index)
    return "\r\n" if text[end - 1 : end] == "\r" else "\n"


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """The text with edits of different places made; one that is given twice is made once.

    Whether the result is what was meant is for `rewrite` to check: an anchor can make one text stand for two places.
    """
    for edit in sorted(set(edits), reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text


def write_matrix(path: Path, before: bytes, text: str, meant: Matrix, *, part: str) -> None:
    """Put an edited text in the place of a matrix file that still has the content `before`, or leave the file alone.

    Raises `FactoryError` if the text does not read back as exactly the matrix that was meant (`part` says what of it
    was edited), if the file was changed by someone else meanwhile, or if it cannot be written.
    """
    try:
        with atomic_path(path) as written:
            written.write_bytes(text.encode())
            try:
                as_meant = load_matrix(written) == meant
            except InputError:
                as_meant = False
            if not as_meant:
                hint = "it uses anchors or a form of YAML that cannot be edited in place; nothing was changed"
                raise FactoryError(f"cannot edit {part} of", str(path), hint)
            if path.read_bytes() != before:
                raise FactoryError("changed by someone else meanwhile", str(path), "run this again")
    except OSError as error:
        raise FactoryError("cannot write", f"{path} ({error.strerror})", "nothing was changed") from None
