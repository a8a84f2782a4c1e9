"""Build a wheel again from the same sources and kernels, and compare all bytes.

The other gates compare device code and Python files with their sources. Host code has no source to be compared with but
a build on another machine: the bindings are compiled anew, and everything is linked again.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from wheelfactory.build.executor import Executor
from wheelfactory.core.cell import Cell
from wheelfactory.core.digest import file_sha256
from wheelfactory.core.files import scratch_dir
from wheelfactory.core.progress import ProgressCallback
from wheelfactory.core.wrap import shorten_names
from wheelfactory.kernels.setup_env import CompileScope
from wheelfactory.matrix.facts import Context
from wheelfactory.pipeline.build import build_cell
from wheelfactory.verify.result import Finding, GateResult
from wheelfactory.wheel.read import Wheel

_GATE = "rebuild"


def check_rebuild(
    path: Path,
    cell: Cell,
    executor: Executor,
    report_progress: ProgressCallback,
    *,
    context: Context,
    scope: CompileScope,
) -> GateResult:
    """Build the cell of a wheel again, with the kernels of `scope`, and compare. Raises the errors of `build_cell`."""
    with scratch_dir(context.cache) as folder:
        built = build_cell(executor, cell, folder, report_progress, context=context, scope=scope)
        if (built.name, file_sha256(built)) == (path.name, file_sha256(path)):
            return GateResult.from_findings(_GATE, [], "all bytes are equal")
        changed = sorted({name for name, _ in _members(path) ^ _members(built)})
    names = changed if built.name == path.name else [f"its name: {built.name}"]
    finding = Finding(
        file=path.name,
        expected="the bytes of a build on this machine, of the same sources and kernels",
        found=f"it differs in {shorten_names(names)}" if names else "the same files in another archive",
        remedy="do not install it before it is clear which of the two machines changed what",
    )
    return GateResult.from_findings(_GATE, [finding])


def _members(path: Path) -> set[tuple[str, str]]:
    """The name and sha256 of each member. Raises `InputError` for a damaged wheel."""
    wheel = Wheel.open(path)
    return {(name, hashlib.sha256(wheel.read(name)).hexdigest()) for name in wheel.sizes}
