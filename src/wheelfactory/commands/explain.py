"""`wheelfactory explain`."""

from __future__ import annotations

import argparse

from wheelfactory.commands.options import Environ, add_matrix, require_cell, show
from wheelfactory.errors import DONE
from wheelfactory.matrix import expand, load_matrix


def add(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("cell", help="a cell id")
    add_matrix(parser)


def execute(options: argparse.Namespace, _environ: Environ) -> int:
    """Print what a cell is, or refuse it with the reasons."""
    facts = load_matrix(options.matrix)
    expansion = expand(facts)
    cell = require_cell(expansion, options.cell)
    image, torch = facts.image(cell), facts.torch[cell.torch]
    show(cell.id)
    show(f"  label    {facts.label(cell)}")
    show(f"  pythons  {', '.join(sorted(expansion.pythons[cell], key=lambda text: int(text[2:])))}")
    show(f"  archs    {', '.join(facts.archs(cell))}")
    show(f"  torch    {cell.torch} ({torch.platform}, C++11 ABI {int(torch.cxx11_abi)})")
    show(f"  index    {facts.rocm[cell.rocm].index}")
    show(f"  triton   {torch.triton} ({torch.triton_package})")
    show(f"  image    {image.tag} ({image.distribution}, glibc {image.glibc})")
    return DONE
