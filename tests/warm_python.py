"""A Python that has imported what takes seconds, and runs each program in a process of its own."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_SERVER = """
import json, os, sys
exec(sys.argv[1])
for text in sys.stdin:
    if not os.fork():
        variables, lines = json.loads(text)
        os.environ.update(variables)
        exec(chr(10).join(lines))
        sys.exit()
    print(os.wait()[1], "end", sep="\\n", flush=True)
"""


@dataclass(frozen=True)
class WarmPython:
    """A process that has executed the imports, and starts others by forking itself."""

    process: subprocess.Popen[str]

    def run(self, *lines: str, **variables: str) -> list[str]:
        """Execute lines after the imports, with these environment variables; return the lines that they print."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(f"{json.dumps([variables, lines])}\n")
        self.process.stdin.flush()
        *printed, status = iter(self.process.stdout.readline, "end\n")
        assert int(status) == 0, "stderr says why"
        return printed


@contextmanager
def start_warm_python(python: Path, *imports: str, environ: Mapping[str, str]) -> Iterator[WarmPython]:
    """Start a Python, apart from the user's packages, and execute the lines `imports` there; it uses one thread."""
    command: list[str | Path] = [python, "-I", "-c", _SERVER, "\n".join(imports)]
    pipe, given = subprocess.PIPE, {**environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, env=given, text=True) as process:
        yield WarmPython(process)
