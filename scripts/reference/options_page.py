"""docs/reference/options.md: every option of every command, as the parser has it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from wheelfactory import cli
from wheelfactory.core.checkout import ROOT

HEAD = """\
# Options

<!-- Generated from the parser by `.venv/bin/python scripts/reference`; edits here are lost. -->

What every command takes, as its `--help` says it. What it does with them is in [commands](commands.md).
"""


def options_page() -> str:
    """The page."""
    parts = [HEAD]
    for name, summary in cli.COMMANDS.items():
        parts += _sections("##", (name,), summary)
    return "\n".join(parts)


def _sections(mark: str, words: tuple[str, ...], summary: str) -> Iterator[str]:
    """The section of a command such as ``bench trend``, then the sections of its subcommands."""
    parser = _named(words)
    rows = [f"| {shown} | {what} |" for shown, what in _rows(parser)]
    table = ["| | |", "|---|---|", *rows, ""] if rows else []
    yield "\n".join([f"{mark} {' '.join(words)}", "", f"{_sentence(summary)}.", "", *table])
    for name, found in _below(parser).items():
        yield from _sections(f"{mark}#", (*words, name), (found.description or "").rstrip("."))


def _named(words: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of a command, with its options: `cli` gives them only to the command that it is asked for."""
    parser = cli._parser(words)
    for name in words:
        parser = _below(parser)[name]
    return parser


def _below(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parsers of the commands that a parser has, by name; argparse has no public view of them."""
    found = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(found[0].choices) if found else {}


def _rows(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    for action in parser._actions:
        if action.help == argparse.SUPPRESS or isinstance(action, (argparse._HelpAction, argparse._SubParsersAction)):
            continue
        yield ", ".join(_forms(action)), _meaning(action)


def _forms(action: argparse.Action) -> Iterator[str]:
    """How it is written: each name of an option with its value, or the argument."""
    value = _value(action)
    for name in action.option_strings:
        yield f"`{name} {value}`" if value else f"`{name}`"
    if not action.option_strings:
        yield f"`{value}`"


def _value(action: argparse.Action) -> str:
    if action.nargs == 0:
        return ""
    named = action.metavar or (_choices(action) if action.choices else action.dest.upper())
    text = " ".join(named) if isinstance(named, tuple) else str(named)
    return {"*": f"[{text} ...]", "+": f"{text} ...", "?": f"[{text}]"}.get(str(action.nargs), text)


def _choices(action: argparse.Action) -> str:
    return "\\|".join(map(str, action.choices or ()))


def _meaning(action: argparse.Action) -> str:
    default = action.default
    shown = default.relative_to(ROOT) if isinstance(default, Path) and default.is_relative_to(ROOT) else default
    text = (action.help or "") % {"default": shown, "prog": "wheelfactory"}
    return text.replace("|", "\\|").replace("*", "\\*").replace("<", "\\<")


def _sentence(summary: str) -> str:
    return summary[0].upper() + summary[1:]
