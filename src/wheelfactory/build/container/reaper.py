"""``python -m wheelfactory.build.container.reaper URL FOLDER``: cleans up after a run when its process has ended.

Its stdin is a pipe that the run holds open and the kernel closes.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

from wheelfactory.build.container.engine import connect
from wheelfactory.build.container.leftovers import remove_containers
from wheelfactory.core.errors import FactoryError
from wheelfactory.core.files import remove_scratch


def main(url: str, folder: Path) -> None:
    """Wait for the end of stdin, then remove the run's containers and the scratch folders that nobody holds."""
    sys.stdin.buffer.read()
    with suppress(FactoryError):  # the engine is gone, and nobody is left to be told
        remove_containers(connect({"DOCKER_HOST": url}), folder)
    remove_scratch(folder.parent)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
