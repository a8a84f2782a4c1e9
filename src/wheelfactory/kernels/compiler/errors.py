"""How what runs beside the compiler says why it does not go on: a file that the factory reads and shows."""

from __future__ import annotations

import json
from pathlib import Path


class RefusedError(Exception):
    """Why nothing is compiled or linked: what, which, and the next step."""

    def __init__(self, what: str, which: str, hint: str) -> None:
        super().__init__(f"{what}: {which}")
        self.what = what
        self.which = which
        self.hint = hint


def write_refusal(path: Path, refusal: RefusedError) -> None:
    """Leave it where the factory looks."""
    written = path.with_suffix(".new")
    written.write_text(json.dumps({"what": refusal.what, "which": refusal.which, "hint": refusal.hint}))
    written.replace(path)
