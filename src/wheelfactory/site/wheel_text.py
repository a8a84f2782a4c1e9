"""A manifest row -> what people see of it: its place in a list, its versions, its Python, and what GPUs computed.

What a GPU of AMD computed is proof; what another vendor's did is told, and proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from packaging.utils import parse_wheel_filename
from packaging.version import Version

from wheelfactory.core.label import Label
from wheelfactory.release.evidence import Evidence
from wheelfactory.release.manifest import WheelRow, passed_gpu_gates, verified_archs
from wheelfactory.release.verified import unverified_reason
from wheelfactory.site.index import IndexKey
from wheelfactory.site.markdown import escape


def newest_first_key(wheel: WheelRow) -> tuple[object, ...]:
    """Sorts ROCm, torch and flash-attn from new to old, CK before Triton, Pythons as names; dependencies last."""
    if wheel.label is None:
        return 1, wheel.filename
    label = Label.parse(wheel.label)
    version = Version(wheel.version)
    older = tuple(-part for part in (*label.rocm, *label.torch))
    return 0, older, str(label.backend), [-part for part in version.release], -(version.post or 0), wheel.filename


def axis_values(wheel: WheelRow) -> tuple[str, str, str]:
    """ROCm, torch and backend of a wheel that has a label: ``("6.4", "2.9", "ck")``."""
    label = Label.parse(str(wheel.label))
    return label.rocm_version, label.torch_version, str(label.backend)


def group_by_index(wheels: Iterable[WheelRow]) -> dict[IndexKey, list[WheelRow]]:
    """The wheels of each index, both in the order given; without dependencies, which every index has."""
    groups: dict[IndexKey, list[WheelRow]] = {}
    for wheel in wheels:
        if wheel.index_key:
            groups.setdefault(wheel.index_key, []).append(wheel)
    return groups


def versions_text(wheels: Iterable[WheelRow]) -> str:
    """The versions without their label, in the order of the wheels, as Markdown."""
    return ", ".join(dict.fromkeys(escape(wheel.version.partition("+")[0]) for wheel in wheels))


def pythons_text(wheels: Iterable[WheelRow]) -> str:
    """``3.10, 3.11``, or ``any`` for wheels without compiled code, from the tags of the files' names."""
    tags = {tag.interpreter for wheel in wheels for tag in parse_wheel_filename(wheel.filename)[3]}
    return ", ".join(
        "any" if tag == "py3" else f"{tag[2:3]}.{tag[3:]}" for tag in sorted(tags, key=lambda tag: (len(tag), tag))
    )


def status_notes(row: WheelRow) -> Iterator[str]:
    """What is said wherever the wheel is listed: what was not checked, and on which GPUs it ran.

    Text without markup, as that of `evidence_lines`: a page escapes what it shows.
    """
    if reason := unverified_reason(row):
        yield reason
    archs = verified_archs(row)
    if archs:
        yield f"{_proved(row)} on {', '.join(archs)}"
    yield from dict.fromkeys(_computed(piece) for piece in row.evidence if not piece.is_amd_proof)


def evidence_lines(row: WheelRow) -> Iterator[str]:
    """A line for each time that a GPU computed what it should; those of other vendors prove nothing about AMD's."""
    for gate in passed_gpu_gates(row):
        torch = f", torch {gate.versions['torch']}" if "torch" in gate.versions else ""
        yield f"{_proved(row)} on {gate.versions['gpu']}{torch}: by the gpu gate, before it was published"
    for piece in row.evidence:
        if piece.is_amd_proof:
            yield f"{_proved(row)} on {piece.arch} ({piece.device}), {_told(piece)}"
        else:
            yield f"{_computed(piece)}, {_told(piece)}; this proves nothing about GPUs of AMD"


def _proved(row: WheelRow) -> str:
    """What a GPU of AMD makes of a wheel; the word ``verified`` is for wheels that passed all gates too."""
    return "tested" if unverified_reason(row) else "verified"


def _computed(piece: Evidence) -> str:
    return f"numbers computed on {piece.device}{' in the non-AMD GPU test mode' if piece.is_test_mode else ''}"


def _told(piece: Evidence) -> str:
    """With what, when, and how near the nearest of all results came to its bound."""
    left_out = f", {piece.not_run} not run" if piece.not_run else ""
    nearest = piece.nearest
    return (
        f"torch {piece.torch}, {piece.time:%Y-%m-%d}: {piece.cases} cases passed{left_out}; nearest to its bound "
        f"{nearest.result} of {nearest.case}, {nearest.error:.2g} of {nearest.bound:.2g}"
    )
