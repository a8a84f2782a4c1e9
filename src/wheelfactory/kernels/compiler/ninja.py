"""Stands on PATH as ``ninja`` while setup.py runs: ``python -ISB ninja.py ARGUMENTS...``

torch calls ninja to compile everything in its build.ninja. This program compiles only what the store lacks; then torch
links. A shard stops before the link. Any other call goes to the real ninja.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

# last, so that packages installed beside ours cannot shadow modules of this Python
sys.path.append(str(Path(__file__).resolve().parents[3]))

from wheelfactory.core.errors import BuildError
from wheelfactory.kernels.compiler.compile_set import compile_set
from wheelfactory.kernels.compiler.key import inspect_compiles, read_edges
from wheelfactory.kernels.compiler.limits import require_planned_sources
from wheelfactory.kernels.compiler.request import READY_TO_LINK, SHARD_DONE, SURVEYED, CompileRequest
from wheelfactory.kernels.compiler.survey import write_survey

NOT_LINKED = 64
"""Exit status that stops setup.py before the link: the shard is done, the compiles are listed, or the request is
refused."""


def main(arguments: list[str]) -> int:
    """Run as ninja, and return the exit status."""
    request = CompileRequest.read(os.environ)
    if "--version" in arguments or not Path("build.ninja").exists():
        os.execv(request.ninja, [request.ninja, *arguments])
    try:
        inputs = inspect_compiles(read_edges(request.ninja, Path.cwd()), os.environ)
        if inputs is None:
            os.execv(request.ninja, [request.ninja, *arguments])
        require_planned_sources(inputs.kernels, request.planned_sources)
        run = write_survey if request.survey else compile_set
        result = run(request, inputs, os.environ)
    except (BuildError, OSError) as error:
        what, hint = "cannot compile kernels", "fix the cause, then run the same command again"
        refusal = error if isinstance(error, BuildError) else BuildError(what, str(error), hint)
        print(f"error: {refusal}", file=sys.stderr)
        request.write_answer({"what": refusal.what, "which": refusal.which, "hint": refusal.hint})
        return NOT_LINKED
    result.write(request)
    return {READY_TO_LINK: 0, SHARD_DONE: NOT_LINKED, SURVEYED: NOT_LINKED}.get(result.state, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
