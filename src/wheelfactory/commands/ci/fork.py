"""`wheelfactory ci check-fork`."""

from __future__ import annotations

import argparse

from wheelfactory.commands.options import Environ, print_results
from wheelfactory.commands.targets import add_target, open_client
from wheelfactory.core.errors import DONE, FAILED
from wheelfactory.core.progress import log_to_stderr


def add_check_fork(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    add_target(parser)
    parser.epilog = "example: GITHUB_TOKEN=$(gh auth token) wheelfactory ci check-fork github:OWNER/REPO"


def execute_check_fork(options: argparse.Namespace, environ: Environ) -> int:
    """Print each setting of a repository that its workflows need, on or off; exit code 1 if any is off."""
    client = open_client(options.target, environ)
    from wheelfactory.release.github.fork import check_fork  # slow to import, as in `targets`

    with log_to_stderr():
        found = list(check_fork(client))
    print_results(*(f"off  {name}: {problem}" if problem else f"ok   {name}" for name, problem in found))
    return FAILED if any(problem for _, problem in found) else DONE
