"""A process that publishes in children of its own, so that one can be killed and the next starts at once.

Reads a JSON object a line: the wheels to publish, the environment, and how many wheels a release takes. Writes the pid
of the child that does it, then how that ended.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

from fake_github.outcome import Added
from fake_github.repository import OWNER_REPO
from release_factory import additions
from wheelfactory.commands.targets import open_publisher
from wheelfactory.release.github import drafts
from wheelfactory.release.transaction import publish


class PublishingProcess:
    """A process whose children publish, one after the other."""

    def __init__(self, process: Popen[str]) -> None:
        self._process = process
        self.child = 0
        """The pid of the child that publishes."""

    def start(self, added: Added, environ: dict[str, str], most_wheels: int) -> None:
        """Start publishing under the tag v1."""
        wheels = [str(path) for _, path in added]
        asked = {"wheels": wheels, "environ": environ, "most_wheels": most_wheels}
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        self.child = int(self._process.stdout.readline())

    def ending(self) -> int:
        """The exit code of the child; negative for a signal."""
        assert self._process.stdout
        return int(self._process.stdout.readline())


@contextmanager
def publishing_process() -> Iterator[PublishingProcess]:
    """A publishing process for the duration of the block."""
    path = os.pathsep.join((str(Path(__file__).parents[1]), *filter(None, sys.path)))
    command = [sys.executable, "-m", "fake_github.publishing"]
    with Popen(command, stdin=PIPE, stdout=PIPE, text=True, env={**os.environ, "PYTHONPATH": path}) as process:
        yield PublishingProcess(process)
        assert process.stdin
        process.stdin.close()
        process.wait()


def _publish(asked: dict[str, Any]) -> None:
    drafts.MAX_WHEELS = asked["most_wheels"]
    publisher = open_publisher(f"github:{OWNER_REPO}", asked["environ"], tag="v1")
    publish(publisher, additions(Path(wheel) for wheel in asked["wheels"]))


def _in_child(work: Callable[[], None]) -> None:
    """Publish in a child. This process has one thread, so forking is safe."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException as error:
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
            sys.stderr.flush()
            os._exit(1)
    _tell(child)
    _tell(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def _tell(number: int) -> None:
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    for line in sys.stdin:
        _in_child(partial(_publish, json.loads(line)))
