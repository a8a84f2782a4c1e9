"""A manifest row -> what people are told of GPUs that computed with its wheel: proof for AMD's, and no more for others.

Texts of one line without markup; a page escapes what it shows.
"""

from __future__ import annotations

from collections.abc import Iterator

from wheelfactory.release.evidence import Evidence
from wheelfactory.release.manifest import WheelRow, gpu_gates, verified_on


def marks(row: WheelRow) -> Iterator[str]:
    """What is said wherever the wheel is listed: on which archs it is verified, and what was tried on other GPUs."""
    archs = verified_on(row)
    if archs:
        yield f"verified on {', '.join(archs)}"
    yield from dict.fromkeys(_computed(piece) for piece in row.evidence if not piece.proves)


def evidence_lines(row: WheelRow) -> Iterator[str]:
    """A line for each time that a GPU computed what it should; those of other vendors prove nothing about AMD's."""
    for gate in gpu_gates(row):
        torch = f", torch {gate.versions['torch']}" if "torch" in gate.versions else ""
        yield f"verified on {gate.versions['gpu']}{torch}: by the gpu gate, before it was published"
    for piece in row.evidence:
        if piece.proves:
            yield f"verified on {piece.arch} ({piece.device}), {_told(piece)}"
        else:
            yield f"{_computed(piece)}, {_told(piece)}; this proves nothing about GPUs of AMD"


def _computed(piece: Evidence) -> str:
    return f"numbers computed on {piece.device}{' in the foreign-GPU test mode' if piece.foreign else ''}"


def _told(piece: Evidence) -> str:
    """With what, when, and how near the nearest of all results came to its bound."""
    left_out = f", {piece.not_run} not run" if piece.not_run else ""
    nearest = piece.nearest
    return (
        f"torch {piece.torch}, {piece.time:%Y-%m-%d}: {piece.cases} cases passed{left_out}; nearest to its bound "
        f"{nearest.result} of {nearest.case}, {nearest.error:.2g} of {nearest.bound:.2g}"
    )
