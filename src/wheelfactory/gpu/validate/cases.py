"""What a program computed in, the cases of a report out: each with its errors and bounds, or why it was not run. Pure.

The bounds are those of the gates (`verify.numbers`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from wheelfactory.gpu.validate.report import Case, Error
from wheelfactory.verify import numbers
from wheelfactory.verify.limits import Limit
from wheelfactory.verify.numbers import FALLBACK, STANDARDS, Numbers, Standard
from wheelfactory.verify.result import Status, is_within


def find_standard(backend: str) -> Standard | None:
    """What a module that computes is held to; None for one that nobody knows."""
    return next((known for known in (*STANDARDS.values(), FALLBACK) if known.module == backend), None)


def cases_of(found: Numbers, limits: Sequence[Limit]) -> Iterator[Case]:
    """The cases that ran, and those that a limit left out."""
    standard = find_standard(found.backend)
    for case in found.cases:
        if standard is None:
            yield Case(name=case.name, status=Status.FAILED, detail=f"no bound is known for {found.backend}")
        elif case.error:
            yield Case(name=case.name, status=Status.FAILED, detail=case.error)
        else:
            yield _judged(case, standard, limits)
    for name in found.left_out:
        yield Case(name=name, status=Status.NOT_RUN, detail=_reason(name, limits))


def _judged(case: numbers.Case, standard: Standard, limits: Sequence[Limit]) -> Case:
    bounded = numbers.bounded(case, standard)
    right = bool(bounded) and all(is_within(*pair) for pair in bounded.values())
    # a report is JSON, which has no other numbers
    finite = {name: pair for name, pair in bounded.items() if all(map(math.isfinite, pair))}
    not_finite = "; ".join(
        f"{name} is off by {error:g} (at most {bound:g})"
        for name, (error, bound) in bounded.items()
        if name not in finite
    )
    return Case(
        name=case.name,
        status=Status.PASSED if right else Status.FAILED,
        errors=tuple(Error(result=name, error=error, bound=bound) for name, (error, bound) in finite.items()),
        detail=not_finite or _reason(case.name, [limit for limit in limits if not limit.whole]),
    )


def _reason(name: str, limits: Sequence[Limit]) -> str:
    return "; ".join(str(limit) for limit in limits if fnmatchcase(name, limit.cases))
