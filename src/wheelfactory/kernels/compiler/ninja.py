"""Stands on PATH as ``ninja`` while setup.py runs: ``python -ISB ninja.py ARGUMENTS...``

torch calls ninja to compile everything that its build.ninja names. This compiles what is missing instead, and then
torch links. A shard ends before the link. Any other call goes to the real ninja.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

# last, as what is installed beside the package must stand in front of nothing
sys.path.append(str(Path(__file__).resolve().parents[3]))

from wheelfactory.core.errors import BuildError
from wheelfactory.kernels.compiler.compile_set import compile_set
from wheelfactory.kernels.compiler.edges import inspect_compiles, read_edges
from wheelfactory.kernels.compiler.limits import require_planned_sources
from wheelfactory.kernels.compiler.request import READY_TO_LINK, SHARD_DONE, CompileRequest

NOT_LINKED = 64
"""Exit status that ends setup.py before the link: only a shard was asked for, or something is refused."""


def main(arguments: list[str]) -> int:
    """Do what torch wants of ninja; the exit status."""
    order = CompileRequest.read(os.environ)
    if "--version" in arguments or not Path("build.ninja").exists():
        os.execv(order.ninja, [order.ninja, *arguments])
    try:
        found = inspect_compiles(read_edges(order.ninja, Path.cwd()), os.environ)
        if found is None:
            os.execv(order.ninja, [order.ninja, *arguments])
        require_planned_sources(found.kernels, order.planned_sources)
        report = compile_set(order, found, os.environ)
    except (BuildError, OSError) as error:
        what, hint = "cannot compile kernels", "mend that, and run it again"
        refusal = error if isinstance(error, BuildError) else BuildError(what, str(error), hint)
        print(f"error: {refusal}", file=sys.stderr)
        order.write_answer({"what": refusal.what, "which": refusal.which, "hint": refusal.hint})
        return NOT_LINKED
    report.write(order)
    return {READY_TO_LINK: 0, SHARD_DONE: NOT_LINKED}.get(report.state, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
