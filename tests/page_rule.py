"""The rule of the search page, run by Node.js without a browser."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from npm_tools import node

_SCRIPTS = ("lookup.js", "support.js", "gpus.js", "lines.js")
_SECONDS = 120


@dataclass(frozen=True)
class PageRule:
    """The scripts of the page that need no document, with the data of a page."""

    data: Mapping[str, Any]

    def ask(self, function: str, questions: Sequence[object]) -> list[Any]:
        """Call a JavaScript function (model, question) for each question; return its answers."""
        folder = files("wheelfactory.site").joinpath("page/search")
        scripts = "".join(folder.joinpath(name).read_text(encoding="utf-8") for name in _SCRIPTS)
        given = json.dumps({"data": self.data, "questions": questions})
        program = f"""{scripts}
            const factory = globalThis.wheelfactory, given = {given};
            const model = factory.makeModel(given.data), answer = {function};
            console.log(JSON.stringify(given.questions.map((question) => answer(model, question) ?? null)));"""
        done = subprocess.run(
            [node(), "-"], input=program, capture_output=True, text=True, check=False, timeout=_SECONDS
        )
        assert done.returncode == 0, done.stderr[-2000:]
        found: list[Any] = json.loads(done.stdout)
        return found
