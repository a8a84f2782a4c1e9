"""Texts about a manifest row: sort order, versions, Pythons, missing checks, executed kernels, and GPU results.

Results on AMD GPUs are proof. Results on other GPUs are shown, but prove nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from packaging.utils import parse_wheel_filename

from wheelfactory.core.cell import name_flash_attn, name_python, public_version
from wheelfactory.core.label import IndexKey, Label
from wheelfactory.core.published import best_first_key, version_key
from wheelfactory.matrix.facts import Matrix
from wheelfactory.release.evidence import Evidence
from wheelfactory.release.manifest import WheelRow, outdated_reason, passed_gpu_gates, verified_archs
from wheelfactory.release.verified import unchecked_since, unverified_reason
from wheelfactory.site.markdown import escape


def newest_first_key(wheel: WheelRow) -> tuple[object, ...]:
    """Sort key: releases, previews, dependencies; in each newest ROCm and torch, CK first, newest flash-attn."""
    if wheel.label is None:
        return 1, wheel.filename
    label = Label.parse(wheel.label)
    platform = tuple(-part for part in (*label.rocm, *label.torch))
    versions = tuple(-number for number in version_key(wheel.version))
    return 0, bool(label.commit), platform, str(label.backend), versions, wheel.filename


def preferred_first_key(wheel: WheelRow) -> tuple[object, ...]:
    """Sort key of a wheel with a label: the order in which the doctor offers wheels (`doctor.fit`), previews last."""
    label = Label.parse(str(wheel.label))
    return bool(label.commit), best_first_key(label, wheel.version, wheel.filename, wheel.published), wheel.filename


def axis_values(wheel: WheelRow) -> tuple[str, str, str]:
    """ROCm, torch and backend of a wheel with a label: ``("6.4", "2.9", "ck")``; ``ck-preview`` for a preview."""
    label = Label.parse(str(wheel.label))
    return label.rocm_version, label.torch_version, label.index_key[2]


def group_by_index(wheels: Iterable[WheelRow]) -> dict[IndexKey, list[WheelRow]]:
    """The wheels of each index, in the given order, without dependencies, which every index has."""
    groups: dict[IndexKey, list[WheelRow]] = {}
    for wheel in wheels:
        if wheel.label and wheel.index_key:
            groups.setdefault(wheel.index_key, []).append(wheel)
    return groups


def versions_text(wheels: Iterable[WheelRow]) -> str:
    """The distinct versions of wheels with a label, as Markdown: ``2.8.3``, or ``2.8.4 preview (commit 4a948e9)``."""
    return ", ".join(dict.fromkeys(escape(_version_name(wheel)) for wheel in wheels))


def _version_name(wheel: WheelRow) -> str:
    public, commit = public_version(wheel.version), Label.parse(str(wheel.label)).commit
    return name_flash_attn(f"{public}+git{commit}" if commit else public)


def pythons_text(wheels: Iterable[WheelRow]) -> str:
    """``3.10, 3.11``, or ``any`` for wheels without compiled code, by the tags of the file names."""
    tags = {tag.interpreter for wheel in wheels for tag in parse_wheel_filename(wheel.filename)[3]}
    ordered = sorted(tags, key=lambda tag: (len(tag), tag))
    return ", ".join("any" if tag == "py3" else name_python(tag) for tag in ordered)


def missing_checks(row: WheelRow, matrix: Matrix) -> str:
    """Why a wheel is not verified, or which checks were added after it was; empty if it passed today's."""
    outdated = outdated_reason(row, matrix)
    earlier = f"checked before these cases existed: {outdated}" if outdated else ""
    return unverified_reason(row) or unchecked_since(row) or earlier


def status_notes(row: WheelRow, matrix: Matrix) -> Iterator[str]:
    """Notes beside a listed wheel: missing checks, executed kernels, and GPUs it ran on. Not escaped."""
    if reason := missing_checks(row, matrix):
        yield reason
    yield from executed_lines(row)
    if archs := verified_archs(row):
        yield f"{_proof_word(row)} on {', '.join(archs)}"
    yield from dict.fromkeys(_computed_text(piece) for piece in row.evidence if not piece.is_amd_proof)


def executed_lines(row: WheelRow) -> Iterator[str]:
    """A line for each arch whose kernels an emulator executed, by the proof of the kernel set."""
    figures = {name: value for gate in row.gates if gate.gate == "code-objects" for name, value in gate.figures.items()}
    for arch in row.offload_archs:
        if executed := figures.get(f"{arch} executed"):
            kernels = figures.get(f"{arch} kernels", 0)
            yield f"{executed:.0f} of {kernels:.0f} kernels executed by an emulator, for {arch}"


def evidence_lines(row: WheelRow) -> Iterator[str]:
    """A line for each correct run on a GPU; runs on non-AMD GPUs are marked as no proof for AMD GPUs."""
    for gate in passed_gpu_gates(row):
        torch = f", torch {gate.versions['torch']}" if "torch" in gate.versions else ""
        yield f"{_proof_word(row)} on {gate.versions['gpu']}{torch}: by the gpu gate, before publishing"
    for piece in row.evidence:
        if piece.is_amd_proof:
            yield f"{_proof_word(row)} on {piece.arch} ({piece.device}), {_result_text(piece)}"
        else:
            yield f"{_computed_text(piece)}, {_result_text(piece)}; this proves nothing about AMD GPUs"


def _proof_word(row: WheelRow) -> str:
    """The word for a correct run on an AMD GPU: ``verified`` only if the wheel also passed all gates."""
    return "tested" if unverified_reason(row) or unchecked_since(row) else "verified"


def _computed_text(piece: Evidence) -> str:
    return f"numbers computed on {piece.device}{' in the non-AMD GPU test mode' if piece.is_test_mode else ''}"


def _result_text(piece: Evidence) -> str:
    """The torch version, date, case counts, and the result nearest to its bound."""
    left_out = f", {piece.not_run} not run" if piece.not_run else ""
    cases, nearest = f"{piece.cases} cases passed{left_out}", piece.nearest
    near = f"{nearest.result} of {nearest.case}, {nearest.error:.2g} of {nearest.bound:.2g}"
    return f"torch {piece.torch}, {piece.time:%Y-%m-%d}: {cases}; nearest to its bound {near}"
