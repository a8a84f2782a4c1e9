"""No page shows a command that the factory does not take, and every block of commands is executed or says why not."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator

import pytest
import yaml

from docs.command_lines import factory_commands, why_wrong
from docs.pages import COMMANDS, DATA, REASONS, Page, pages
from wheelfactory.cli import SUBCOMMANDS
from wheelfactory.core.files import ROOT

EXECUTED_BY = re.compile(r"executed by (tests/[\w/]+\.py)::(test_\w+)")


def shown(page: Page) -> Iterator[str]:
    """Every text of a page that may be a command; a sentence may name one without its arguments."""
    yield from (span for span in page.spans if not is_name(span))
    for block in page.blocks:
        if block.language == "console":
            yield "\n".join(commands_of_console(block.text))
        elif block.language not in (*DATA, "python", "json"):
            yield block.text


def is_name(span: str) -> bool:
    """Whether a span is too short for a command with arguments: ``wheelfactory plan``, ``wheelfactory ci jobs``."""
    words = span.split()
    return len(words) <= 2 or (len(words) == 3 and words[2] in {*SUBCOMMANDS.get(words[1], ()), "..."})


def commands_of_console(text: str) -> Iterator[str]:
    for line in text.replace("\\\n", " ").splitlines():
        if line.startswith("$ "):
            yield line.removeprefix("$ ")


def why_no_reason(reasons: str) -> str:
    """What is wrong with the reasons of a block that is not executed; empty if nothing is."""
    for reason in reasons.split(", "):
        named = EXECUTED_BY.fullmatch(reason)
        if named:
            path = ROOT / named[1]
            tree = ast.parse(path.read_text()) if path.is_file() else ast.Module([], [])
            if named[2] not in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}:
                return f"no test {named[1]}::{named[2]}"
        elif reason not in REASONS:
            return f"not one of the reasons: {reason}"
    return ""


def test_the_parser_accepts_every_command_of_every_page() -> None:
    commands = {
        (page.path, arguments) for page in pages() for text in shown(page) for arguments in factory_commands(text)
    }
    assert {command: why for command in commands if (why := why_wrong(command[1]))} == {}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("./factory bild CELL", "bad arguments: argument COMMAND: invalid choice: 'bild'"),
        ("./factory run --onyl '*'", "bad arguments: unrecognized arguments: --onyl *"),
        ("cd x && wheelfactory run --extend all", "shortened: --extend"),
        ("./factory kernels SET --shard one", "bad arguments: argument --shard: "),
        (
            "A=b ./build_rocm.sh 2.8.3 --backend \\\n  cuda > x 2>&1",
            "bad arguments: argument --backend: invalid choice",
        ),
        ("./factory kernels SET --shard I/N > log # --no", ""),
        ("./factory bench", "bad arguments: the following arguments are required: COMMAND"),
        ("./factory ci", "bad arguments: the following arguments are required: COMMAND"),
        ("./factory ci jobs TARGET --onyl '*'", "bad arguments: unrecognized arguments: --onyl *"),
        ("./factory ci collect TARGET --jobs FILE --kernels DIR", ""),
        (
            "./factory ci publish-kernels TARGET --jobs FILE --attestation",
            "bad arguments: argument --attestation: expected one argument",
        ),
        ("./factory bench training --head-dim 64", "bad arguments: unrecognized arguments: --head-dim 64"),
        ("./factory bench training --thresh 7", "shortened: --thresh"),
        ("./factory bench attention --heads N --seqlens LIST", ""),
        ("./factory test -m 'not slow'", ""),
        ("(./factory run --help; ./factory --version) | ./factory explain -", ""),
    ],
)
def test_a_wrong_command_is_told_as_the_parser_tells_it(text: str, why: str) -> None:
    found = [why_wrong(arguments) for arguments in factory_commands(text)]
    assert found
    assert max(found).startswith(why)
    assert bool(max(found)) is bool(why)


def test_every_block_that_is_not_executed_has_a_reason_of_the_list() -> None:
    marks = {block.place: block.mark("not executed") for page in pages() for block in page.blocks}
    assert {place: why for place, reason in marks.items() if reason and (why := why_no_reason(reason))} == {}


@pytest.mark.parametrize(
    ("reasons", "why"),
    [
        ("needs ROCm, takes hours", ""),
        ("needs luck", "not one of the reasons: needs luck"),
        ("executed by tests/docs/test_docs_commands.py::test_no_mark_is_misspelt", ""),
        ("executed by tests/docs/test_docs_commands.py::test_nothing", "no test "),
        ("executed by tests/docs/test_nothing.py::test_nothing", "no test "),
    ],
)
def test_a_reason_is_one_of_the_list_or_a_test_that_is_there(reasons: str, why: str) -> None:
    assert why_no_reason(reasons).startswith(why)
    assert bool(why_no_reason(reasons)) is bool(why)


def test_no_mark_is_misspelt() -> None:
    assert [block.place for page in pages() for block in page.blocks if block.has_unknown_mark] == []
    known = re.compile("<!-- (not executed|exit code|file|insert into) ?", re.MULTILINE)
    marks = {page.path: len(known.findall(page.text)) for page in pages()}
    assert marks == {page.path: sum(block.before.startswith("<!--") for block in page.blocks) for page in pages()}


def test_every_block_has_a_language_that_the_tests_know() -> None:
    """So that no command escapes under another name."""
    known = {*COMMANDS, *DATA, "", "text", "python", "json", "dockerfile", "markdown", "html"}
    languages = {block.place: block.language for page in pages() for block in page.blocks}
    assert {place: language for place, language in languages.items() if language not in known} == {}


def test_every_block_of_data_can_be_parsed() -> None:
    tomllib = pytest.importorskip("tomllib", reason="from Python 3.11 on")
    parsers = {"toml": tomllib.loads, "yaml": yaml.safe_load, "json": json.loads}
    blocks = [block for page in pages() for block in page.blocks if block.language in parsers]
    assert {block.language for block in blocks} >= {"toml", "yaml"}
    assert [block.place for block in blocks if not parsers[block.language](block.text)] == []
