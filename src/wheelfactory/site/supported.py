"""Two Markdown tables of what the matrix supports: versions by ROCm, and GPUs. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from wheelfactory.core.cell import Backend, Cell
from wheelfactory.core.gpus import arch_sort_key
from wheelfactory.matrix.expand import Expansion
from wheelfactory.matrix.facts import Matrix
from wheelfactory.site.markdown import gpu_text, table

_NONE = "no"


def supported_tables(matrix: Matrix, expansion: Expansion) -> list[str]:
    """The torch and Python versions of every ROCm, and the ROCm versions of every GPU by backend.

    A ROCm version supports a GPU if any flash-attn release has a cell for it.
    """
    return [*_versions(matrix, expansion), "", *_gpus(matrix, expansion.cells)]


def _versions(matrix: Matrix, expansion: Expansion) -> list[str]:
    rows = []
    for rocm in matrix.rocm:
        cells = [cell for cell in expansion.cells if cell.rocm == rocm]
        pythons = {python for cell in cells for python in expansion.pythons[cell]}
        torches = (_torch(torch, cells) for torch in matrix.torch)
        rows.append((rocm, ", ".join(filter(None, torches)) or _NONE, _span(matrix.python, pythons)))
    return table(("ROCm", "torch", "Python"), rows)


def _torch(torch: str, cells: Iterable[Cell]) -> str:
    """A torch version, with its backend if it has only one; empty without cells."""
    backends = {cell.backend for cell in cells if cell.torch == torch}
    if not backends:
        return ""
    return torch if len(backends) == len(Backend) else f"{torch} ({backends.pop().display_name} only)"


def _gpus(matrix: Matrix, cells: Iterable[Cell]) -> list[str]:
    rocms: dict[str, dict[Backend, set[str]]] = {}
    for cell in cells:
        for arch in matrix.archs(cell):
            rocms.setdefault(arch, {backend: set() for backend in Backend})[cell.backend].add(cell.rocm)
    rows = (
        (arch, gpu_text(arch), *(_span(tuple(matrix.rocm), among, "ROCm ") for among in rocms[arch].values()))
        for arch in sorted(rocms, key=arch_sort_key)
    )
    return table(("arch", "GPUs", *(backend.display_name for backend in Backend)), rows)


def _span(ordered: tuple[str, ...], among: set[str], unit: str = "") -> str:
    """The versions of `ordered` (newest first) that are in `among`, as spans from oldest to newest.

    A missing version splits a span.
    """
    spans = [list(run) for is_among, run in groupby(reversed(ordered), among.__contains__) if is_among]
    texts = [span[0] if len(span) == 1 else f"{span[0]} to {span[-1]}" for span in spans]
    return unit + ", ".join(texts) if texts else _NONE
