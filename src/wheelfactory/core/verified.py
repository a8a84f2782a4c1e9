"""The one rule that says whether a wheel is verified: for the manifest, its pages and the doctor alike.

Needs nothing but the standard library of Python 3.9: the doctor takes it along.
"""

from __future__ import annotations

from collections.abc import Iterable

IN_WORDS = {"ahead-of-time": "kernels compiled for its GPUs", "interpreter": "numbers"}
"""What gates check, where their names say little to somebody who installs a wheel."""


def why_unverified(required: Iterable[str], results: Iterable[tuple[str, str]]) -> str:
    """Why a wheel is not verified, such as ``not checked: numbers``; empty if it is.

    `required` names the gates that must pass. `results` are gates with ``passed``, ``failed`` or ``not run``. A wheel
    is verified if each required gate passed and none failed.
    """
    statuses = dict(results)
    failed = [name for name, status in statuses.items() if status == "failed"]
    not_checked = [name for name in required if statuses.get(name) not in ("passed", "failed")]
    found = {"failed": failed, "not checked": not_checked}
    return "; ".join(
        f"{what}: {', '.join(IN_WORDS.get(name, name) for name in names)}" for what, names in found.items() if names
    )
