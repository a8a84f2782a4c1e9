"""The rule that decides whether a wheel is verified, for the manifest, its pages and the doctor.

Part of doctor.py, so it uses only the standard library of Python 3.9.
"""

from __future__ import annotations

from collections.abc import Iterable

# what a gate checks, for the gates whose names mean nothing to a user
_GATE_TITLES = {"ahead-of-time": "kernels compiled for its GPUs", "interpreter": "numbers"}


def why_unverified(required: Iterable[str], results: Iterable[tuple[str, str]]) -> str:
    """Return why a wheel is not verified, such as ``not checked: numbers``; empty if it is.

    A wheel is verified if each `required` gate passed and no gate failed. `results` are pairs of a gate and
    ``passed``, ``failed`` or ``not run``.
    """
    statuses = dict(results)
    failed = [name for name, status in statuses.items() if status == "failed"]
    not_checked = [name for name in required if statuses.get(name) not in ("passed", "failed")]
    problems = {"failed": failed, "not checked": not_checked}
    return "; ".join(
        f"{problem}: {', '.join(_GATE_TITLES.get(name, name) for name in names)}"
        for problem, names in problems.items()
        if names
    )
