"""`wheelfactory ci check-run`."""

from __future__ import annotations

import argparse

from wheelfactory.commands.options import Environ, print_messages
from wheelfactory.commands.targets import open_client
from wheelfactory.core.errors import DONE
from wheelfactory.core.progress import log_to_stderr
from wheelfactory.release.github.workflow_runs import read_run, require_own_run


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("repository", metavar="REPOSITORY", help="repository of the run, as github:OWNER/REPO")
    parser.add_argument("run", type=int, metavar="RUN", help="id of the earlier run")


def execute(options: argparse.Namespace, environ: Environ) -> int:
    """Check that the artifacts of an earlier run were made by the workflow build.yml of this repository."""
    client = open_client(options.repository, environ)
    with log_to_stderr():
        run = read_run(client, options.run)
    require_own_run(run, client.repository)
    print_messages(f"run {run.id}: {run.path} on {run.event} in {client.repository}")
    return DONE
