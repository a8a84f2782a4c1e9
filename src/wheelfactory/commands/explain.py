"""`wheelfactory explain`."""

from __future__ import annotations

import argparse
import errno
import json
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from wheelfactory.commands.options import add_option, add_shared, print_rendered, print_results, require_cell
from wheelfactory.core.cell import Backend, Cell, name_flash_attn
from wheelfactory.core.errors import DONE, InputError
from wheelfactory.core.host import read_host
from wheelfactory.core.label import Label, index_path
from wheelfactory.core.terminal import is_interactive, stdout_console, styled_lines
from wheelfactory.explain.build_log import read_build_log
from wheelfactory.explain.explanation import Explanation, explain_log, find_wheel_line
from wheelfactory.explain.explanation_text import as_json, explanation_lines
from wheelfactory.explain.log_lines import read_log_lines
from wheelfactory.matrix.expand import expand
from wheelfactory.matrix.facts import Matrix
from wheelfactory.matrix.load import load_matrix

STDIN = "-"
# maximum characters of an unknown argument that its error repeats
_MAX_SHOWN = 200
# characters of a line of a cell's description
_CELL_WIDTH = 80


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.epilog = "example: wheelfactory explain build.log"
    parser.add_argument("subject", metavar="CELL|LOG", help="cell id, build log file, or - for a log on stdin")
    form = parser.add_mutually_exclusive_group()
    add_option(form, "--flags", "explain each flag of the compile command, too")
    add_option(form, "--json", "print one JSON object")
    add_option(parser, "--jobs N", "parallel compiles (default: read from the log)")
    add_shared(parser, "--matrix FILE")


def execute(options: argparse.Namespace) -> int:
    """Explain a log or describe a cell. Raises `InputError` with the reason for a cell that the matrix excludes."""
    if options.subject == STDIN or _is_log(options.subject):
        explanation = _explained(options)
        if options.json:
            print_results(*json.dumps(as_json(explanation), indent=2).split("\n"))
        else:
            console = stdout_console()
            width = console.width if is_interactive(console) else None
            print_rendered(*styled_lines(explanation_lines(explanation, width, flags=options.flags), console))
    else:
        try:
            Cell.parse(options.subject)
        except InputError as error:
            hint = f"no file has this name; {error.hint}; to explain pasted text, pipe it to `wheelfactory explain -`"
            raise InputError("neither a log nor a cell id", options.subject[:_MAX_SHOWN], hint) from None
        facts = load_matrix(options.matrix)
        expansion = expand(facts)
        cell = require_cell(expansion, options.subject)
        document = _cell_document(facts, cell, sorted(expansion.pythons[cell], key=lambda text: int(text[2:])))
        as_lines = json.dumps(document, indent=2).split("\n")
        print_results(*(as_lines if options.json else _cell_lines(cell, document)))
    return DONE


def _explained(options: argparse.Namespace) -> Explanation:
    from_stdin = options.subject == STDIN
    if from_stdin and sys.stdin is None:  # the parent process closed it
        raise InputError("cannot read the log", "stdin is closed", "name the file of the log")
    name = "stdin" if from_stdin else options.subject
    with nullcontext(sys.stdin.buffer) if from_stdin else Path(name).open("rb") as stream:
        build_log = read_build_log(read_log_lines(stream, name), name)
    wheel = find_wheel_line(build_log, load_matrix(options.matrix))
    return explain_log(name, build_log, options.jobs, read_host(options.environ).cores, wheel)


def _is_log(text: str) -> bool:
    """Whether a file of this name exists. Raises `InputError` for a folder, `OSError` if it is not accessible."""
    path = Path(text)
    try:
        exists = path.exists()
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:  # a pasted command
            raise
        return False
    if exists and path.is_dir():
        raise InputError("not a log", f"{text} is a folder", "name a log file in it")
    return exists


def _cell_lines(cell: Cell, facts: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a `_cell_document`."""
    torch, triton, image = facts["torch"], facts["triton"], facts["image"]
    yield cell.id
    if cell.commit:
        yield f"  version  {name_flash_attn(cell.flash_attn)}, in {index_path(Label.from_cell(cell).index_key)}"
    yield f"  label    {facts['label']}"
    yield f"  pythons  {', '.join(facts['pythons'])}"
    yield from _wrap("  archs    ", facts["archs"])
    yield from _wrap("           of these, not proved: ", facts["unproved"])
    built = ", AMD's own build in the image (" if cell.amd_torch else f" ({torch['platform']}, "
    yield f"  torch    {cell.torch}{built}C++11 ABI {int(torch['cxx11_abi'])})"
    if triton:
        yield f"  index    {facts['index']}"
        yield f"  triton   {triton['version']} ({triton['package']})"
    yield f"  image    {image['tag']}"
    yield f"           {image['distribution']}, glibc {image['glibc']}"


def _wrap(field: str, names: Iterable[str]) -> list[str]:
    return textwrap.wrap(", ".join(names), _CELL_WIDTH, initial_indent=field, subsequent_indent=" " * 11)


def _cell_document(facts: Matrix, cell: Cell, pythons: Sequence[str]) -> dict[str, Any]:
    image, torch = facts.image(cell), facts.torch[cell.torch]
    ck = facts.flash_attn[cell.flash_attn].ck if cell.backend is Backend.CK else None
    return {
        "cell": cell.id,
        "label": str(Label.from_cell(cell)),
        "pythons": list(pythons),
        "archs": list(facts.archs(cell)),
        "unproved": [arch for arch in facts.archs(cell) if ck and arch in ck.may_work],
        "torch": {
            "version": cell.torch,
            "platform": None if cell.amd_torch else torch.platform,
            "cxx11_abi": facts.cxx11_abi(cell),
        },
        "index": None if cell.amd_torch else facts.rocm[cell.rocm].index,
        "triton": None if cell.amd_torch else {"version": torch.triton, "package": torch.triton_package},
        "image": {"tag": image.tag, "distribution": image.distribution, "glibc": image.glibc},
    }
