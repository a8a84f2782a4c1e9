"""The three answers to whether flash-attn runs on a machine, looked up in tables that hold the rules of the matrix.

The doctor embeds the tables and calls `SupportTables`; the search page has the same tables, and a test compares their
answers. Part of doctor.py, so it uses only the standard library of Python 3.9.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import product

from wheelfactory.core.cell import FALLBACK_NAME, Backend, major_minor
from wheelfactory.core.gpus import OVERRIDES, find_override_arch
from wheelfactory.core.label import FALLBACK_INDEX, index_path

OTHER_BUILD = "CK wheels are built with PyTorch's torch; the doctor compares their symbols with those of yours"

Choices = Mapping[str, str]
"""Values by axis; a missing axis means any value."""

Point = Mapping[str, int]
"""Positions on the axes."""

# the order of the search: the GPU and the backend first, because their rules exclude the most combinations
_SEARCH_ORDER = ("gpu", "backend", "flash-attn", "rocm", "torch", "python")
# the order in which choices are tried as irrelevant to a contradiction. The backend stays: without it, some reasons
# would be about the other backend
_DROP_ORDER = ("flash-attn", "python", "rocm", "torch", "gpu")
# the axes of the rule about the indexes of PyTorch
_INDEX = ("torch", "rocm")
_OF_PYTORCH = (_INDEX, ("torch", "python"))

_UNITS = {"rocm": "ROCm ", "torch": "torch ", "python": "Python ", "flash-attn": "flash-attn "}
_BACKEND_NAMES = {backend.value: backend.display_name for backend in Backend}


class Answer(str, Enum):
    """Whether flash-attn runs with some GPU, ROCm, torch, Python and backend."""

    WORKS = "works"
    """A wheel promises it, and its checks test that promise."""
    MAY_WORK = "may work"
    """Nothing speaks against it, and nobody promises it."""
    DOES_NOT_WORK = "does not work"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Finding:
    """What a rule says about a combination: an answer other than `Answer.WORKS`, and why."""

    answer: Answer
    reason: str


@dataclass(frozen=True)
class Support:
    """The answer to a combination."""

    answer: Answer
    reasons: tuple[str, ...] = ()
    """Why it is not `Answer.WORKS`; empty if it is."""

    def __str__(self) -> str:
        return f"{self.answer}: {'; '.join(self.reasons)}" if self.reasons else str(self.answer)


@dataclass(frozen=True)
class SupportTable:
    """The findings of one rule for each point of its axes, the last axis fastest."""

    axes: tuple[str, ...]
    positions: tuple[int, ...]
    """Positions in `SupportTables.findings`; 0 for none."""


@dataclass(frozen=True)
class SupportTables:
    """All rules of a matrix."""

    axes: Mapping[str, tuple[str, ...]]
    """The values of each axis, in the order of matrix.yaml; ``gpu`` has offload archs."""
    findings: tuple[Finding | None, ...]
    """All distinct findings; None at 0."""
    tables: tuple[SupportTable, ...]
    amd: SupportTable
    """The rule in place of those about PyTorch's torch for CK and AMD's own: which images have it."""

    def as_json(self) -> dict[str, object]:
        """Return plain JSON values."""
        return {
            "axes": self.axes,
            "findings": [finding and (str(finding.answer), finding.reason) for finding in self.findings],
            "tables": [(table.axes, table.positions) for table in self.tables],
            "amd": (self.amd.axes, self.amd.positions),
        }

    def find_support(self, choices: Choices) -> Support:
        """Return the best answer over all combinations with these choices, with the reasons why it is no better.

        Without ``gpu`` in `choices`, the rules for GPUs are not applied.
        """
        if unknown := [axis for axis, value in choices.items() if value not in self.axes[axis]]:
            return Support(Answer.DOES_NOT_WORK, tuple(self._not_listed(axis, choices[axis]) for axis in unknown))
        if self._is_possible(choices, self.tables, Answer.WORKS):
            return Support(Answer.WORKS)
        if self._is_possible(choices, self.tables, Answer.MAY_WORK):
            # the reasons against the combinations that do not work at all are of no use
            caveats = {finding.reason for finding in self.findings if finding and finding.answer is Answer.MAY_WORK}
            reasons = self._reasons(choices, Answer.WORKS)
            return Support(Answer.MAY_WORK, tuple(reason for reason in reasons if reason in caveats))
        return Support(Answer.DOES_NOT_WORK, self._reasons(choices, Answer.MAY_WORK))

    def is_other_build(self, choices: Choices) -> bool:
        """Whether the torch of a user for that ROCm is none of PyTorch's: it is AMD's, a distribution's or their own.

        A ROCm that no index of PyTorch has, such as ``10.0`` or the ``7.1.1`` of a label, shows that too.
        """
        rocm, torch = choices.get("rocm", ""), choices.get("torch")
        if rocm not in self.axes["rocm"]:
            return bool(re.match(r"\d+\.\d", rocm)) and major_minor(rocm) >= major_minor(self.axes["rocm"][-1])
        pair = {"rocm": rocm, "torch": torch or ""}
        return torch in self.axes["torch"] and self.find_support(pair).answer is Answer.DOES_NOT_WORK

    def find_user_support(self, choices: Choices, *, other_build: bool = False) -> Support:
        """Return the answer for what a user has, whose torch may be another build than PyTorch's.

        A Triton wheel fits such a torch by its version, whatever its ROCm; a CK wheel for its ROCm may fit, or be one
        for AMD's own torch.
        """
        if not (other_build or self.is_other_build(choices)):
            return self.find_support(choices)
        found, wanted = [], choices.get("backend")
        if wanted != Backend.CK:
            rest = {axis: value for axis, value in choices.items() if axis != "rocm"}
            found.append(self.without(_INDEX).find_support({**rest, "backend": Backend.TRITON.value}))
        if wanted != Backend.TRITON:
            near = {**choices, **self._near_rocm(choices), "backend": Backend.CK.value}
            amds = replace(self, tables=(*self.without(*_OF_PYTORCH).tables, self.amd))
            ck = min(self.find_support(near), amds.find_support(near), key=_rank)
            works = ck.answer is not Answer.DOES_NOT_WORK
            found.append(Support(Answer.MAY_WORK, (OTHER_BUILD, *ck.reasons)) if works else ck)
        return min(found, key=_rank)

    def without(self, *rules: tuple[str, ...]) -> SupportTables:
        """Return the rules without the rules of these axes, which are about PyTorch's torch only."""
        return replace(self, tables=tuple(table for table in self.tables if table.axes not in rules))

    def for_own_torch(self) -> SupportTables:
        """Return the rules for a torch that says itself for which GPUs it has code."""
        return self.without(_INDEX, ("rocm", "gpu"))

    def _near_rocm(self, choices: Choices) -> Choices:
        """Return the ROCm of PyTorch's index that a ROCm such as 7.1.1 belongs to; nothing if there is none."""
        rocm = choices.get("rocm", "")
        minor = ".".join(rocm.split(".")[:2])
        return {"rocm": minor} if rocm not in self.axes["rocm"] and minor in self.axes["rocm"] else {}

    def _not_listed(self, axis: str, value: str) -> str:
        served = (one for one in self.axes[axis] if self._is_possible({axis: one}, self.tables, Answer.MAY_WORK))
        return f"no wheels for {name_choice(axis, value)}; available: {', '.join(served)}"

    def _domain(self, choices: Choices, axis: str) -> Sequence[int]:
        values = self.axes[axis]
        return [values.index(choices[axis])] if axis in choices else range(len(values))

    def _finding(self, table: SupportTable, point: Point) -> int:
        place = 0
        for axis in table.axes:
            place = place * len(self.axes[axis]) + point[axis]
        return table.positions[place]

    def _allows(self, position: int, worst: Answer) -> bool:
        finding = self.findings[position]
        return finding is None or (worst is Answer.MAY_WORK and finding.answer is Answer.MAY_WORK)

    def _is_possible(self, choices: Choices, tables: Sequence[SupportTable], worst: Answer) -> bool:
        """Whether `tables` allow any combination with these choices, with an answer no worse than `worst`."""
        axes = _searched_axes(choices)
        depths = [(_depth(table, axes), table) for table in tables]
        due = [[table for at, table in depths if at == depth] for depth in range(len(axes))]
        point: dict[str, int] = {}

        def search(depth: int) -> bool:
            if depth == len(axes):
                return True
            for position in self._domain(choices, axes[depth]):
                point[axes[depth]] = position
                if all(self._allows(self._finding(table, point), worst) for table in due[depth]) and search(depth + 1):
                    return True
            return False

        return search(0)

    def _reasons(self, choices: Choices, worst: Answer) -> tuple[str, ...]:
        """Return why no combination with these choices has an answer as good as `worst`.

        Rules that concern only chosen values come first. Without any, the smallest set of contradicting choices and
        the smallest set of rules against it give the reasons.
        """
        place = {axis: self._domain(choices, axis)[0] for axis in choices}
        direct = [table for table in self.tables if all(axis in choices for axis in table.axes)]
        found = [self._finding(table, place) for table in direct]
        against = [position for position in found if not self._allows(position, worst)]
        return self._texts(against) if against else self._contradiction(choices, worst)

    def _texts(self, positions: Sequence[int]) -> tuple[str, ...]:
        findings = [self.findings[position] for position in dict.fromkeys(positions)]
        return tuple(dict.fromkeys(finding.reason for finding in findings if finding))

    def _contradiction(self, choices: Choices, worst: Answer) -> tuple[str, ...]:
        kept = dict(choices)
        for axis in _DROP_ORDER:
            fewer = {name: value for name, value in kept.items() if name != axis}
            if not self._is_possible(fewer, self.tables, worst):
                kept = fewer
        tables = list(self.tables)
        for table in self.tables:
            others = [other for other in tables if other is not table]
            if not self._is_possible(kept, others, worst):
                tables = others
        return self._first_reasons(kept, tables, worst)

    def _first_reasons(self, choices: Choices, tables: Sequence[SupportTable], worst: Answer) -> tuple[str, ...]:
        """Return the first reason against each combination.

        Reasons of later rules come first, because they exclude what all others allow.
        """
        axes = _searched_axes(choices)
        applicable = [table for table in tables if _depth(table, axes) >= 0]
        found: list[dict[int, None]] = [{} for _ in applicable]
        for point in self._points(choices, axes):
            for number, table in enumerate(applicable):
                position = self._finding(table, point)
                if not self._allows(position, worst):
                    found[number][position] = None
                    break
        return self._texts([position for positions in reversed(found) for position in positions])

    def _points(self, choices: Choices, axes: Sequence[str]) -> Iterator[Point]:
        domains = (self._domain(choices, axis) for axis in axes)
        return (dict(zip(axes, place)) for place in product(*domains))  # noqa: B905 (its argument is of Python 3.10)


def _rank(support: Support) -> int:
    """Order answers, the best first."""
    return list(Answer).index(support.answer)


def _searched_axes(choices: Choices) -> tuple[str, ...]:
    return _SEARCH_ORDER if "gpu" in choices else _SEARCH_ORDER[1:]


def _depth(table: SupportTable, axes: Sequence[str]) -> int:
    """Return the search depth at which a table can be applied; -1 if it needs an axis that is not searched."""
    return max(axes.index(axis) for axis in table.axes) if all(axis in axes for axis in table.axes) else -1


def name_choice(axis: str, value: str) -> str:
    """Return a choice for a message: ``ROCm 6.4``, ``CK``, ``gfx942``."""
    return f"{_UNITS.get(axis, '')}{_BACKEND_NAMES.get(value, value) if axis == 'backend' else value}"


def other_ways(arch: str) -> tuple[str, ...]:
    """Return what the owner of a GPU that no wheel promises to work on can use instead, one line each."""
    reach = "on the GPU if torch.cuda.get_arch_list() of your torch names it, otherwise on the CPU"
    index = index_path(FALLBACK_INDEX)
    named = f"for programs that accept only flash-attn, the site's index {index}/ has it by that name"
    ways = [f"{FALLBACK_NAME}: the same functions in pure PyTorch, slower: {reach}; {named}"]
    if override := OVERRIDES.get(arch):
        line, other = f"export HSA_OVERRIDE_GFX_VERSION={override}", find_override_arch(override)
        ways.insert(0, f"at your own risk: {line} makes ROCm use code for {other}")
    return tuple(ways)
