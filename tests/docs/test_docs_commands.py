"""No page shows a command that the factory does not take, and every block of commands is executed or says why not."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator

import pytest
import yaml

from docs.command_lines import factory_commands, why_wrong
from docs.pages import COMMANDS, DATA, REASONS, Block, Page, pages
from wheelfactory.cli import SUBCOMMANDS
from wheelfactory.core.checkout import ROOT

EVERY_PAGE = pytest.mark.parametrize("page", pages(), ids=lambda page: page.path)

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


@EVERY_PAGE
def test_every_command_of_the_factory_is_one_that_it_takes(page: Page) -> None:
    wrong = {}
    for text in shown(page):
        for arguments in factory_commands(text):
            if why := why_wrong(arguments):
                wrong[" ".join(arguments)] = why
    assert wrong == {}


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
        ("./factory bench", "bad arguments: the following arguments are required: BENCHMARK"),
        ("./factory ci", "bad arguments: the following arguments are required: COMMAND"),
        ("./factory ci jobs TARGET --onyl '*'", "bad arguments: unrecognized arguments: --onyl *"),
        ("./factory ci collect TARGET --jobs FILE --kernels DIR", ""),
        (
            "./factory ci reconcile TARGET --jobs FILE --build DIR",
            "bad arguments: the following arguments are required: --built",
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


@EVERY_PAGE
def test_every_block_that_is_not_executed_has_a_reason_of_the_list(page: Page) -> None:
    marks = {block.place: block.mark("not executed") for block in page.blocks}
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


@EVERY_PAGE
def test_no_mark_is_misspelt(page: Page) -> None:
    assert [block.place for block in page.blocks if block.has_unknown_mark] == []
    others = [
        line
        for line in page.text.splitlines()
        if re.match("<!-- (not executed|exit code|file|insert into|(lines of )?report) ?", line)
    ]
    assert len(others) == len([block for block in page.blocks if block.before.startswith("<!--")])


@EVERY_PAGE
def test_every_block_says_its_language_by_the_name_that_the_tests_know(page: Page) -> None:
    """So that no command escapes under another name."""
    known = {*COMMANDS, *DATA, "", "text", "python", "json", "dockerfile", "markdown", "html"}
    assert {block.place: block.language for block in page.blocks if block.language not in known} == {}


DATA_BLOCKS = [block for page in pages() for block in page.blocks if block.language in (*DATA, "json")]


@pytest.mark.parametrize("block", DATA_BLOCKS, ids=lambda block: block.place)
def test_every_block_of_data_can_be_read(block: Block) -> None:
    if block.language == "toml":
        assert pytest.importorskip("tomllib", reason="from Python 3.11 on").loads(block.text)
    else:
        assert yaml.safe_load(block.text) if block.language == "yaml" else json.loads(block.text)
