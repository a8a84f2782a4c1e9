"""`wheelfactory doctor`."""

from __future__ import annotations

import argparse

from wheelfactory.commands.options import Environ, show, tell
from wheelfactory.commands.targets import repository_of
from wheelfactory.doctor.program import EXIT_CODES, Task, add_options, perform
from wheelfactory.gpu.torch_python import users_python
from wheelfactory.site.advice import pages_of


def add(parser: argparse.ArgumentParser) -> None:
    """The command's options: those of the doctor; SITE may be github:OWNER/REPO too, for the Pages of a repository."""
    add_options(parser)
    parser.epilog = f"SITE may be github:OWNER/REPO, for what its Pages serve. {EXIT_CODES}"


def execute(options: argparse.Namespace, environ: Environ) -> int:
    """Examine the Python that the user works with, not the one that this runs in."""
    site = options.site or ""
    repository = repository_of(site)
    python = options.python or users_python(environ)
    return perform(options, Task(python, pages_of(repository) if repository else site, environ, show, tell))
