"""`wheelfactory repair`."""

from __future__ import annotations

import argparse
from pathlib import Path

from wheelfactory.build.setup_py import choose_archs
from wheelfactory.commands.options import (
    add_dest,
    add_option,
    add_shared,
    as_directory,
    print_results,
    require_cell,
)
from wheelfactory.core.errors import DONE, InputError
from wheelfactory.core.label import Label
from wheelfactory.core.models import parse_model
from wheelfactory.matrix.expand import expand
from wheelfactory.matrix.load import load_matrix
from wheelfactory.pipeline.build import finish_raw_wheel
from wheelfactory.wheel.read import BuildRecord, Toolchain


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.epilog = "example: wheelfactory repair raw/flash_attn-2.8.3-*.whl --cell CELL"
    parser.add_argument("wheel", type=Path, metavar="WHEEL", help="raw wheel written by setup.py")
    add_option(parser, "--cell ID", "cell id that the wheel was built for", required=True)
    what = "archs that it was built for, such as 'gfx90a;gfx942' (default: all archs of the cell)"
    add_option(parser, "--archs LIST", what, "")
    add_dest(parser, "dist", "write the finished wheel to this directory")
    add_shared(parser, "--matrix FILE")


def execute(options: argparse.Namespace) -> int:
    """Finish a raw wheel and print the path of the result."""
    facts = load_matrix(options.matrix)
    cell = require_cell(expand(facts), options.cell)
    release = facts.flash_attn[cell.flash_attn]
    toolchain_path = options.wheel.parent / "toolchain.json"
    error = InputError("damaged toolchain file", str(toolchain_path), "build the wheel again")
    # `build` writes it next to a compiled wheel; a Triton wheel has no toolchain
    has_toolchain = toolchain_path.is_file()
    record = BuildRecord(
        cell=cell.id,
        label=str(Label.from_cell(cell)),
        source=release.source_pin,
        build=facts.build_tag(cell),
        offload_archs=choose_archs(facts, cell, options.archs, ()),
        toolchain=parse_model(Toolchain, toolchain_path.read_bytes(), error) if has_toolchain else Toolchain(),
    )
    print_results(str(finish_raw_wheel(options.wheel, record, as_directory(options.dest), options.environ)))
    return DONE
