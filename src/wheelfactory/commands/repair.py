"""`wheelfactory repair`."""

from __future__ import annotations

import argparse
from pathlib import Path

from wheelfactory.build.recipe import choose_archs
from wheelfactory.commands.options import Environ, add_matrix, as_directory, print_results, require_cell
from wheelfactory.core.errors import DONE, InputError
from wheelfactory.core.models import parse_model
from wheelfactory.matrix.expand import expand
from wheelfactory.matrix.load import load_matrix
from wheelfactory.pipeline.build import finish_raw_wheel
from wheelfactory.wheel.build_record import BuildRecord, Toolchain


def add(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--cell", required=True, metavar="ID", help="the cell it was built for")
    parser.add_argument(
        "--archs",
        default="",
        metavar="LIST",
        help="the archs it was built for (default: all the cell allows)",
    )
    parser.add_argument("--dest", type=Path, default=Path("dist"), metavar="DIR")
    add_matrix(parser)


def execute(options: argparse.Namespace, environ: Environ) -> int:
    """Finish a raw wheel; print the path of the finished one."""
    facts = load_matrix(options.matrix)
    cell = require_cell(expand(facts), options.cell)
    release = facts.flash_attn[cell.flash_attn]
    probed = options.wheel.parent / "toolchain.json"
    refusal = InputError("damaged toolchain file", str(probed), "build the wheel again")
    record = BuildRecord(
        cell=cell.id,
        label=str(facts.label(cell)),
        source=release.source_pin,
        offload_archs=choose_archs(facts, cell, options.archs, ()),
        # what the build wrote beside the wheel; empty if it is not there, as for a wheel without compiled code
        toolchain=parse_model(Toolchain, probed.read_bytes(), refusal) if probed.is_file() else Toolchain(),
    )
    print_results(str(finish_raw_wheel(options.wheel, record, as_directory(options.dest), environ)))
    return DONE
