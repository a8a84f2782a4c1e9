"""A program in, what it said in a Python with torch out; and what every report says of that Python."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal, TypeAlias

from wheelfactory.core.checkout import FALLBACK, factory_version
from wheelfactory.core.process import reason, run
from wheelfactory.gpu.torch_python import TorchPython
from wheelfactory.gpu.validate.report import hardware_of, software_of

PROGRAMS = Path(__file__).with_name("programs")

NO_REPORT = "it ended as if all were well, and did not say so"
"""Why nothing is known of what a program did not speak of."""

Step: TypeAlias = Callable[[str], AbstractContextManager[object]]
"""What tells a person that something of this name is under way."""


def device_of(python: TorchPython) -> Literal["cpu", "cuda"]:
    """What torch calls the device that it computes on; a GPU of AMD is ``cuda`` too."""
    return "cuda" if python.device else "cpu"


def hear(
    program: str, name: str, config: Mapping[str, Any], python: TorchPython, environ: Mapping[str, str]
) -> tuple[dict[str, Any], str]:
    """Run a program for the implementation `name`: the last that it said as JSON (empty if nothing), and why it ended
    before its end (empty if it did not)."""
    arguments = [name, device_of(python), str(FALLBACK / "src"), json.dumps(config)]
    done = run([python.python, "-I", "-B", PROGRAMS / program, *arguments], environ=environ)
    return _last_said(done.stdout), reason(done) if done.returncode else ""


def _last_said(output: str) -> dict[str, Any]:
    """The last line that is an object of JSON; libraries print what they like between them."""
    for line in reversed(output.splitlines()):
        with suppress(ValueError):
            said = json.loads(line)
            if isinstance(said, dict):
                return said
    return {}


def circumstances(python: TorchPython) -> dict[str, Any]:
    """What a report says of the factory, the time, the hardware and the software."""
    return {
        "factory": factory_version(),
        "time": datetime.now(timezone.utc).replace(microsecond=0),
        "hardware": hardware_of(python),
        "software": software_of(python),
    }
