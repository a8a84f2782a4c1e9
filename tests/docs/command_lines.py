"""The commands of the factory in a text for readers, held to the real parser."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from wheelfactory import cli
from wheelfactory.core.errors import FactoryError
from wheelfactory.core.files import ROOT

PLACEHOLDER = re.compile(r"[A-Z][A-Z0-9_./:-]*(?:\.\.\.)?")
"""What a reader replaces, such as ``SET``, ``I/N`` or ``OWNER/REPO``."""

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_OPERATOR = re.compile(r"[();<>|&]+")
_WRAPPERS = ("sudo", "time", "exec", "!")
_STARTS = {
    ("./factory",): (),
    ("wheelfactory",): (),
    ("./build_rocm.sh",): ("build",),
    ("python", "create_matrix.py"): ("matrix",),
    ("python3", "create_matrix.py"): ("matrix",),
}
"""The ways to start the factory, with the arguments that each brings."""
_OF_THE_SCRIPT = tuple(re.findall(r"\$\{1:-\} == (\w+)", (ROOT / "factory").read_text()))
"""What the script ``factory`` does itself."""


def factory_commands(text: str) -> Iterator[tuple[str, ...]]:
    """The arguments of each command of the factory in a shell text."""
    for words in _commands(text):
        for start, brought in _STARTS.items():
            if words[: len(start)] == start:
                yield (*brought, *words[len(start) :])


def why_wrong(arguments: Sequence[str]) -> str:
    """What the parser says against the arguments; empty if nothing."""
    if not arguments or arguments[0] in _OF_THE_SCRIPT or PLACEHOLDER.fullmatch(arguments[0]):
        return ""
    parser = cli._parser(arguments)  # main() would run the command
    if arguments[0] in cli.COMMANDS:
        _let_placeholders_pass(named_parser(parser, arguments))
    try:
        parser.parse_args([text for text in arguments if text != "--help"])
    except FactoryError as error:
        return "" if "--help" in arguments else str(error)
    except SystemExit:  # --version
        return ""
    known = named_parser(parser, arguments)._option_string_actions
    short = [text for text in arguments if text.startswith("--") and text.partition("=")[0] not in known]
    return f"shortened: {' '.join(short)}" if short else ""


def named_parser(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of the command that the arguments begin with, or of the command that it has itself (``bench trend``).

    argparse has no public view of them.
    """
    for name in arguments:
        below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
        if not below or name not in below[0].choices:
            break
        parser = below[0].choices[name]
    return parser


def _let_placeholders_pass(parser: argparse.ArgumentParser) -> None:
    for action in parser._actions:
        if action.type is not None:
            action.type = _or_placeholder(action.type)


def _or_placeholder(convert: Any) -> Callable[[str], Any]:
    def converted(text: str) -> Any:
        return text if PLACEHOLDER.fullmatch(text) else convert(text)

    return converted


def _commands(text: str) -> Iterator[tuple[str, ...]]:
    """Every simple command, without assignments before it and redirections after it."""
    for line in _logical_lines(text):
        words: list[str] = []
        redirected = False
        for token in _tokens(line):
            if not _OPERATOR.fullmatch(token):
                if not redirected and (words or not (_ASSIGNMENT.fullmatch(token) or token in _WRAPPERS)):
                    words.append(token)
                continue
            if token[0] in "<>":
                redirected = True
                if words and words[-1] == "2":
                    words.pop()
                continue
            yield tuple(words)
            words, redirected = [], False
        yield tuple(words)


def _tokens(line: str) -> list[str]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    return list(lexer)


def _logical_lines(text: str) -> Iterator[str]:
    """Lines of shell: one that ends in a backslash or within quotes goes on."""
    pending = ""
    for line in text.replace("\\\n", " ").splitlines():
        pending += line
        try:
            _tokens(pending)
        except ValueError:  # within quotes
            pending += "\n"
            continue
        yield pending
        pending = ""
